"""
Rows of a partner's files, appended once each: nothing in the table says which rows a second run would replace.

Trigger it with ``{"file": "eu/2026-01-01.csv"}``. The guide quotes this file.
"""

from __future__ import annotations

from datetime import timedelta

import pendulum
from airflow.sdk import DAG, Param

from airflow_safe_ops import IdempotentLoadOperator, RowCount, WholeTable

with DAG(
    dag_id="partner_files",
    schedule=None,
    start_date=pendulum.datetime(2026, 1, 1, tz="UTC"),
    params={"file": Param("eu/2026-01-01.csv", type="string", minLength=1)},
    default_args={"retries": 5, "retry_delay": timedelta(minutes=5)},
    tags=["example"],
):
    # [START partner_files]
    IdempotentLoadOperator(
        task_id="append",
        conn_id="dwh",
        table="events.partner_orders",
        partition=WholeTable(),
        strategy="append_once",
        source_slice="{{ params.file }}",  # what is loaded; a second run of it adds nothing
        source_slice_column="source_file",  # the operator fills it
        unique_key=["partner", "order_no"],
        audits=[RowCount(min=1)],
        sql="""
            SELECT partner, order_no, ordered_at, amount
            FROM landing.partner_orders
            WHERE file_name = :source_slice
        """,
    )
    # [END partner_files]
