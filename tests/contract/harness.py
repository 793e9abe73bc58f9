"""What a contract test needs of a database: make tables, run loads as Airflow runs them, look at everything."""

from __future__ import annotations

from abc import ABC, abstractmethod
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, ClassVar

import pytest
from airflow.providers.common.compat.sdk import AirflowFailException

from airflow_safe_ops import IdempotentLoadOperator, SafeRetryPolicy, TimePartition
from airflow_safe_ops.errors import SafeOpsError
from airflow_safe_ops.retry import HAS_RETRY_POLICY

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from airflow_safe_ops.execution.runner import LoadRunner

Row = tuple[Any, ...]
Context = dict[str, Any]

D0, D1, D2, D3 = (date(2026, 1, n) for n in (1, 2, 3, 4))
DAY = TimePartition("day")

# The target and its source in most tests: a day's sales, keyed by id.
SALES = {"day": "date", "id": "int", "amount": "numeric"}
SALES_SQL = "SELECT day, id, amount FROM raw_sales WHERE day >= :partition_start AND day < :partition_end"


def run(
    start: date | datetime | None,
    end: date | datetime | None = None,
    *,
    logical: datetime | None = None,
    partition: datetime | None = None,
    run_id: str | None = None,
    try_number: int = 1,
    map_index: int = -1,
    dag_id: str = "sales",
    task_id: str = "load",
    code_version: str | None = None,
    clear_number: int = 0,
) -> Context:
    """
    A run's context.

    :param start: start of its data interval; a date is midnight UTC. None: it has no dates but those named.
    :param end: the interval's end; default one day later.
    """
    lo = _utc(start) if start else None
    hi = _utc(end) if end else lo + timedelta(days=1) if lo else None
    logical = logical or lo
    ti = SimpleNamespace(
        dag_id=dag_id,
        task_id=task_id,
        map_index=map_index,
        try_number=try_number,
        bundle_instance=SimpleNamespace(name="dags", version=code_version),
    )
    dag_run = SimpleNamespace(
        run_id=run_id or f"scheduled__{(logical or datetime.now(UTC)).isoformat()}",
        run_type="scheduled",
        clear_number=clear_number,
        logical_date=logical,
        data_interval_start=lo,
        data_interval_end=hi,
        partition_date=partition,
        triggering_user_name="ops",
    )
    return {"ti": ti, "dag_run": dag_run, "run_id": dag_run.run_id}


def _utc(moment: date | datetime) -> datetime:
    return moment if isinstance(moment, datetime) else datetime.combine(moment, time(), UTC)


def ordered(rows: Iterable[Row]) -> list[Row]:
    """Rows in an order of their own, NULLs first."""
    return sorted(map(tuple, rows), key=lambda row: tuple((v is not None, str(type(v)), v) for v in row))


