"""``delete_insert``: the partition's rows go, the staged rows come, in one transaction."""

from __future__ import annotations

from airflow_safe_ops.plan.model import LoadTask, Statement
from airflow_safe_ops.sql.text import columns, in_scope, scope_binds, stage_name


def delete_partition(task: LoadTask) -> Statement:
    """All rows of the partition."""
    return Statement(f"DELETE FROM {task.table.name} WHERE {in_scope(task.table, task.scope)}", scope_binds(task.scope))


def insert_stage(task: LoadTask) -> Statement:
    """All rows of the stage."""
    names = columns(task.names)
    return Statement(f"INSERT INTO {task.table.name} ({names}) SELECT {names} FROM {stage_name(task)}")
