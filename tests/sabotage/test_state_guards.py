"""What a table and the ledger hold after a writer that is not ours, under the guard: one copy, and the truth of it."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

import psycopg

from airflow_safe_ops.definition.guard import GuardedTarget
from airflow_safe_ops.definition.partition import TimePartition
from airflow_safe_ops.errors import SafeOpsError
from airflow_safe_ops.execution.guard import GuardedWrite, guarding
from airflow_safe_ops.ledger.claims import Patience
from airflow_safe_ops.sql.dialect import dialect_for
from tests.sabotage.scene import D1, D2, RUN, Sales

if TYPE_CHECKING:
    from tests.conftest import Database

PERIOD = TimePartition("day", start=D1, end=D2)
KEY = "day=2026-01-02..2026-01-03"


def writes(sales: Sales, *, meanwhile: Callable[[], object] = lambda: None, wait: float = 20.0, **options: Any) -> None:
    """A writer that appends the source's day, whatever comes of it."""
    write = GuardedWrite(
        GuardedTarget("sales", PERIOD, **options),
        RUN,
        partial(psycopg.connect, sales.db.uri),
        dialect_for("postgresql"),
        Patience(wait, 1.0),
    )
    with suppress(SafeOpsError, RuntimeError), guarding(write):
        sales.db.execute("INSERT INTO sales SELECT * FROM raw_sales")
        meanwhile()


def states(sales: Sales) -> list[tuple[Any, ...]]:
    """What the ledger says of the day."""
    return sales.db.execute("SELECT state, row_count FROM safe_ops.safe_ops_partition")


def lose_the_claim(sales: Sales) -> None:
    """End the server process that holds it."""
    sales.db.execute(
        "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity "
        "WHERE application_name LIKE 'safe_ops % guard' AND state LIKE 'idle in%'"
    )


def fails() -> None:
    """The writer fails after it has committed."""
    raise RuntimeError


def test_a_repeat_writes_nothing(db: Database) -> None:
    sales = Sales(db, [(D1, 1, 1)])
    writes(sales)
    writes(sales)
    assert sales.rows() == [(D1, 1, 1)]


def test_a_repeat_after_the_clean_up_writes_one_copy(db: Database) -> None:
    sales = Sales(db, [(D1, 1, 1)], held=[(D2, 9, 9)])
    for _ in range(2):
        writes(sales, on_repeat="clean_up")
    assert sales.rows() == [(D1, 1, 1), (D2, 9, 9)]


def test_one_after_the_other(db: Database) -> None:
    sales = Sales(db, [(D1, 1, 1)])

    def another() -> None:
        """On a thread of its own, as in another process."""
        with ThreadPoolExecutor(1) as other:
            other.submit(lambda: writes(sales, wait=0, on_repeat="allow")).result(30)

    writes(sales, meanwhile=another)
    assert sales.rows() == [(D1, 1, 1)]


def test_a_writer_that_fails_leaves_a_unconfirmed_day(db: Database) -> None:
    sales = Sales(db, [(D1, 1, 1)])
    writes(sales, meanwhile=fails)
    states_then = states(sales)
    assert (states_then, sales.attempts()) == ([("unconfirmed", None)], [("failed", None)])


def test_while_it_writes_the_day_is_unconfirmed(db: Database) -> None:
    sales, seen = Sales(db, [(D1, 1, 1)]), list[Any]()
    writes(sales, meanwhile=lambda: seen.extend([*states(sales), *sales.partitions()]))
    assert (seen, sales.partitions()) == ([("unconfirmed", None), (KEY, None)], [(KEY, 1)])


def test_who_lost_the_claim_has_published_nothing(db: Database) -> None:
    sales = Sales(db, [(D1, 1, 1)])
    writes(sales, meanwhile=lambda: lose_the_claim(sales))
    states_then = states(sales)
    assert (states_then, sales.attempts()) == ([("unconfirmed", None)], [("unfenced", "SO-732")])
