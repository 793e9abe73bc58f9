"""
A day of flights, loaded so that it can be loaded again.

The demo runs this DAG beside its ancestor in ``incidents/flights_daily_append.py``: same source, same events.
"""

from __future__ import annotations

from datetime import timedelta

import pendulum
from airflow.sdk import DAG

from airflow_safe_ops import IdempotentLoadOperator, TimePartition

# [START flights_daily]
NEW_YORK = "America/New_York"
DAY = TimePartition("flight_date", grain="day", timezone=NEW_YORK)  # the day that just ended

with DAG(
    dag_id="flights_daily",
    schedule="@daily",
    start_date=pendulum.datetime(2013, 1, 2, tz=NEW_YORK),
    catchup=False,
    max_active_runs=3,
    default_args={"retries": 2, "retry_delay": timedelta(minutes=1)},
    tags=["example", "flights"],
):
    IdempotentLoadOperator(
        task_id="load",
        conn_id="warehouse",
        table="mart.flights_daily",
        partition=DAY,
        strategy="delete_insert",
        unique_key=["flight_date", "carrier", "flight", "origin", "sched_dep_time"],
        sql="""
            SELECT flight_date, carrier, flight, origin, sched_dep_time, dest, tailnum, dep_delay, arr_delay, distance
            FROM raw.flights
            WHERE flight_date >= :partition_start AND flight_date < :partition_end
        """,
    )
# [END flights_daily]
