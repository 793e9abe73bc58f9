"""``airflow safe-ops publications list | settle``: what was sent outside the database, and what a person found out."""

from __future__ import annotations

from argparse import Namespace
from typing import Any

from airflow.utils.cli import suppress_logs_and_warning

from airflow_safe_ops.cli.ledger_command import need_ledger, print_lines
from airflow_safe_ops.cli.shell import fail, logged, say, session_of, speaks
from airflow_safe_ops.context import database_of, user_name
from airflow_safe_ops.errors import InvalidArgument
from airflow_safe_ops.ledger import publications
from airflow_safe_ops.report import publication as report
from airflow_safe_ops.settings import load_settings

_NOT_SENT = "intended: the next try sends it, unless a lookup finds it there (drop it there first, or use a new key)"


@suppress_logs_and_warning
@speaks
def list_publications(args: Namespace) -> None:
    """A line a publication."""
    hook, dialect = database_of(args.conn_id, args.schema)
    wanted: dict[str, Any] = {"state": args.state, "receiver": args.receiver, "key": args.key}
    listed = dialect.ledger.publications.listed(**wanted, limit=args.limit or None, grace=load_settings().claim_grace)
    with session_of(hook, dialect, "publications-list") as session, session.transaction() as tx:
        need_ledger(tx, dialect, args.conn_id)
        found = tx.run(listed).named
    lines = [report.publication_line(row) for row in found]
    if args.output in ("json", "yaml"):
        return print_lines(lines, args.output)
    if args.output == "table" and not lines:
        print("The ledger knows no such publication.")
        return None
    print_lines([report.publication_row(line) for line in lines], args.output)
    if args.output == "table":
        for told in report.told(lines):
            print(told)
    if found and found[0]["total"] > len(found):
        say(f"The last {len(found):,} of {found[0]['total']:,} publications; --limit 0 shows all.")
    return None


@logged
@suppress_logs_and_warning
@speaks
def settle(args: Namespace) -> None:
    """Say whether it was sent."""
    if not args.reason.strip():
        raise InvalidArgument("--reason is empty.", fix="Say how you know, for whoever reads the ledger.")
    hook, dialect = database_of(args.conn_id, args.schema)
    sql, receiver = dialect.ledger.publications, args.receiver or ""
    with session_of(hook, dialect, "publications-settle") as session:
        with session.transaction() as tx:
            need_ledger(tx, dialect, args.conn_id)
        session.doing("publications-settle")
        with session.transaction(lock=load_settings().lock_timeout, waits=True) as tx:
            rows = tx.run(sql.lock(receiver, args.key)).named
            if not rows:
                fail(f"The ledger knows no publication {args.key!r} of receiver {receiver!r}.")
            publications.settle(
                tx, sql, receiver, args.key, done=args.settled_as == "done", reason=args.reason, by=user_name()
            )
    state = "done: it is not sent again" if args.settled_as == "done" else _NOT_SENT
    print(f"{args.key!r} was {rows[0]['state']} and is {state}.")
