"""``merge``: rows that differ are updated, new keys inserted, and keys that are gone deleted where declared."""

from __future__ import annotations

from airflow_safe_ops.plan.model import LoadTask, Statement
from airflow_safe_ops.sql.text import columns, in_scope, quoted, same_key, scope_binds, stage_name


def delete_unmatched(task: LoadTask) -> Statement:
    """Rows of the partition whose key is not staged."""
    return Statement(
        f"DELETE FROM {task.table.name} AS t WHERE {in_scope(task.table, task.scope, 't')} AND NOT EXISTS "
        f"(SELECT 1 FROM {stage_name(task)} AS s WHERE {same_key(task.load.key, 't', 's')})",
        scope_binds(task.scope),
    )


def update_changed(task: LoadTask) -> Statement:
    """
    Rows of the partition whose key is staged with other values.

    ``*<>`` compares two rows byte for byte, NULLs included, for every type, also those without an equality of
    their own (json, point) and those whose equality is loose (citext, numeric scale): after the load the table
    holds what a clean run would have written.
    """
    assignments = ", ".join(f"{quoted(name)} = s.{quoted(name)}" for name in task.names)
    return Statement(
        f"UPDATE {task.table.name} AS t SET {assignments} FROM {stage_name(task)} AS s "
        f"WHERE {same_key(task.load.key, 't', 's')} AND {in_scope(task.table, task.scope, 't')} "
        f"AND ROW({columns(task.names, 't')})::record *<> ROW({columns(task.names, 's')})::record",
        scope_binds(task.scope),
    )


def arrived(task: LoadTask) -> Statement:
    """``rows_arrived``: rows of the partition whose key is staged, after everything was written."""
    return _rows_of_staged_keys(task, "count(*) AS rows_arrived")


def count_copies(task: LoadTask) -> Statement:
    """``rows_there, keys_there``: rows of the partition whose key is staged, and of how many staged keys."""
    return _rows_of_staged_keys(task, "count(*) AS rows_there, count(DISTINCT s.ctid) AS keys_there")


def _rows_of_staged_keys(task: LoadTask, counts: str) -> Statement:
    return Statement(
        f"SELECT {counts} FROM {task.table.name} AS t JOIN {stage_name(task)} AS s "
        f"ON {same_key(task.load.key, 't', 's')} WHERE {in_scope(task.table, task.scope, 't')}",
        scope_binds(task.scope),
    )


def insert_missing(task: LoadTask) -> Statement:
    """Staged rows whose key is not in the partition."""
    names = columns(task.names)
    return Statement(
        f"INSERT INTO {task.table.name} ({names}) SELECT {names} FROM {stage_name(task)} AS s WHERE NOT EXISTS "
        f"(SELECT 1 FROM {task.table.name} AS t WHERE {same_key(task.load.key, 't', 's')} "
        f"AND {in_scope(task.table, task.scope, 't')})",
        scope_binds(task.scope),
    )
