"""
What the state tests are made of.

They run loads as Airflow does, whatever these report, and then look at nothing but the database: a broken package
may well refuse, fail or report success; what counts is what it left behind.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import date, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

import psycopg

from airflow_safe_ops.definition.identity import RunIdentity
from airflow_safe_ops.definition.load import Load
from airflow_safe_ops.definition.partition import TimePartition
from airflow_safe_ops.errors import SafeOpsError
from airflow_safe_ops.execution.runner import LoadRunner
from airflow_safe_ops.ledger.claims import Patience
from airflow_safe_ops.sql.dialect import dialect_for
from tests.crash.harness import Child, eventually, history

if TYPE_CHECKING:
    from tests.conftest import Database

Observer = Callable[[str, str], None]

D0, D1, D2 = (date(2026, 1, n) for n in (1, 2, 3))
RUN = RunIdentity(dag_id="state", task_id="load", run_id="test")
SALES_SQL = "SELECT day, id, amount FROM raw_sales WHERE day >= :partition_start AND day < :partition_end"


def at(point: str, do: Callable[[], object]) -> Observer:
    """Do something when a load comes to a point such as ``target.insert:after``."""

    def observe(step: str, when: str) -> None:
        if f"{step}:{when}" == point:
            do()

    return observe


def tried(
    uri: str,
    load: Load,
    *,
    run: RunIdentity = RUN,
    observe: Observer = lambda _step, _when: None,
    lock_timeout: float = 20.0,
    grace: float = 1.0,
    ledger: str = "safe_ops",
) -> bool:
    """One try of a load, which may be refused; whether it reported success. A fault of Python is not swallowed."""
    runner = LoadRunner(
        load=load,
        run=run,
        connect=partial(psycopg.connect, uri),
        dialect=dialect_for("postgresql", ledger),
        patience=Patience(lock_timeout, grace),
        observe=observe,
    )
    try:
        runner.execute()
    except SafeOpsError:
        return False
    return True


def over(*children: Child) -> None:
    """Let them go on to their ends; whether they publish or are refused is not asked."""
    with ThreadPoolExecutor(len(children)) as waiting:
        for outcome in waiting.map(lambda child: child.outcome(60), children):
            if outcome.code == "-":
                raise RuntimeError(outcome.error)


def waits_or_ends(child: Child) -> None:
    """Until it waits in the server for somebody, or is over because it waited for nobody."""
    eventually(lambda: child.ended() or child.is_blocked(), 20)


@dataclass
class Sales:
    """
    A source ``raw_sales`` and a target ``sales`` by day, without any index.

    :param source: rows of day, id and amount.
    :param held: rows that the target has from the beginning.
    """

    db: Database
    source: Iterable[tuple[Any, ...]] = ()
    held: Iterable[tuple[Any, ...]] = ()

    def __post_init__(self) -> None:
        self.db.execute(
            "CREATE TABLE raw_sales (day date, id int, amount numeric); CREATE TABLE sales (LIKE raw_sales)"
        )
        self.becomes(*self.source)
        self._insert("sales", self.held)

    def becomes(self, *rows: tuple[Any, ...]) -> None:
        """The source holds other rows."""
        self.db.execute("DELETE FROM raw_sales")
        self._insert("raw_sales", rows)

    def tried(
        self, start: date = D1, *, days: int = 1, observe: Observer = lambda _step, _when: None, **options: Any
    ) -> None:
        """Try a load of some days, whatever comes of it."""
        period = TimePartition("day", start=start, end=start + timedelta(days=days))
        tried(
            self.db.uri, Load(**{"table": "sales", "sql": SALES_SQL, "partition": period, **options}), observe=observe
        )

    def rows(self) -> list[tuple[Any, ...]]:
        """What the target holds."""
        return self.db.execute("SELECT day, id, amount::int FROM sales ORDER BY day, id, amount")

    def attempts(self) -> list[tuple[str, str | None]]:
        """How each attempt ended, as the ledger tells it."""
        return [(a["outcome"], a["error_code"]) for a in history(self.db.execute, '"public"."sales"')]

    def partitions(self) -> list[tuple[Any, ...]]:
        """What the ledger says each partition holds."""
        return self.db.execute("SELECT partition_key, row_count FROM safe_ops.safe_ops_partition ORDER BY 1")

    def _insert(self, table: str, rows: Iterable[tuple[Any, ...]]) -> None:
        for row in rows:
            self.db.execute(f"INSERT INTO {table} VALUES (%s, %s, %s)", row)
