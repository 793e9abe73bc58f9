"""The database of a history: its source, its targets, the processes that load, and what the ledger says of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from itertools import count
from typing import TYPE_CHECKING, Any

from airflow_safe_ops.definition.identity import RunIdentity
from airflow_safe_ops.definition.load import Load
from airflow_safe_ops.definition.partition import Partition, TimePartition, WholeTable
from airflow_safe_ops.execution.record import Recorder
from airflow_safe_ops.execution.session import Session
from airflow_safe_ops.ledger.claims import Patience
from airflow_safe_ops.ledger.migrations import init_ledger
from airflow_safe_ops.sql.dialect import dialect_for
from tests.crash.changes import BEGINNING, Change, changed
from tests.crash.days import Period
from tests.crash.harness import PATIENCE, Child, Job, Outcome, connector, eventually, history, run_here
from tests.crash.oracle import COLUMNS, Ask, Row, Table, values

if TYPE_CHECKING:
    from tests.conftest import Database

GRACE = 0.2
DEFINITION = "(day date, id numeric, amount numeric, note text, seq int)"
TEXTS = ", ".join(f"{name}::text" for name in COLUMNS)
WINDOWS = {"exact": "", "nulls": " OR day IS NULL", "closed": " OR day = :partition_end"}

_numbers = count(1)


@dataclass(frozen=True)
class Task:
    """
    A load of one of the targets.

    :param lookback: how many days before its own it loads too.
    """

    ask: Ask
    target: int = 0
    driver: str = "psycopg"
    exclusive: bool = False
    lookback: int = 0


@dataclass
class Target:
    """
    A target, what the oracle says of it, and how loads on it ended.

    :param dead: claims of processes that died, by the process; gone when an overlapping load has met them.
    """

    name: str
    table: Table
    attempts: Counter[str] = field(default_factory=Counter)
    dead: dict[str, Period] = field(default_factory=dict)

    @property
    def identity(self) -> str:
        """Its name in the ledger."""
        return f'"public"."{self.name}"'

    def met(self, periods: Sequence[Period]) -> None:
        """Loads of these periods came: dead claims that were in their way are gone."""
        self.dead = {name: p for name, p in self.dead.items() if not any(map(p.overlaps, periods))}


def partition_of(period: Period, lookback: int = 0) -> Partition:
    """A period as an author declares it."""
    if period.is_all:
        return WholeTable()
    return TimePartition("day", start=period.first, end=period.end, lookback=lookback)


class World:
    """
    One source and some targets, in tables of their own.

    :param indexes: the columns of each target's unique index; none where they are empty.
    """

    def __init__(self, db: Database, indexes: Sequence[tuple[str, ...]]) -> None:
        self.db = db
        self.number = next(_numbers)
        self.name = f"source_{self.number}"
        self.source = BEGINNING
        self.targets = [Target(f"target_{self.number}_{n}", Table(index)) for n, index in enumerate(indexes)]
        self._connection = db.connect()
        self._has_ledger = False
        self._sql(f"CREATE TABLE {self.name} {DEFINITION}")
        self._write(self.name, self.source)
        for target in self.targets:
            self._sql(f"CREATE TABLE {target.name} {DEFINITION}")
            if target.table.index:
                self._sql(f"CREATE UNIQUE INDEX ON {target.name} ({', '.join(target.table.index)})")

    def close(self) -> None:
        """Done with it."""
        self._connection.close()

    # --- what others do -----------------------------------------------------------------------------------------

    def change(self, changes: Iterable[Change]) -> None:
        """Change the source."""
        before = self.source
        for change in changes:
            self.source = changed(self.source, change)
        if self.source != before:
            with self._connection.transaction():
                self._sql(f"DELETE FROM {self.name}")
                self._write(self.name, self.source)

    def write_by_hand(self, number: int, rows: Iterable[Row]) -> None:
        """Write into a target what its index lets in."""
        target = self.targets[number]
        for row in rows:
            index = target.table.index
            key = values(row, index)
            if not index or None in key or key not in {values(old, index) for old in target.table.rows}:
                self._write(target.name, [row])
                target.table = replace(target.table, rows=(*target.table.rows, row))

    # --- loads --------------------------------------------------------------------------------------------------

    def load(self, task: Task) -> Outcome:
        """Load in this process."""
        return run_here(self._job(task, "here"))[0]

    def child(self, task: Task, *pauses: str) -> Child:
        """Load in a process of its own."""
        return Child(self._job(task, f"child{next(_numbers)}", *pauses))

    def beside(self, task: Task) -> Child:
        """Load in one more process, until it waits for somebody or is through."""
        child = self.child(task)
        assert eventually(lambda: child.ended() or child.is_blocked(), PATIENCE), "it neither waits nor ends"
        return child

    def bury(self, child: Child) -> tuple[str, str]:
        """Kill a process and wait until the server knows; what the ledger says of its attempt."""
        child.kill()
        with suppress(ConnectionError):
            while child.until_anywhere(0):  # its last words
                child.at = ""
        name = child.job.name
        busy = "SELECT 1 FROM pg_stat_activity WHERE state <> 'idle' AND (pid = ANY (%s) OR application_name = %s)"
        assert eventually(lambda: not self._sql(busy, [child.backends, f"safe_ops crash.{name}"]), PATIENCE)
        if not self.has_ledger():
            return "", ""
        found = self._sql(
            "SELECT state, coalesce(error_code, '') FROM safe_ops.safe_ops_attempt WHERE task_id = %s", [name]
        )
        assert len(found) <= 1
        return (found[0][0], found[0][1]) if found else ("", "")

    @contextmanager
    def recorder(self, target: Target) -> Iterator[Recorder]:
        """For what a person tells the ledger."""
        connect = connector(self.db.uri, "psycopg")
        session = Session(connect, dialect_for("postgresql"), label="safe_ops", comment="", lock=10.0)
        run = RunIdentity(dag_id="crash", task_id="person", run_id="test")
        session.open()
        init_ledger(session, session.dialect.ledger, session.dialect.sqlstate)
        try:
            yield Recorder(session, run, target.name, Patience(10.0, GRACE))
        finally:
            session.close()

    def _job(self, task: Task, name: str, *pauses: str) -> Job:
        ask = task.ask
        given: dict[str, Any] = {
            name: getattr(ask, name)
            for name in ("strategy", "on_key_moved", "on_empty", "on_duplicates", "on_unledgered", "on_changed")
        }
        where = f" WHERE day >= :partition_start AND day < :partition_end{WINDOWS[ask.window]}"
        load = Load(
            table=self.targets[task.target].name,
            sql=f"SELECT {', '.join(COLUMNS)} FROM {self.name}{'' if ask.period.is_all else where}",
            partition=partition_of(ask.period, task.lookback),
            unique_key=ask.key or None,
            sequence_by="seq",
            not_matched_by_source=ask.others,  # type: ignore[arg-type]
            exclusive=task.exclusive,
            **given,
        )
        return Job(self.db.uri, (load,), task.driver, name, grace=GRACE, pauses=frozenset(pauses))

    # --- looking ------------------------------------------------------------------------------------------------

    def has_ledger(self) -> bool:
        """Whether any load has made the ledger."""
        self._has_ledger = self._has_ledger or bool(
            self._sql("SELECT 1 FROM pg_class WHERE relname = 'safe_ops_check'")
        )
        return self._has_ledger

    def rows(self, target: Target) -> Counter[Row]:
        """What a target holds."""
        return Counter(self._sql(f"SELECT {TEXTS} FROM {target.name}"))

    def records(self, target: Target) -> dict[str, tuple[str, int | None]]:
        """The ledger's partitions, each with its state and its rows; None where these are not known."""
        return {
            key: (state, rows)
            for key, state, rows in self._ledger(target, "partition_key, state, row_count", "partition")
        }

    def claims(self, target: Target) -> set[str]:
        """Whose claims are there."""
        return {row[0].split()[0].partition(".")[2] for row in self._ledger(target, "owner", "claim")}

    def attempts(self, target: Target) -> Counter[str]:
        """How the loads ended, as the ledger tells it; one that died is lost as soon as its transaction is."""
        if not self.has_ledger():
            return Counter()
        tries = history(self._sql, target.identity, grace=0.0)
        return Counter(f"{a['outcome']} {a['error_code'] or ''}".strip() for a in tries)

    def stages(self) -> list[tuple[Any, ...]]:
        """Temporary tables that loads have left."""
        return self._sql("SELECT relname FROM pg_class WHERE relpersistence = 't' AND relname LIKE 'safe_ops%%'", [])

    def _ledger(self, target: Target, what: str, table: str) -> list[tuple[Any, ...]]:
        if not self.has_ledger():
            return []
        return self._sql(
            f"SELECT {what} FROM safe_ops.safe_ops_{table} JOIN safe_ops.safe_ops_target USING (target_id) "
            "WHERE identity = %s",
            [target.identity],
        )

    def _sql(self, sql: str, values: Any = None) -> list[tuple[Any, ...]]:
        cursor = self._connection.execute(sql.encode(), values)
        return cursor.fetchall() if cursor.description else []

    def _write(self, table: str, rows: Iterable[Row]) -> None:
        columns = list(zip(*rows, strict=True)) or [()] * len(COLUMNS)
        self._sql(
            f"INSERT INTO {table} "
            "SELECT * FROM unnest(%s::date[], %s::numeric[], %s::numeric[], %s::text[], %s::int[])",
            [list(column) for column in columns],
        )
