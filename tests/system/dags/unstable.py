"""The control of the test on DAG versions: a DAG that differs at each parse."""

from __future__ import annotations

from datetime import UTC, datetime
from uuid import uuid4

from airflow.providers.standard.operators.empty import EmptyOperator
from airflow.sdk import DAG

with DAG("unstable", schedule=None, start_date=datetime(2013, 1, 1, tzinfo=UTC)):
    EmptyOperator(task_id="nothing", doc=str(uuid4()))
