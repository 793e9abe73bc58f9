"""
Claim lines that arrive late and are corrected: merged by key, the last four days in each run.

The guide quotes this file.
"""

from __future__ import annotations

from datetime import timedelta

import pendulum
from airflow.sdk import DAG

from airflow_safe_ops import IdempotentLoadOperator, TimePartition

with DAG(
    dag_id="claims_daily",
    schedule="@daily",
    start_date=pendulum.datetime(2026, 1, 2, tz="UTC"),
    catchup=False,
    default_args={"retries": 5, "retry_delay": timedelta(minutes=5)},
    tags=["example"],
):
    # [START claims_daily]
    IdempotentLoadOperator(
        task_id="claims",
        conn_id="dwh",
        table="silver.claims",
        partition=TimePartition("claim_date", grain="day", lookback=3),
        strategy="merge",
        unique_key=["claim_id", "line_no"],
        sequence_by="updated_at",
        on_duplicates="keep_latest",
        on_key_moved="move",
        not_matched_by_source="delete",
        sql="""
            SELECT claim_id, line_no, claim_date, amount, updated_at
            FROM raw.claims
            WHERE claim_date >= :partition_start AND claim_date < :partition_end
        """,
    )
    # [END claims_daily]
