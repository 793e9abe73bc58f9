"""
Revenue by day and region, loaded so that a day can be loaded again.

The README and the guide quote this file.
"""

from __future__ import annotations

# [START revenue_daily]
from datetime import timedelta

import pendulum
from airflow.sdk import DAG

from airflow_safe_ops import IdempotentLoadOperator, NullShare, RowCount, TimePartition

NEW_YORK = "America/New_York"
DAY = TimePartition("order_date", grain="day", timezone=NEW_YORK)  # the day that just ended

with DAG(
    dag_id="revenue_daily",
    schedule="@daily",
    start_date=pendulum.datetime(2026, 1, 2, tz=NEW_YORK),
    catchup=False,
    max_active_runs=3,
    default_args={"retries": 5, "retry_delay": timedelta(minutes=5)},
    tags=["example"],
):
    IdempotentLoadOperator(
        task_id="load",
        conn_id="dwh",
        table="mart.revenue_daily",
        partition=DAY,
        strategy="delete_insert",
        unique_key=["order_date", "region"],
        audits=[RowCount(min=1), NullShare("revenue")],
        sql="""
            SELECT order_date, region, SUM(amount) AS revenue
            FROM raw.orders
            WHERE order_date >= :partition_start AND order_date < :partition_end
            GROUP BY order_date, region
        """,
    )
# [END revenue_daily]
