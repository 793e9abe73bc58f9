"""One file whose DAGs the cluster policy treats in different ways, under the settings of the stack."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from airflow.providers.common.sql.operators.sql import SQLExecuteQueryOperator
from airflow.sdk import DAG

YEAR: dict[str, Any] = {"start_date": datetime(2013, 1, 1, tzinfo=UTC), "end_date": datetime(2013, 12, 31, tzinfo=UTC)}


def append(dag_id: str, **arguments: Any) -> None:
    """Build one daily DAG that appends a row with each run."""
    with DAG(dag_id, schedule="@daily", **{**YEAR, "catchup": False, **arguments}):
        SQLExecuteQueryOperator(
            task_id="append",
            conn_id="warehouse",
            sql=f"INSERT INTO mart.{dag_id}_days SELECT DATE '{{{{ ds }}}}', 1, 1",
        )


append("policy_append")
append("policy_moving", start_date=datetime.now(tz=UTC), end_date=None)
append("policy_repeatable", tags=["safe_ops:repeatable"])
append("policy_exempt", tags=["legacy"])
append("policy_crowd", max_active_runs=50)
