"""``airflow safe-ops ledger init | show | prune``."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Sequence
from typing import Any

from airflow.utils.cli import suppress_logs_and_warning

from airflow_safe_ops.cli.shell import fail, logged, say, session_of, speaks
from airflow_safe_ops.context import database_of
from airflow_safe_ops.errors import NoLedger, UnknownTable
from airflow_safe_ops.execution.session import Session
from airflow_safe_ops.ledger.migrations import init_ledger, is_ledger_there, ledger_ddl
from airflow_safe_ops.plan.model import Executor, Statement
from airflow_safe_ops.report import ledger as report
from airflow_safe_ops.settings import load_settings
from airflow_safe_ops.sql.dialect import Dialect


@logged
@suppress_logs_and_warning
@speaks
def init(args: Namespace) -> None:
    """Make the ledger or bring it up to date; or print the SQL that does."""
    hook, dialect = database_of(args.conn_id, args.schema)
    sql = dialect.ledger
    if args.print_sql:
        print(ledger_ddl(sql))
    else:
        with session_of(hook, dialect, "ledger-init") as session:
            applied = init_ledger(session, sql, dialect.sqlstate)
        where = f"Ledger in schema {sql.schema!r} of connection {args.conn_id!r}"
        print(f"{where}: {applied} migration(s) applied." if applied else f"{where}: is there and up to date.")
    configured = load_settings().ledger_schema
    if sql.schema != configured:
        say(f"Set [safe_ops] ledger_schema = {sql.schema} wherever loads write here; it says {configured!r} now.")


@suppress_logs_and_warning
@speaks
def show(args: Namespace) -> None:
    """A line a partition, or the attempts on one partition."""
    hook, dialect = database_of(args.conn_id, args.schema)
    sql, limit, grace = dialect.ledger, args.limit or None, load_settings().claim_grace
    with session_of(hook, dialect, "ledger-show") as session, session.transaction() as tx:
        need_ledger(tx, dialect, args.conn_id)
        table = _identity(session, tx, args.table) if args.table else None
        if args.partition is None:
            found = tx.run(sql.history.partitions(table, limit, grace)).named
        else:
            key = _partition(session, tx, table, args.partition)
            found = tx.run(sql.history.attempts(table, key, limit, grace)).named
    if args.partition is None:
        _show_partitions(found, table, args.output)
    else:
        _show_story(found, args.output)
    if found and found[0]["total"] > len(found):
        what = "partitions" if args.partition is None else "attempts"
        say(f"The last {len(found):,} of {found[0]['total']:,} {what}; --limit 0 shows all.")


@logged
@suppress_logs_and_warning
@speaks
def prune(args: Namespace) -> None:
    """Delete old attempts, after asking."""
    hook, dialect = database_of(args.conn_id, args.schema)
    sql, days, age = dialect.ledger, args.keep.total_seconds() / 86400, report.age(args.keep)
    with session_of(hook, dialect, "ledger-prune") as session:
        with session.transaction() as tx:
            need_ledger(tx, dialect, args.conn_id)
            old = int(tx.run(sql.history.count_old(days)).rows[0][0])
        if not old or args.dry_run:
            print(f"{old:,} attempts are older than {age}{' and would be deleted' if old else ': nothing to delete'}.")
            return
        if not args.yes and not _agreed(
            f"Delete {old:,} attempts older than {age}? The partitions' records stay. [y/n]"
        ):
            fail("Nothing was deleted.")
        with session.transaction() as tx:
            deleted = [tx.run(statement).rowcount for statement in sql.history.prune(days)]
    print(f"{deleted[-1]:,} attempts older than {age} deleted.")


def need_ledger(tx: Executor, dialect: Dialect, conn_id: str) -> None:
    """Refuse where there is no ledger that can be read."""
    if not is_ledger_there(tx, dialect.ledger):
        raise NoLedger(f"There is no ledger in schema {dialect.ledger.schema!r} of connection {conn_id!r}.")


def _identity(session: Session, tx: Executor, written: str) -> str:
    """The table as claims and ledger know it; by the ledger alone where the table was dropped."""
    try:
        return session.dialect.describe(tx, written).identity
    except UnknownTable:
        bare = written.replace('"', "")
        for identity in _column(tx, session.dialect.ledger.history.targets()):
            if bare in (identity.replace('"', ""), identity.replace('"', "").partition(".")[2]):
                return identity
        raise


def _partition(session: Session, tx: Executor, table: str | None, text: str) -> str:
    """The partition's key; a part of it does where only one has that."""
    keys = _column(tx, session.dialect.ledger.history.partition_keys(table, text))
    where = f" of {table}" if table else ""
    if not keys:
        fail(f"The ledger knows no attempt on partition {text!r}{where}.")
    if len(keys) > 1:
        shown = ", ".join(keys[:5]) + (", …" if len(keys) > 5 else "")
        fail(f"{len(keys):,} partitions{where} have {text!r} in their name: {shown}. Name one of them.")
    return keys[0]


def _column(tx: Executor, statement: Statement) -> list[str]:
    return [str(row[0]) for row in tx.run(statement).rows]


def _show_partitions(found: Sequence[dict[str, Any]], table: str | None, output: str) -> None:
    lines = [report.partition_line(row) for row in found]
    if output != "table":
        return print_lines(lines, output)
    if not lines:
        print(f"The ledger knows no partition{f' of {table}' if table else ''} yet.")
    for identity in dict.fromkeys(line["table"] for line in lines):
        print(f"{identity}\n")
        print_lines([report.partition_row(line) for line in lines if line["table"] == identity], output)
    return None


def _show_story(found: Sequence[dict[str, Any]], output: str) -> None:
    lines = [report.attempt_line(row) for row in found]
    if output != "table":
        return print_lines(
            lines if output in ("json", "yaml") else [report.attempt_row(line) for line in lines], output
        )
    for identity, key in dict.fromkeys((line["table"], line["partition"]) for line in lines):
        of_it = [line for line in lines if (line["table"], line["partition"]) == (identity, key)]
        print(f"{identity}  {key}\n")
        print_lines([report.attempt_row(line) for line in of_it], output)
        for told in report.told(of_it):
            print(told)
    return None


def print_lines(lines: list[dict[str, Any]], output: str) -> None:
    """Print lines as the user asked. JSON and YAML keep numbers and NULL as what they are; tables show them as text."""
    from airflow.cli.simple_table import AirflowConsole

    console = AirflowConsole()
    if output == "json":
        console.print_as_json(lines)  # type: ignore[arg-type]
    elif output == "yaml":
        console.print_as_yaml(lines)  # type: ignore[arg-type]
    else:
        console.print_as([{n: "" if v is None else v for n, v in line.items()} for line in lines], output)


def _agreed(question: str) -> bool:
    from airflow.utils.helpers import ask_yesno

    try:
        return bool(ask_yesno(question, output_fn=say))
    except EOFError:
        fail("There is nobody to ask; --yes deletes without asking. Nothing was deleted.")
