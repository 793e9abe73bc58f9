"""DAGs for the tests of the cluster policy, and the policy as a set of settings has it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

import pytest
from airflow.providers.common.sql.operators.sql import SQLExecuteQueryOperator
from airflow.sdk import DAG
from airflow.settings import dag_policy

from airflow_safe_ops import IdempotentLoadOperator, TimePartition
from airflow_safe_ops.compat import ALLOWED_RUN_TYPES, RETRY_POLICY
from airflow_safe_ops.policies import review
from airflow_safe_ops.policies.review import Remark
from airflow_safe_ops.settings import POLICY_RULES

START = datetime(2026, 1, 1, tzinfo=UTC)
needs_run_types = pytest.mark.skipif(not ALLOWED_RUN_TYPES.is_there(), reason=f"needs {ALLOWED_RUN_TYPES}")
needs_retry_policy = pytest.mark.skipif(not RETRY_POLICY.is_there(), reason=f"needs {RETRY_POLICY}")
APPEND = "INSERT INTO mart.orders SELECT * FROM raw.orders"


@contextmanager
def settings(**options: str) -> Iterator[None]:
    """The policy under these options of section safe_ops, in a process that has said nothing yet."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in options.items():
            patch.setenv(f"AIRFLOW__SAFE_OPS__{name.upper()}", value)
        patch.setattr(review, "_said", set())
        review.policy_settings.cache_clear()
        yield
    review.policy_settings.cache_clear()


def only(rule: str, mode: str, **options: str) -> Any:
    """One rule in a mode, and the others off."""
    return settings(**{f"policy_{name}": mode if name == rule else "off" for name in POLICY_RULES}, **options)


def apply(dag: Any) -> list[Remark]:
    """Let Airflow ask its policies for a DAG; what ours said, notes left out."""
    with review.listening() as heard:
        dag_policy(dag)
    return [remark for remark in heard if not remark.is_note]


def notes(dag: Any) -> list[Remark]:
    """What the policy only says to who asks."""
    with review.listening() as heard:
        dag_policy(dag)
    return [remark for remark in heard if remark.is_note]


def dag(dag_id: str = "d", **arguments: Any) -> DAG:
    """A daily DAG without tasks."""
    schedule = arguments.pop("schedule", "@daily")
    return DAG(dag_id, schedule=schedule, **{"start_date": START, **arguments})


def sql_task(sql: Any, task_id: str = "load", **arguments: Any) -> Any:
    """A plain SQL operator."""
    return SQLExecuteQueryOperator(task_id=task_id, conn_id="dwh", sql=sql, **arguments)


def appending(dag_id: str = "d", **arguments: Any) -> DAG:
    """A daily DAG that appends."""
    with dag(dag_id, **arguments) as made:
        sql_task(APPEND)
    return made


def load(**arguments: Any) -> IdempotentLoadOperator:
    """A load of this package."""
    return IdempotentLoadOperator(
        task_id="ours", conn_id="dwh", table="mart.t", sql="SELECT 1", partition=TimePartition("d"), **arguments
    )


def work(**context: Any) -> None:
    """A function that does nothing."""


def run_types(made: Any) -> set[str] | None:
    """The run types that a DAG allows."""
    allowed = getattr(made, "allowed_run_types", None)
    return None if allowed is None else {str(getattr(kind, "value", kind)) for kind in allowed}


def serialized(made: Any) -> dict[str, Any]:
    """What the scheduler is told of a DAG."""
    found: dict[str, Any] = _serialization().to_dict(made)
    return found


def as_the_scheduler_has_it(made: Any) -> Any:
    """A DAG after serialization."""
    return _serialization().from_dict(serialized(made))


def _serialization() -> Any:
    from airflow.serialization import serialized_objects

    name = "DagSerialization" if hasattr(serialized_objects, "DagSerialization") else "SerializedDAG"
    return getattr(serialized_objects, name)
