"""Writers that are not ours, under the guard: a plain SQL operator that commits half and then the rest, and others."""

from __future__ import annotations

from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

from airflow.providers.common.sql.operators.sql import SQLExecuteQueryOperator
from airflow.sdk import DAG, task

from airflow_safe_ops import TimePartition, guard, guarded
from airflow_safe_ops.definition.guard import OnRepeat

NEW_YORK = ZoneInfo("America/New_York")
DAY = TimePartition("event_at", grain="day", timezone="America/New_York")
INSERT = """
    INSERT INTO mart.{} SELECT event_id, event_at, region, amount FROM raw.event
    WHERE (event_at AT TIME ZONE 'America/New_York')::date = '2013-03-10' AND event_id % 2 = {}
"""
WAIT = " AND (SELECT pg_sleep(seconds) FROM raw.pace WHERE name = '{}') IS NOT NULL"


def scheduled(dag_id: str) -> DAG:
    """Build one DAG of the year in which the clocks were changed."""
    start, end = (datetime(2013, month, day, tzinfo=NEW_YORK) for month, day in ((1, 1), (12, 31)))
    return DAG(dag_id, schedule="@daily", start_date=start, end_date=end, catchup=False)


def like_dbt(dag_id: str, on_repeat: OnRepeat, retries: int = 0) -> None:
    """Build one DAG whose only task commits half of the day, waits as `raw.pace` says, and commits the rest."""
    table = f"{dag_id}_events"
    with scheduled(dag_id):
        SQLExecuteQueryOperator(
            task_id="load",
            conn_id="warehouse",
            sql=[INSERT.format(table, 0), INSERT.format(table, 1) + WAIT.format(dag_id)],
            autocommit=True,
            retries=retries,
            retry_delay=timedelta(seconds=1),
            **guard("warehouse", f"mart.{table}", DAY, on_repeat=on_repeat),
        )


like_dbt("guarded_clean", "clean_up", retries=1)
like_dbt("guarded_once", "fail")

with scheduled("guarded_others"):
    # A mapped task: each map index guards its own partition; the hooks are those of the one operator.
    SQLExecuteQueryOperator.partial(
        task_id="regions",
        conn_id="warehouse",
        sql="INSERT INTO mart.guarded_regions_events SELECT event_id, event_at, region, amount FROM raw.event "
        "WHERE region = %(region)s",
        **guard("warehouse", "mart.guarded_regions_events", {"region": "{{ task.parameters['region'] }}"}),
    ).expand(parameters=[{"region": "EU"}, {"region": "US"}])

    @task
    @guarded("warehouse", "mart.guarded_function_events", DAY)
    def function() -> None:
        """Write a day as any Python code would."""
        from airflow.providers.postgres.hooks.postgres import PostgresHook

        for half in (0, 1):
            PostgresHook("warehouse").run(INSERT.format("guarded_function_events", half), autocommit=True)

    function()
