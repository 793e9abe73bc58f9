"""A source, a target, its twin that was loaded once and cleanly, and what must be true of them afterwards."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date, timedelta
from typing import TYPE_CHECKING, Any, ClassVar, cast

from airflow_safe_ops.definition.checks import RowCount
from airflow_safe_ops.definition.load import Load, Strategy
from airflow_safe_ops.definition.partition import Partition, TimePartition, WholeTable
from tests.crash.harness import Job, eventually, history, run_here

if TYPE_CHECKING:
    from tests.conftest import Database

FIRST = date(2026, 1, 1)
ROWS = 5
COLUMNS = "day, id, amount, note"
OVER = ("published", "failed", "lost")
_COLUMNS = "(day date, id int, amount numeric(12, 2), note text{key})"


@dataclass(frozen=True)
class Way:
    """
    How a strategy is tried.

    :param source_changes: whether the source may be another one when a partition is loaded again.
    :param options: of its load, beside the key.
    """

    source_changes: bool
    options: Mapping[str, Any] = field(default_factory=dict)


STRATEGIES = {
    "delete_insert": Way(True, {"on_unledgered": "replace"}),
    "merge": Way(True, {"on_unledgered": "replace", "not_matched_by_source": "delete"}),
    "append_once": Way(False),
}


def day(number: int = 0) -> TimePartition:
    """One day, counted from the first."""
    start = FIRST + timedelta(days=number)
    return TimePartition("day", start=start, end=start + timedelta(days=1))


def month() -> TimePartition:
    """The month of the first day."""
    return TimePartition("day", grain="month", start=FIRST, end=date(2026, 2, 1))


class Desk:
    """A database by one connection, for whoever asks it again and again."""

    def __init__(self, db: Database) -> None:
        self._db = db
        self._connection = db.connect()

    def execute(self, sql: str, params: Any = None) -> list[tuple[Any, ...]]:
        """Run and commit one statement, or several without parameters; the rows of the last one, if any."""
        cursor = self._connection.execute(sql.encode(), params)
        while cursor.nextset():
            pass
        return cursor.fetchall() if cursor.description else []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._db, name)


@dataclass
class Shop:
    """
    One source and one target in a database; several may stand beside each other.

    :param tag: part of the tables' names.
    """

    db: Database
    tag: str = "one"
    days: int = 31
    versions: int = field(default=0)
    key: ClassVar[str] = ", PRIMARY KEY (day, id)"

    def __post_init__(self) -> None:
        self.db.execute(
            f"CREATE TABLE {self.source} {_COLUMNS.format(key='')};"
            f"CREATE TABLE {self.target} {_COLUMNS.format(key=self.key)};"
            f"CREATE TABLE {self.twin} {_COLUMNS.format(key=self.key)}"
        )
        self.new_version()

    @property
    def source(self) -> str:
        """The table that the loads read."""
        return f"source_{self.tag}"

    @property
    def target(self) -> str:
        """The table that they write."""
        return f"target_{self.tag}"

    @property
    def twin(self) -> str:
        """The table that one clean run writes."""
        return f"twin_{self.tag}"

    def new_version(self) -> None:
        """The source changes: of each day one row stays, one is new, one is gone, the others differ."""
        self.versions += 1
        v = self.versions
        self.db.execute(
            f"DELETE FROM {self.source}; INSERT INTO {self.source} SELECT DATE '{FIRST}' + d, "
            f"i + CASE i WHEN {ROWS - 1} THEN {v} ELSE 0 END, CASE i WHEN 0 THEN 1 ELSE {v} * 100 + i END, "
            f"nullif('v{v} ' || i, 'v{v} 0') "
            f"FROM generate_series(0, {self.days - 1}) AS d, generate_series(0, {ROWS - 1}) AS i"
        )

    def begin(self, strategy: str) -> None:
        """What is loaded before the load that counts."""
        self.run(self.load(strategy=strategy))

    def goes_on(self, strategy: str) -> None:
        """What happens to the source between two loads by the strategy."""
        if STRATEGIES[strategy].source_changes:
            self.new_version()

    def ready(self, strategy: str) -> None:
        """Make a ledger, and something that the strategy has to write: over an older version, where it may."""
        if STRATEGIES[strategy].source_changes:
            self.begin(strategy)
            self.new_version()
        else:
            self.run(self.load(table=self.twin))

    def load(
        self,
        partition: Partition | None = None,
        strategy: str = "delete_insert",
        *,
        table: str | None = None,
        pause: str = "",
        **more: Any,
    ) -> Load:
        """
        A load of the source into the target.

        :param pause: an SQL expression that makes the query last.
        """
        where = "" if isinstance(partition, WholeTable) else "WHERE day >= :partition_start AND day < :partition_end"
        waits = f", (SELECT {pause}) AS w" if pause else ""
        given: dict[str, Any] = {"unique_key": ("day", "id"), **STRATEGIES[strategy].options, **more}
        return Load(
            table=table or self.target,
            sql=f"SELECT {COLUMNS} FROM {self.source}{waits} {where}",
            partition=day() if partition is None else partition,
            strategy=cast("Strategy", strategy),
            audits=(RowCount(min=1),),
            post_checks=(RowCount(min=1),),
            **given,
        )

    def job(self, *loads: Load, **more: Any) -> Job:
        """A job on this database."""
        return Job(self.db.uri, loads or (self.load(),), **more)

    def run(self, *loads: Load, **more: Any) -> None:
        """Load in this process; it has to succeed."""
        for outcome in run_here(self.job(*loads, **more)):
            assert outcome.published, outcome.error

    def rows(self, table: str | None = None) -> list[tuple[Any, ...]]:
        """What a table holds."""
        return self.db.execute(f"SELECT {COLUMNS} FROM {table or self.target} ORDER BY day, id, amount, note")

    def attempts(self, grace: float = 5.0) -> list[dict[str, Any]]:
        """The ledger's story of the target."""
        return history(self.db.execute, f'"public"."{self.target}"', grace)

    def partitions(self, table: str | None = None) -> list[tuple[Any, ...]]:
        """What the ledger knows of a table's partitions; the attempts' ids apart."""
        return self.db.execute(
            "SELECT p.partition_key, p.state, p.scope, p.row_count, p.checksum, p.checksum_of "
            "FROM safe_ops.safe_ops_partition AS p JOIN safe_ops.safe_ops_target AS t USING (target_id) "
            "WHERE t.identity = %s ORDER BY 1",
            (f'"public"."{table or self.target}"',),
        )

    def publishers(self) -> list[str]:
        """The attempts that published the target's partitions as they stand."""
        rows = self.db.execute(
            "SELECT p.attempt_id::text FROM safe_ops.safe_ops_partition AS p "
            "JOIN safe_ops.safe_ops_target AS t USING (target_id) WHERE t.identity = %s",
            (f'"public"."{self.target}"',),
        )
        return [row[0] for row in rows]

    def claims(self) -> list[tuple[Any, ...]]:
        """Claims on the target that are still there."""
        return self.db.execute(
            "SELECT c.owner, c.held FROM safe_ops.safe_ops_claim AS c "
            "JOIN safe_ops.safe_ops_target AS t USING (target_id) WHERE t.identity = %s",
            (f'"public"."{self.target}"',),
        )

    def wrong(self) -> list[str]:
        """What differs from one clean run of the same load, of whatever the source holds now."""
        found = []
        self.run(self.load(table=self.twin))
        if self.rows() != self.rows(self.twin):
            found.append(f"rows: {self.rows()} instead of {self.rows(self.twin)}")
        if self.partitions() != self.partitions(self.twin):
            found.append(f"ledger: {self.partitions()} instead of {self.partitions(self.twin)}")
        return found + self.unsettled()

    def unsettled(self) -> list[str]:
        """What no load may leave behind once it is over and healed."""
        found = []
        if self.claims():
            found.append(f"claims left: {self.claims()}")
        if unfinished := [a for a in self.attempts() if a["outcome"] not in OVER]:
            found.append(f"attempts without an end: {unfinished}")
        published = [a["attempt_id"] for a in self.attempts() if a["outcome"] == "published"]
        if not set(self.publishers()) <= set(published):
            found.append("a partition whose attempt is not published")
        return found


@dataclass
class Heap(Shop):
    """A shop whose table has no unique key: nothing but the loads keeps rows from standing twice."""

    key: ClassVar[str] = ""

    def load(
        self,
        partition: Partition | None = None,
        strategy: str = "delete_insert",
        *,
        table: str | None = None,
        pause: str = "",
        **more: Any,
    ) -> Load:
        """A load that declares no key unless it has to."""
        if strategy != "merge":
            more = {"unique_key": None, **more}
        return super().load(partition, strategy, table=table, pause=pause, **more)


def stages(db: Database) -> list[tuple[Any, ...]]:
    """Temporary tables that loads have left."""
    return db.execute("SELECT relname FROM pg_class WHERE relpersistence = 't' AND relname LIKE 'safe_ops%%'", ())


def no_stage_left(db: Database) -> bool:
    """Whether all stages are gone, at the latest when the server has noticed its client's death."""
    return eventually(lambda: not stages(db))
