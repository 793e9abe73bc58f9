"""What tests of the guard share: a dbt-like writer, and a look at what it left."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import date
from typing import TYPE_CHECKING, Any

import pytest
from airflow.providers.common.sql.operators.sql import SQLExecuteQueryOperator
from airflow.sdk import BaseOperator

from airflow_safe_ops.errors import (
    SafeOpsError,
)
from airflow_safe_ops.operators.guard import guard
from tests.contract.harness import D1, DAY, Context, raised, run

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.contract.postgres import PostgresWarehouse

D1_KEY = "day=2026-01-02..2026-01-03"
APPEND = "INSERT INTO sales SELECT * FROM raw_sales WHERE day = '{{ data_interval_start | ds }}'"
TARGET = ("warehouse", "sales", DAY)


def task_run(day: date = D1, **facts: Any) -> Context:
    """The context of one try, as an operator's hooks get it."""
    return {**run(day, **facts), "task": BaseOperator(task_id="dbt")}


def perform(day: date = D1, *, sql: str = APPEND, try_number: int = 1, **options: Any) -> None:
    """A dbt-like task: a plain SQL operator with the guard's arguments, driven as Airflow's task runner drives it."""
    sql = sql.replace("{{ data_interval_start | ds }}", day.isoformat())
    dbt: Any = SQLExecuteQueryOperator(task_id="dbt", conn_id="warehouse", sql=sql, **guard(*TARGET, **options))
    context: Any = {**run(day, try_number=try_number), "task": dbt}
    try:
        dbt._pre_execute_hook(context)
        dbt._post_execute_hook(context, dbt.execute(context))
    except Exception as error:
        for callback in dbt.on_failure_callback:
            callback({**context, "exception": error})
        raise


def once(warehouse: PostgresWarehouse, day: date = D1) -> bool:
    """Whether the day stands there as one clean run leaves it, and nobody holds it."""
    where = f"WHERE day = '{day}'"
    return warehouse.rows("sales", where=where) == warehouse.rows("raw_sales", where=where) and not warehouse.claims()


def state(warehouse: PostgresWarehouse, key: str = D1_KEY) -> list[tuple[Any, ...]]:
    return warehouse.ledger("partition", "state, row_count", f"WHERE partition_key = '{key}'")


def lose_the_claim(warehouse: PostgresWarehouse) -> None:
    """End the server process that holds a guard's claim."""
    held = "application_name LIKE 'safe_ops % guard' AND state LIKE 'idle in%'"
    ended = warehouse.execute(f"SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE {held}")
    assert ended == [(True,)]


@contextmanager
def watched(monkeypatch: pytest.MonkeyPatch, every: float) -> Iterator[None]:
    """The claim is asked for so often, in seconds."""
    with monkeypatch.context() as patched:
        patched.setattr("airflow_safe_ops.execution.held.EVERY", every)
        yield


def elsewhere(work: Callable[[], object]) -> SafeOpsError:
    """What is refused on another thread, as in another process: one's own guard would be told from another's."""
    with ThreadPoolExecutor(1) as other:
        return raised(lambda: other.submit(work).result(30))
