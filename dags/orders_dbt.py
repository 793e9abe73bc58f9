"""
A dbt model that appends a day, under a claim: its task can be retried, cleared and backfilled.

dbt commits by itself, so the guard cannot undo it: rows that a killed run left are deleted before the next one starts.
The guide quotes this file.
"""

from __future__ import annotations

import pendulum
from airflow.providers.standard.operators.bash import BashOperator
from airflow.sdk import DAG

from airflow_safe_ops import NoDuplicates, RowCount, SafeRetryPolicy, TimePartition, guard

# [START orders_dbt]
DAY = TimePartition("order_date", grain="day", timezone="America/New_York")

with DAG(
    dag_id="orders_dbt",
    schedule="0 6 * * *",
    start_date=pendulum.datetime(2026, 1, 1, tz="America/New_York"),
    catchup=False,
    default_args={"retries": 5, "retry_policy": SafeRetryPolicy()},
    user_defined_macros={"day": DAY},  # writer and guard take their dates from one place
    tags=["example"],
):
    BashOperator(
        task_id="orders",
        bash_command="dbt run --select orders --vars '{run_date: {{ day.start_of(dag_run) }}}'",
        **guard(
            "dwh",
            "mart.orders",
            DAY,
            on_repeat="clean_up",  # the day's rows are deleted before dbt starts
            post_checks=[RowCount(min=1), NoDuplicates("order_id")],
        ),
    )
# [END orders_dbt]
