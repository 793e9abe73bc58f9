"""
A day of flights, appended: what ``flights_daily`` was before its table doubled.

Nothing here is exotic: rows are read and inserted in batches of a hundred, each committed. There is no key, no
delete and no retry, so every further run of a day adds a copy, and a run that dies leaves the batches it committed.
"""

from __future__ import annotations

from typing import Any

import pendulum
from airflow.sdk import DAG, task

NEW_YORK = "America/New_York"
COLUMNS = [
    "flight_date",
    "carrier",
    "flight",
    "origin",
    "sched_dep_time",
    "dest",
    "tailnum",
    "dep_delay",
    "arr_delay",
    "distance",
]

with DAG(
    dag_id="flights_daily_append",
    schedule="@daily",
    start_date=pendulum.datetime(2013, 1, 2, tz=NEW_YORK),
    catchup=False,
    tags=["example", "incident", "flights"],
):

    @task
    def load(**context: Any) -> int:
        """Append the flights of the day before the run."""
        from airflow.providers.postgres.hooks.postgres import PostgresHook

        day = context["logical_date"].in_timezone(NEW_YORK).date().subtract(days=1)
        warehouse = PostgresHook("warehouse")
        rows = warehouse.get_records(
            f"SELECT {', '.join(COLUMNS)} FROM raw.flights WHERE flight_date = %s", parameters=(day,)
        )
        warehouse.insert_rows("mart.flights_daily_append", rows, target_fields=COLUMNS, commit_every=100)
        return len(rows)

    load()
