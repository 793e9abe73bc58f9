"""Tasks that fail in ways of which each wants another end: at once, or again after a stated delay."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from airflow.providers.common.sql.operators.sql import SQLExecuteQueryOperator
from airflow.sdk import DAG

from airflow_safe_ops import IdempotentLoadOperator, Retries, RowCount, SafeRetryPolicy, TimePartition
from tests.system.failing_trigger import DeferredOperator

DELAY = timedelta(seconds=4)
SOON = SafeRetryPolicy(transient=Retries(tries=3, delay=DELAY, growth=1, jitter=0))
EVENTS = """
    SELECT event_id, event_at, region, amount FROM raw.event
    WHERE event_at >= :partition_start AND event_at < :partition_end
      AND (SELECT pg_sleep(coalesce(max(seconds), 0)) FROM raw.pace WHERE name = '{}') IS NOT NULL
"""
AGAIN: dict[str, Any] = {"retries": 3, "retry_delay": timedelta(seconds=1)}


def load(dag_id: str, **options: Any) -> None:
    """One day of events into a target of the DAG's own."""
    given: dict[str, Any] = {
        "conn_id": "warehouse",
        "table": f"mart.{dag_id}_events",
        "partition": TimePartition("event_at", grain="day", timezone="America/New_York"),
        "sql": EVENTS.format(dag_id),
        **AGAIN,
    }
    IdempotentLoadOperator(task_id="load", **{**given, **options})


with DAG("denied", schedule=None):
    load("denied", conn_id="clerk")
    SQLExecuteQueryOperator(
        task_id="query", conn_id="clerk", sql="SELECT * FROM raw.event", retry_policy=SafeRetryPolicy(), **AGAIN
    )

with DAG("ended_backend", schedule=None):
    load("ended_backend", retry_policy=SOON)

with DAG("mismatch", schedule=None):
    load("mismatch", post_checks=[RowCount(min=1_000_000)])

for how in ("denied", "reset"):
    with DAG(f"deferred_{how}", schedule=None):
        DeferredOperator(task_id="wait", how=how, retry_policy=SOON, **AGAIN)
