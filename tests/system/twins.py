"""How the DAGs of these tests are made: a default one (intervals of zero length) or its twin with intervals."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

from airflow.sdk import DAG, CronDataIntervalTimetable

from airflow_safe_ops import IdempotentLoadOperator, TimePartition

if TYPE_CHECKING:
    from datetime import date

NEW_YORK = "America/New_York"
EVENTS_SQL = """
    SELECT event_id, event_at, region, amount FROM raw.event
    WHERE event_at >= :partition_start AND event_at < :partition_end
"""
DAYS_SQL = """
    SELECT flight_day, count(*) AS events, sum(amount) AS amount FROM raw.event
    WHERE flight_day >= :partition_start AND flight_day < :partition_end GROUP BY flight_day
"""


def twin(name: str, cron: str, timezone: str, first: date, last: date, *, catchup: bool, intervals: bool) -> None:
    """Build one DAG that loads a table by instants and one by dates, both by the days of New York."""
    zone = ZoneInfo(timezone)
    dag_id = f"{'interval' if intervals else 'trigger'}_{name}"
    with DAG(
        dag_id,
        schedule=CronDataIntervalTimetable(cron, timezone) if intervals else cron,
        start_date=datetime(first.year, first.month, first.day, tzinfo=zone),
        end_date=datetime(last.year, last.month, last.day, 12, tzinfo=zone),
        catchup=catchup,
    ):
        IdempotentLoadOperator(
            task_id="events",
            conn_id="warehouse",
            table=f"mart.{dag_id}_events",
            partition=TimePartition("event_at", grain="day", timezone=NEW_YORK),
            strategy="delete_insert",
            sql=EVENTS_SQL,
        )
        IdempotentLoadOperator(
            task_id="days",
            conn_id="warehouse",
            table=f"mart.{dag_id}_days",
            partition=TimePartition("flight_day", grain="day", timezone=NEW_YORK),
            strategy="delete_insert",
            sql=DAYS_SQL,
        )
