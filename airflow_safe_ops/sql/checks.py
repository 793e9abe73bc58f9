"""Checks as SQL: all aggregates over one relation in one query, each SqlCheck in a query of its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from airflow_safe_ops.definition.checks import (
    Aggregate,
    Check,
    NoDuplicates,
    NullShare,
    RowCount,
    SqlCheck,
    Sum,
)
from airflow_safe_ops.errors import InvalidArgument
from airflow_safe_ops.plan.model import Statement
from airflow_safe_ops.sql.query import one_select
from airflow_safe_ops.sql.text import columns, quoted

RELATION = "safe_ops_relation"


def queries(
    checks: Sequence[tuple[str, Check]], rows: str, row_binds: Mapping[str, Any], names: Mapping[str, Any]
) -> list[Statement]:
    """
    Queries that give each check's value under the name that stands with it.

    :param checks: pairs of the value's name and the check.
    :param rows: a SELECT of the rows that are checked, with ``row_binds``.
    :param names: the values that a SqlCheck's SQL may use by ``:name``.
    """
    head = f"WITH {RELATION} AS (\n{rows}\n)\nSELECT "
    values = [f"{_aggregate(check)} AS {fact}" for fact, check in checks if isinstance(check, Aggregate)]
    statements = []
    if values:
        listed = ", ".join(["count(*) AS rows_checked", *values])
        statements.append(Statement(f"{head}{listed} FROM {RELATION}", row_binds))
    for fact, check in checks:
        if isinstance(check, SqlCheck):
            sql, _ = one_select(check.sql.replace("{relation}", RELATION), names)
            statements.append(Statement(f"{head}(\n{sql}\n) AS {fact}", {**names, **row_binds}))
    return statements


def _aggregate(check: Aggregate) -> str:
    kept = f" FILTER (WHERE {check.where}\n)" if check.where else ""
    if isinstance(check, RowCount):
        return f"count(*){kept}"
    if isinstance(check, Sum):
        return f"sum({quoted(check.column)}){kept}"
    if isinstance(check, NullShare):
        return f"avg(CASE WHEN {quoted(check.column)} IS NULL THEN 1.0 ELSE 0.0 END){kept}"
    if isinstance(check, NoDuplicates):
        where = f" WHERE ({check.where}\n)" if check.where else ""
        key = columns(check.key)
        twice = f"SELECT 1 FROM {RELATION}{where} GROUP BY {key} HAVING count(*) > 1"
        return f"(SELECT count(*) FROM ({twice}) AS twice)"
    raise InvalidArgument(f"{check.name} has no SQL.")
