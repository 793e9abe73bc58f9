"""The ledger's story of one day: every try that wrote it, or tried to."""

from __future__ import annotations

from datetime import date, timedelta
from typing import TYPE_CHECKING, Any

from airflow_safe_ops.demo.flights import SAFE

if TYPE_CHECKING:
    import psycopg

    from airflow_safe_ops.plan.model import Statement


def partition_key(day: date) -> str:
    """How the ledger and the command line name a day of flights."""
    return f"flight_date={day.isoformat()}..{(day + timedelta(days=1)).isoformat()}"


def attempts_of(warehouse: psycopg.Connection[tuple[Any, ...]], day: date) -> list[dict[str, Any]]:
    """
    The attempts on the day's partition of the safe twin's table, as ``airflow safe-ops ledger show`` reads them.

    :return: a row an attempt, in the order in which they began.
    """
    from psycopg.rows import dict_row

    from airflow_safe_ops.report.ledger import attempt_line, attempt_row
    from airflow_safe_ops.sql.ledger import LedgerSql
    from airflow_safe_ops.sql.text import quoted

    identity = ".".join(quoted(part) for part in SAFE.split("."))
    text, binds = _pyformat(LedgerSql("safe_ops").history.attempts(identity, partition_key(day), limit=None))
    with warehouse.cursor(row_factory=dict_row) as cursor:
        rows = cursor.execute(text, binds).fetchall()
    return [attempt_row(attempt_line(row)) for row in rows]


def _pyformat(statement: Statement) -> tuple[bytes, dict[str, Any]]:
    text = "".join(sql.replace("%", "%%") + (f"%({name})s" if name else "") for sql, name in statement.pieces())
    return text.encode(), statement.used
