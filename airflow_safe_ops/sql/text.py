"""Small pieces that every statement of a load is made of."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from airflow_safe_ops.definition.scope import Scope, TimeScope, ValueScope
from airflow_safe_ops.definition.target import Column, Table
from airflow_safe_ops.plan.model import LoadTask, bind


def quoted(name: str) -> str:
    """An identifier as standard SQL quotes it."""
    return '"' + name.replace('"', '""') + '"'


def columns(names: Iterable[str], alias: str = "") -> str:
    """Quoted names, separated by commas."""
    dot = f"{alias}." if alias else ""
    return ", ".join(dot + quoted(name) for name in names)


def texts(names: Iterable[str]) -> str:
    """Columns as the server writes them: a driver cannot read every value, infinite dates for one."""
    return ", ".join(f"CAST({quoted(name)} AS text) AS {quoted(name)}" for name in names)


def same_key(key: Sequence[str], one: str, other: str) -> str:
    """Two aliases have the same key; staged keys hold no NULL, so plain equality can use an index."""
    return " AND ".join(f"{one}.{quoted(name)} = {other}.{quoted(name)}" for name in key)


def in_scope(table: Table, scope: Scope, alias: str = "", prefix: str = "") -> str:
    """A row belongs to the scope; TRUE for the whole table. Its values are :func:`scope_binds`."""
    dot = f"{alias}." if alias else ""
    if isinstance(scope, TimeScope):
        column = dot + quoted(scope.column)
        return f"({column} >= {bind(prefix + '_start')} AND {column} < {bind(prefix + '_end')})"
    if isinstance(scope, ValueScope):
        return "(" + " AND ".join(_has_value(table, scope, n, dot, prefix) for n in range(len(scope.values))) + ")"
    return "TRUE"


def scope_binds(scope: Scope, prefix: str = "") -> dict[str, Any]:
    """The values that :func:`in_scope` names."""
    if isinstance(scope, TimeScope):
        return {f"{prefix}_start": scope.start, f"{prefix}_end": scope.end}
    if isinstance(scope, ValueScope):
        return {f"{prefix}_value_{n}": value for n, (_, value) in enumerate(scope.values) if value is not None}
    return {}


def typed_values(text: str, table: Table, scope: Scope) -> str:
    """The author's ``:column`` of a value partition, in its column's type: the same value as in the DELETE."""
    if isinstance(scope, ValueScope):
        for name, _ in scope.values:
            text = text.replace(bind(name), f"CAST({bind(name)} AS {table.column(name, 'partition').type})")
    return text


def _has_value(table: Table, scope: ValueScope, n: int, dot: str, prefix: str) -> str:
    column, value = scope.values[n]
    if value is None:
        return f"{dot}{quoted(column)} IS NULL"
    type_ = table.column(column, "partition").type
    return f"{dot}{quoted(column)} = CAST({bind(f'{prefix}_value_{n}')} AS {type_})"


def as_text(column: Column, value: str) -> str:
    """A value of the column as text that is the same in every session, whatever its time zone."""
    if column.kind != "timestamptz":
        return f"CAST({value} AS text)"
    return f"CAST({value} AT TIME ZONE 'UTC' AS text) || CASE WHEN isfinite({value}) THEN '+00' ELSE '' END"


def owned_rows(task: LoadTask) -> str:
    """
    ``FROM … WHERE …`` of the target's rows that the load owns; its values are :func:`owned_binds`.

    They are the partition's; of a slice of the source, those that carry its name or, without a column for that,
    those whose key is staged.
    """
    table, load = task.table.name, task.load
    if load.source_slice is None or load.source_slice_column is not None:
        return f"FROM {table} WHERE {in_place(task)}"
    is_staged = f"EXISTS (SELECT 1 FROM {stage_name(task)} AS s WHERE {same_key(load.key, 't', 's')})"
    return f"FROM {table} AS t WHERE {in_scope(task.table, task.scope, 't')} AND {is_staged}"


def in_place(task: LoadTask, alias: str = "") -> str:
    """A row belongs to the load's partition and, where the target has a column for it, to its slice."""
    scope, column = in_scope(task.table, task.scope, alias), task.load.source_slice_column
    dot = f"{alias}." if alias else ""
    return scope if column is None else f"({scope} AND {dot}{quoted(column)} = {slice_value(task)})"


def slice_value(task: LoadTask) -> str:
    """The slice's name in the type of the column that keeps it."""
    column = task.table.column(task.load.source_slice_column or "", "source_slice_column")
    return f"CAST({bind('_slice')} AS {column.type})"


def owned_binds(task: LoadTask) -> dict[str, Any]:
    """The values that :func:`owned_rows` and :func:`in_place` name."""
    binds = scope_binds(task.scope)
    return binds if task.load.source_slice_column is None else {**binds, "_slice": task.load.source_slice}


def any_null(names: Iterable[str]) -> str:
    """One of the columns is NULL; FALSE where there are none."""
    return " OR ".join(f"{quoted(name)} IS NULL" for name in names) or "FALSE"


def must_not_be_null(scope: Scope) -> tuple[str, ...]:
    """The partition's columns in which a row needs a value."""
    if isinstance(scope, ValueScope):
        return tuple(column for column, value in scope.values if value is not None)
    return scope.columns


def stage_name(task: LoadTask) -> str:
    """The stage's name, of this attempt alone."""
    return quoted(f"safe_ops_stage_{task.attempt_id.replace('-', '')}")
