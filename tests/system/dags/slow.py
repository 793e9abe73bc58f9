"""Loads whose statement lasts as long as the test says: to be killed, marked failed, or out of time."""

from __future__ import annotations

from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

from airflow.sdk import DAG

from airflow_safe_ops import IdempotentLoadOperator, TimePartition

SLOW_SQL = """
    SELECT event_id, event_at, region, amount FROM raw.event
    WHERE event_at >= :partition_start AND event_at < :partition_end
      AND (SELECT pg_sleep(seconds) FROM raw.pace WHERE name = '{}') IS NOT NULL
"""


def slow(dag_id: str, *, retries: int = 0, execution_timeout: timedelta | None = None) -> None:
    """Build one DAG with one load that takes the time of its row in `raw.pace`."""
    with DAG(
        dag_id,
        schedule="@daily",
        start_date=datetime(2013, 1, 1, tzinfo=ZoneInfo("America/New_York")),
        end_date=datetime(2013, 12, 31, tzinfo=ZoneInfo("America/New_York")),
        catchup=False,
    ):
        IdempotentLoadOperator(
            task_id="load",
            conn_id="warehouse",
            table=f"mart.{dag_id}_events",
            partition=TimePartition("event_at", grain="day", timezone="America/New_York"),
            strategy="delete_insert",
            sql=SLOW_SQL.format(dag_id),
            retries=retries,
            retry_delay=timedelta(seconds=1),
            execution_timeout=execution_timeout,
        )


slow("killed", retries=1)
slow("lost_worker", retries=1)
slow("marked_failed")
slow("out_of_time", execution_timeout=timedelta(seconds=10))
