"""
A day's revenue, reported to a partner's API once, however often the task runs.

Needs the connections ``dwh``, which has the ledger, and ``partner`` (HTTP). The guide quotes this file.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pendulum
from airflow.sdk import DAG, task

from airflow_safe_ops import HttpReceiver, PublishOnceOperator

# [START partner_report]
DAY = "{{ macros.ds_add(ds, -1) }}"  # the day that just ended


@task
def report(day: str) -> dict[str, Any]:
    """What the partner is told: small, and the same each time as long as the day's rows are."""
    from airflow.sdk import BaseHook

    sql = "SELECT count(*), sum(revenue)::text FROM mart.revenue_daily WHERE order_date = %s"
    rows, revenue = BaseHook.get_hook("dwh").get_first(sql, parameters=(day,))
    return {"day": day, "rows": rows, "revenue": revenue}


with DAG(
    dag_id="partner_report",
    schedule="@daily",
    start_date=pendulum.datetime(2026, 1, 2, tz="UTC"),
    catchup=False,
    default_args={"retries": 3, "retry_delay": timedelta(minutes=5)},
    tags=["example"],
):
    PublishOnceOperator(
        task_id="send",
        conn_id="dwh",  # has the ledger
        key=f"revenue/{DAY}",  # what all runs for one day have in common
        intent=report(DAY),
        to=HttpReceiver(
            http_conn_id="partner",
            url="/reports/{key}",
            lookup_url="/reports/{key}",
            idempotent=timedelta(hours=24),  # how long the partner keeps an Idempotency-Key
        ),
        skip_run_types=("backfill",),  # the partner wants no news of old days
    )
# [END partner_report]
