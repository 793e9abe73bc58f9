"""
Partitions of a table that can be loaded again, any number of times and in any way.

The names below are imported when they are first used: a DAG file pays for what it uses alone.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from airflow_safe_ops.definition.checks import NoDuplicates, NullShare, RowCount, SqlCheck, Sum
    from airflow_safe_ops.definition.partition import TimePartition, ValuePartition, WholeTable
    from airflow_safe_ops.definition.publication import AlreadyThere, Found, NotSent, Refused
    from airflow_safe_ops.errors.failure import FailureClass
    from airflow_safe_ops.failures.registry import register_rule
    from airflow_safe_ops.failures.retries import Retries
    from airflow_safe_ops.operators.guard import guard, guarded, partition_claim
    from airflow_safe_ops.operators.load import IdempotentLoadOperator
    from airflow_safe_ops.operators.publish import PublishOnceOperator
    from airflow_safe_ops.publish import publish_once
    from airflow_safe_ops.publish.file import FileReceiver
    from airflow_safe_ops.publish.http import HttpReceiver
    from airflow_safe_ops.retry import SafeRetryPolicy

__version__ = "0.1.0"

__all__ = [
    "AlreadyThere",
    "FailureClass",
    "FileReceiver",
    "Found",
    "HttpReceiver",
    "IdempotentLoadOperator",
    "NoDuplicates",
    "NotSent",
    "NullShare",
    "PublishOnceOperator",
    "Refused",
    "Retries",
    "RowCount",
    "SafeRetryPolicy",
    "SqlCheck",
    "Sum",
    "TimePartition",
    "ValuePartition",
    "WholeTable",
    "__version__",
    "guard",
    "guarded",
    "partition_claim",
    "publish_once",
    "register_rule",
]

_HOMES = {
    "AlreadyThere": "airflow_safe_ops.definition.publication",
    "FailureClass": "airflow_safe_ops.errors.failure",
    "FileReceiver": "airflow_safe_ops.publish.file",
    "Found": "airflow_safe_ops.definition.publication",
    "HttpReceiver": "airflow_safe_ops.publish.http",
    "IdempotentLoadOperator": "airflow_safe_ops.operators.load",
    "NoDuplicates": "airflow_safe_ops.definition.checks",
    "NotSent": "airflow_safe_ops.definition.publication",
    "NullShare": "airflow_safe_ops.definition.checks",
    "PublishOnceOperator": "airflow_safe_ops.operators.publish",
    "Refused": "airflow_safe_ops.definition.publication",
    "Retries": "airflow_safe_ops.failures.retries",
    "RowCount": "airflow_safe_ops.definition.checks",
    "SafeRetryPolicy": "airflow_safe_ops.retry",
    "SqlCheck": "airflow_safe_ops.definition.checks",
    "Sum": "airflow_safe_ops.definition.checks",
    "TimePartition": "airflow_safe_ops.definition.partition",
    "ValuePartition": "airflow_safe_ops.definition.partition",
    "WholeTable": "airflow_safe_ops.definition.partition",
    "guard": "airflow_safe_ops.operators.guard",
    "guarded": "airflow_safe_ops.operators.guard",
    "partition_claim": "airflow_safe_ops.operators.guard",
    "publish_once": "airflow_safe_ops.publish",
    "register_rule": "airflow_safe_ops.failures.registry",
}


def __getattr__(name: str) -> object:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found: object = getattr(import_module(home), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
