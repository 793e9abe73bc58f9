"""``airflow safe-ops adopt`` and ``airflow safe-ops ledger invalidate``: what a person tells the ledger."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime

from airflow.utils.cli import suppress_logs_and_warning

from airflow_safe_ops.cli.ledger_command import need_ledger, print_lines
from airflow_safe_ops.cli.shell import fail, logged, say, session_of, speaks
from airflow_safe_ops.context import database_of, user_name
from airflow_safe_ops.definition.grain import Grain
from airflow_safe_ops.definition.identity import RunIdentity
from airflow_safe_ops.definition.notation import partition_from
from airflow_safe_ops.definition.partition import Partition, TimePartition
from airflow_safe_ops.errors import InvalidArgument
from airflow_safe_ops.execution.record import Noted, Recorder
from airflow_safe_ops.ledger.claims import Patience
from airflow_safe_ops.ledger.migrations import init_ledger
from airflow_safe_ops.settings import load_settings

_DRY = "Dry run: nothing was recorded."


@logged
@suppress_logs_and_warning
@speaks
def adopt(args: Namespace) -> None:
    """Record partitions as they stand, without loading them."""
    partitions = _partitions(args.partitions, args.grain)
    with _recorder(args, "adopt") as recorder:
        if not args.dry_run:
            recorder.session.doing("ledger")
            init_ledger(recorder.session, recorder.session.dialect.ledger, recorder.session.dialect.sqlstate)
        noted = recorder.adopt(partitions)
    _print(noted, args)
    known = [one for one in noted if one.outcome not in ("adopted", "empty")]
    if known:
        say(f"{len(known):,} are recorded by loads and stay as they are; ledger invalidate makes them adoptable.")
    if empty := sum(one.outcome == "empty" for one in noted):
        say(f"{empty:,} hold no rows: there is nothing to adopt.")


@logged
@suppress_logs_and_warning
@speaks
def invalidate(args: Namespace) -> None:
    """Say that recorded partitions are not valid any more, and why."""
    if not args.reason.strip():
        raise InvalidArgument("--reason is empty.", fix="Say what was done to the rows, for whoever reads the ledger.")
    with _recorder(args, "invalidate") as recorder:
        with recorder.session.transaction() as tx:
            need_ledger(tx, recorder.session.dialect, args.conn_id)
        noted = recorder.invalidate(_partitions(args.partitions, None), args.source_slice)
    if not noted:
        fail(f"The ledger has no record of {args.table} that lies in {', '.join(args.partitions)}.")
    _print(noted, args)


@contextmanager
def _recorder(args: Namespace, doing: str) -> Iterator[Recorder]:
    settings = load_settings()
    hook, dialect = database_of(args.conn_id, args.schema)
    run = RunIdentity(
        dag_id="safe-ops",
        task_id=doing,
        run_id=f"cli__{datetime.now(UTC).isoformat()}",
        run_type="cli",
        user=user_name(),
        instance=settings.instance,
    )
    patience = Patience(settings.lock_timeout, settings.claim_grace)
    with session_of(hook, dialect, doing) as session:
        yield Recorder(session, run, args.table, patience, args.reason, args.dry_run)


def _partitions(texts: Sequence[str], grain: Grain | None) -> list[Partition]:
    """What was named; ranges cut into grains. A range may reach into the future: nothing is loaded."""
    found: list[Partition] = []
    for text in texts:
        partition = partition_from(text)
        if not isinstance(partition, TimePartition):
            found.append(partition)
            continue
        cut = partition.pieces(grain) if grain else (partition,)
        found += [TimePartition(**{**vars(piece), "allow_open": True}) for piece in cut]
    return found


def _print(noted: Sequence[Noted], args: Namespace) -> None:
    lines = [{"partition": one.partition, "outcome": one.outcome, "rows": one.rows} for one in noted]
    if args.output == "table":
        shown = [{**line, "rows": "" if line["rows"] is None else f"{line['rows']:,}"} for line in lines]
        print_lines(shown, args.output)
    else:
        print_lines(lines, args.output)
    if args.dry_run:
        say(_DRY)
