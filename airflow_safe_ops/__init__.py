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
    from airflow_safe_ops.operators.load import IdempotentLoadOperator

__version__ = "0.1.0"

__all__ = [
    "IdempotentLoadOperator",
    "NoDuplicates",
    "NullShare",
    "RowCount",
    "SqlCheck",
    "Sum",
    "TimePartition",
    "ValuePartition",
    "WholeTable",
    "__version__",
]

_HOMES = {
    "IdempotentLoadOperator": "airflow_safe_ops.operators.load",
    "NoDuplicates": "airflow_safe_ops.definition.checks",
    "NullShare": "airflow_safe_ops.definition.checks",
    "RowCount": "airflow_safe_ops.definition.checks",
    "SqlCheck": "airflow_safe_ops.definition.checks",
    "Sum": "airflow_safe_ops.definition.checks",
    "TimePartition": "airflow_safe_ops.definition.partition",
    "ValuePartition": "airflow_safe_ops.definition.partition",
    "WholeTable": "airflow_safe_ops.definition.partition",
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