class Warehouse(ABC):
    """
    One database as the contract sees it. A dialect's subclass says how it is done there.

    Every test makes its own tables. The tests of a module share one database, which `reset` empties before each,
    so a test passes twice in a row on one database.
    """

    conn_id: ClassVar[str] = "warehouse"
    # How the dialect writes date, int, bigint, text, numeric, float, bool, timestamp, timestamptz.
    types: ClassVar[Mapping[str, str]]

    # --- what a dialect supplies ---------------------------------------------------------------------------

    @abstractmethod
    def reset(self) -> None:
        """No tables but the ledger's, and these hold nothing."""

    @abstractmethod
    def execute(self, sql: str) -> list[Row]:
        """Run and commit SQL that is not part of a load."""

    @abstractmethod
    def quote(self, name: str) -> str:
        """One identifier."""

    @abstractmethod
    def in_schema(self, schema: str, table: str) -> str:
        """Make a schema if need be; the name of a table in it, as SQL writes it. Both unquoted."""

    @abstractmethod
    def create(
        self, table: str, columns: Mapping[str, str], rows: Iterable[Sequence[Any]] = (), *, key: Sequence[str] = ()
    ) -> str:
        """
        A new table with these rows; an older one of that name is gone.

        :param table: its name as SQL writes it.
        :param columns: unquoted names, and types: a word of `types` or the dialect's own.
        :param key: a primary key.
        """

    @abstractmethod
    def insert(self, table: str, rows: Iterable[Sequence[Any]]) -> None:
        """Rows in the order of the table's columns."""

    @abstractmethod
    def snapshot(self) -> dict[str, Any]:
        """Every table that is not the ledger's, with its columns and rows."""

    @abstractmethod
    def ledger(self, table: str, columns: str, rest: str = "") -> list[Row]:
        """
        Rows of the ledger; none where there is no ledger.

        :param table: `attempt`, `partition`, `claim`, `check`.
        :param rest: what follows FROM.
        """

    @abstractmethod
    def lose_ledger(self) -> None:
        """The ledger is gone, with its schema."""

    @abstractmethod
    def backup_ledger(self) -> Any:
        """What `restore_ledger` takes: the ledger as it is now."""

    @abstractmethod
    def restore_ledger(self, backup: Any) -> None:
        """The ledger as it was; the tables of the warehouse stay as they are."""

    @abstractmethod
    def another_writer(self, sql: str, timeout: float = 0.5) -> bool:
        """Run SQL on another connection; False if it had to wait longer than that for a lock."""

    # --- what follows from it ------------------------------------------------------------------------------

    def rows(self, table: str, columns: str = "*", where: str = "") -> list[Row]:
        """A table's rows, ordered."""
        return ordered(self.execute(f"SELECT {columns} FROM {table} {where}"))

    def sales(self, source: Iterable[Sequence[Any]] = (), *, held: Iterable[Sequence[Any]] = ()) -> None:
        """A source `raw_sales` and a target `sales`, which may hold rows that no ledger knows."""
        self.create("raw_sales", SALES, source)
        self.create("sales", SALES, held)

    def source(self, *rows: Sequence[Any]) -> None:
        """Other rows in `raw_sales`."""
        self.execute("DELETE FROM raw_sales")
        self.insert("raw_sales", rows)

    def operator(self, **options: Any) -> IdempotentLoadOperator:
        """The operator of a test: the day's sales unless it says otherwise."""
        given = {"task_id": "load", "conn_id": self.conn_id, "table": "sales", "sql": SALES_SQL, "partition": DAY}
        return IdempotentLoadOperator(**{**given, **options})

    def load(self, context: Context | date | None = None, /, **options: Any) -> dict[str, Any]:
        """One load; the run is that of a day, D1 if none is named."""
        summary = self.operator(**options).execute(_context(context))
        assert summary is not None
        assert self.claims() == []
        return summary

    def load_twice(
        self, context: Context | date | None = None, /, **options: Any
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """The same load twice: the second changes no row and leaves the ledger's partition as it was."""
        first = self.load(context, **options)
        tables, partitions = self.snapshot(), self.partitions()
        second = self.load(context, **options)
        assert self.snapshot() == tables
        assert self.partitions() == partitions
        return first, second

    def refused(self, code: str, context: Context | date | None = None, /, **options: Any) -> SafeOpsError:
        """
        A load that is refused with this code and writes nothing: all tables are as they were, nothing is
        published, no claim is left. The policy fails what no retry can help.
        """
        before = self.snapshot(), self.published(), self.partitions()
        error = raised(lambda: self.operator(**options).execute(_context(context)))
        assert error.code == code, str(error)
        assert (self.snapshot(), self.published(), self.partitions()) == before
        assert self.claims() == []
        assert self.ledger("attempt", "attempt_id", "WHERE state = 'started'") == []
        return error

    def runner(self, context: Context | date | None = None, /, **options: Any) -> LoadRunner:
        """The runner of one load, so that a test can look on between its steps."""
        return self.operator(**options).runner(_context(context))

    def published(self) -> list[Row]:
        """Attempts that published, in their order."""
        return self.ledger("attempt", "partition_key, rows_after", "WHERE state = 'published' ORDER BY started_at")

    def partitions(self) -> list[Row]:
        """What the ledger says each partition holds."""
        return ordered(self.ledger("partition", "partition_key, state, row_count, checksum, checksum_of"))

    def states(self) -> list[str]:
        """The states of all attempts, in their order."""
        return [state for (state,) in self.ledger("attempt", "state", "ORDER BY started_at")]

    def claims(self) -> list[Row]:
        """The claims that are left."""
        return self.ledger("claim", "owner")


def raised(work: Callable[[], object]) -> SafeOpsError:
    """The package's error, whichever way Airflow is told; the way must fit the error."""
    with pytest.raises((AirflowFailException, SafeOpsError)) as caught:
        work()
    if isinstance(caught.value, SafeOpsError):
        if HAS_RETRY_POLICY and any(entry.name == "execute" for entry in caught.traceback):
            action = SafeRetryPolicy().evaluate(caught.value, 1, 9).action.value
            assert not caught.value.terminal or action == "fail", "terminal errors must not be retried"
            assert caught.value.terminal or caught.value.asks_cause or action == "retry", "others must be"
        return caught.value
    in_load = any(str(entry.path).endswith("operators/load.py") for entry in caught.traceback)
    assert not (HAS_RETRY_POLICY and in_load), "the retry policy must see the error itself"
    error = caught.value.__cause__
    assert isinstance(error, SafeOpsError)
    assert error.terminal, "transient errors must be retried"
    return error


def _context(given: Context | date | None) -> Context:
    return given if isinstance(given, dict) else run(given or D1)


def sale(day: date, number: int, amount: object) -> Row:
    """One row of sales."""
    return day, number, Decimal(str(amount))
