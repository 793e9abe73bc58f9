"""``airflow safe-ops explain``: which class a failure is of, and what follows."""

from __future__ import annotations

import re
import sys
from argparse import Namespace
from contextlib import suppress
from importlib import import_module
from typing import Any

from airflow.utils.cli import suppress_logs_and_warning

from airflow_safe_ops.cli.ledger_command import need_ledger, print_lines
from airflow_safe_ops.cli.shell import say, session_of, speaks
from airflow_safe_ops.context import database_of
from airflow_safe_ops.errors import FailureClass, InvalidArgument, UnknownFailure
from airflow_safe_ops.failures.classify import Verdict
from airflow_safe_ops.failures.explain import explain as explain_text
from airflow_safe_ops.failures.registry import use_configured
from airflow_safe_ops.failures.rules import ADVICE
from airflow_safe_ops.report.failure import failure_line, failure_text
from airflow_safe_ops.settings import failure_rules_text

# A pasted name imports nothing but these.
_KNOWN = (
    *("aiohttp", "airflow", "asyncio", "builtins", "concurrent", "databricks", "http", "httpx", "jinja2", "psycopg"),
    *("psycopg2", "psycopg_pool", "requests", "socket", "sqlalchemy", "sqlite3", "ssl", "urllib3"),
)


@suppress_logs_and_warning
@speaks
def explain(args: Namespace) -> None:
    """Of which class, what it means, what will happen, what to do."""
    if (args.text is None) == (args.run is None):
        raise InvalidArgument("Give the text of an error, or --run DAG RUN TASK with --conn-id.")
    use_configured(failure_rules_text())
    text, facts = (_pasted(args.text), {}) if args.run is None else _recorded(args)
    verdict = explain_text(text, class_named)
    if facts.get("class"):
        verdict = _as_recorded(facts, verdict)
    line = failure_line(verdict)
    if args.output == "table":
        print(failure_text(line, {name: facts[name] for name in ("attempt", "said") if name in facts}))
    else:
        print_lines([line], args.output)
    if verdict.failure is FailureClass.UNKNOWN:
        raise SystemExit(1)


def class_named(name: str) -> tuple[type[BaseException], str] | None:
    """The class of that name and its SQLSTATE, if it is of Python or of a library that the rules know."""
    module, _, cls = name.rpartition(".")
    if (module or "builtins").partition(".")[0] not in _KNOWN:
        return None
    found: Any = None
    state: Any = None
    with suppress(Exception):
        found = getattr(import_module(module or "builtins"), cls, None)
        state = getattr(found, "sqlstate", None)
        if module.startswith("psycopg2"):  # its classes do not know their own
            state = getattr(import_module("psycopg2.errorcodes"), re.sub(r"(?<!^)(?=[A-Z])", "_", cls).upper(), None)
    if not isinstance(found, type) or not issubclass(found, BaseException):
        return None
    return found, state if isinstance(state, str) else ""


def _pasted(text: str) -> str:
    found = sys.stdin.read() if text == "-" else text
    if not found.strip():
        raise InvalidArgument("The text is empty.", fix="Paste the error, in quotes; - reads it from standard input.")
    return found


def _recorded(args: Namespace) -> tuple[str, dict[str, str]]:
    """What the ledger keeps of the last failed try."""
    if not args.conn_id:
        raise InvalidArgument("--run needs --conn-id.", fix="Name the connection of the database with the ledger.")
    dag, run, task = args.run
    hook, dialect = database_of(args.conn_id, args.schema)
    with session_of(hook, dialect, "explain") as session, session.transaction() as tx:
        need_ledger(tx, dialect, args.conn_id)
        found = tx.run(dialect.ledger.history.last_failure(dag, run, task, args.map_index)).named
    if not found:
        index = "" if args.map_index < 0 else f"[{args.map_index}]"
        raise UnknownFailure(f"The ledger knows no failed try of {dag}.{task}{index} in run {run}.")
    row = found[0]
    said = f"{row['error_class']}: {row['error_message']}"
    if row["outcome"] == "published":
        say("A later try of it published; this is the last one that failed.")
    return said, {
        "attempt": f"try {row['try_number']} of {dag}.{task} in {run}, {row['partition_key']}",
        "said": " ".join(said.split()),
        "class": row["failure_class"] or "",
        "reason": row["failure_reason"] or "",
    }


def _as_recorded(facts: dict[str, str], now: Verdict) -> Verdict:
    """The class that the try was given when it failed, by what the error carried then and its text does not."""
    failure = FailureClass(facts["class"])
    if failure is now.failure:
        return now
    return Verdict(failure, None, "", facts["reason"], ADVICE[failure])
