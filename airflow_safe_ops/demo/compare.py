"""What the two tables hold, day by day, against their source: content, not only counts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from airflow_safe_ops.demo.flights import APPEND, COLUMNS, SAFE, SOURCE

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import date

    import psycopg

_COUNTS = "SELECT flight_date, count(*) FROM {table} WHERE {where} GROUP BY flight_date ORDER BY flight_date"
# EXCEPT ALL counts copies: a row that stands twice here and once there is one row too many.
_DIFFERENCE = """
WITH source AS (SELECT {columns} FROM {source} WHERE flight_date = ANY(%(days)s)),
     target AS (SELECT {columns} FROM {table})
SELECT flight_date, count(*) FROM (
  (SELECT * FROM source EXCEPT ALL SELECT * FROM target)
  UNION ALL (SELECT * FROM target EXCEPT ALL SELECT * FROM source)) AS differing
GROUP BY flight_date ORDER BY flight_date
"""


@dataclass(frozen=True)
class Target:
    """
    One table against the source.

    :param rows: rows for each day.
    :param differing: for each day that is not equal, how many rows are missing or too many.
    """

    rows: dict[date, int]
    differing: dict[date, int]


@dataclass(frozen=True)
class Comparison:
    """The source and both tables."""

    days: tuple[date, ...]
    source: dict[date, int]
    append: Target
    safe: Target

    def copies(self, target: Target, day: date) -> float:
        """Rows in the target for each row in the source."""
        return target.rows.get(day, 0) / self.source[day]

    def equal(self, target: Target) -> int:
        """How many of the days are row for row what their source is."""
        return sum(day not in target.differing for day in self.days)

    @property
    def safe_is_right(self) -> bool:
        """The safe twin holds its source, every row once, and nothing else."""
        return not self.safe.differing

    @property
    def append_is_wrong(self) -> bool:
        """The appending DAG does not."""
        return bool(self.append.differing)

    def worst_days(self) -> Sequence[date]:
        """Days of the appending DAG, the one farthest from its source first."""
        return sorted(self.days, key=lambda day: (-self.append.differing.get(day, 0), day))


def compare(warehouse: psycopg.Connection[tuple[Any, ...]], days: tuple[date, ...]) -> Comparison:
    """Read the source of these days and everything that the targets hold."""
    return Comparison(
        days=days,
        source=_counts(warehouse, SOURCE, days),
        append=_target(warehouse, APPEND, days),
        safe=_target(warehouse, SAFE, days),
    )


def _target(warehouse: psycopg.Connection[tuple[Any, ...]], table: str, days: Sequence[date]) -> Target:
    sql = _DIFFERENCE.format(columns=", ".join(COLUMNS), source=SOURCE, table=table)
    rows = warehouse.execute(sql.encode(), {"days": list(days)}).fetchall()
    return Target(rows=_counts(warehouse, table), differing=dict(rows))


def _counts(
    warehouse: psycopg.Connection[tuple[Any, ...]], table: str, days: Sequence[date] | None = None
) -> dict[date, int]:
    where = "true" if days is None else "flight_date = ANY(%(days)s)"
    sql = _COUNTS.format(table=table, where=where)
    return dict(warehouse.execute(sql.encode(), {"days": list(days or ())}).fetchall())
