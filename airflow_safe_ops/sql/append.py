"""``append_once``: the staged rows come if none of the load's rows is there."""

from __future__ import annotations

from airflow_safe_ops.plan.model import LoadTask, Statement
from airflow_safe_ops.sql.text import columns, owned_binds, owned_rows, quoted, slice_value, stage_name


def look(task: LoadTask, content: str) -> Statement:
    """
    The load's rows in the target, and a hash of both sides where there are any.

    :param content: an aggregate that hashes the loaded columns of a relation.
    """
    staged = f"(SELECT {content} FROM {stage_name(task)})"
    return Statement(
        "SELECT there.rows_before, there.content AS content_there, "
        f"CASE WHEN there.rows_before > 0 THEN {staged} END AS content_staged "
        f"FROM (SELECT count(*) AS rows_before, {content} AS content {owned_rows(task)}) AS there",
        owned_binds(task),
    )


def append(task: LoadTask) -> Statement:
    """All staged rows, or none: the condition holds for all of them alike."""
    names, slice_column = columns(task.names), task.load.source_slice_column
    into, values = names, names
    if slice_column is not None:
        into, values = f"{names}, {quoted(slice_column)}", f"{names}, {slice_value(task)}"
    return Statement(
        f"INSERT INTO {task.table.name} ({into}) SELECT {values} FROM {stage_name(task)} "
        f"WHERE NOT EXISTS (SELECT 1 {owned_rows(task)})",
        owned_binds(task),
    )
