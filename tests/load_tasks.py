"""Load tasks built by hand, without a database: what the tests of plans and of SQL begin with."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, date, datetime
from typing import TYPE_CHECKING, Any

from airflow_safe_ops.definition.load import Load
from airflow_safe_ops.definition.partition import WholeTable
from airflow_safe_ops.definition.scope import TableScope, TimeScope, ValueScope
from airflow_safe_ops.definition.target import Column, ForeignKey, Table
from airflow_safe_ops.plan.model import LoadTask
from airflow_safe_ops.sql.query import one_select

if TYPE_CHECKING:
    from airflow_safe_ops.definition.scope import Scope

ATTEMPT = "00000000-0000-4000-8000-000000000001"

DAY = TimeScope("order_date", "date", date(2026, 1, 1), date(2026, 1, 2))
WEEK = TimeScope(
    "loaded_at",
    "timestamptz",
    datetime(2026, 3, 2, 5, tzinfo=UTC),
    datetime(2026, 3, 9, 4, tzinfo=UTC),
    "America/New_York",
)
WALL_CLOCK = TimeScope("seen_at", "timestamp", datetime(2026, 1, 1), datetime(2026, 1, 2))
REGION = ValueScope((("region", "EU"),))
REGION_AND_NULL = ValueScope((("region", "EU"), ("source", None)))
EVERYTHING = TableScope()

ORDERS = Table(
    identity='"mart"."orders"',
    name='"mart"."orders"',
    columns=(
        Column("order_id", "bigint"),
        Column("line_no", "integer"),
        Column("order_date", "date", "date"),
        Column("loaded_at", "timestamp with time zone", "timestamptz"),
        Column("seen_at", "timestamp without time zone", "timestamp"),
        Column("region", "character varying(5)"),
        Column("source", "text"),
        Column("amount", "numeric(12,2)"),
        Column("note", "citext", as_bytes=True),
        Column("raw", "json", hashable=False),
    ),
    unique_keys=(("orders_key", ("order_id", "line_no")),),
    server_version="17.2",
)
ODD = Table(
    identity='"Größe x"."sel""ect"',
    name='"Größe x"."sel""ect"',
    columns=(Column('or"der', "integer"), Column("Tag der Bestellung", "date", "date"), Column("100%", "text")),
)
REFERENCE = ForeignKey("lines_fk", '"mart"."lines"', "NO ACTION", deferrable=True)


def load_task(
    scope: Scope = DAY,
    *,
    table: Table = ORDERS,
    names: tuple[str, ...] = ("order_id", "line_no", "order_date", "amount"),
    sql: str | None = None,
    foreign_keys: tuple[ForeignKey, ...] = (),
    new_columns: tuple[Column, ...] = (),
    drops_columns: bool = False,
    **declared: Any,
) -> LoadTask:
    """One task; `declared` are fields of Load. The partition that made the scope plays no part any more."""
    names = (*names, *(column for column in scope.columns if column not in names))
    sql = sql or f"SELECT {', '.join(names)} FROM raw"
    load = Load(table=table.name, sql=sql, partition=WholeTable(), **declared)
    binds = {**scope.binds, **load.parameters}
    by_name = {column.name: column for column in (*table.columns, *new_columns)}
    return LoadTask(
        load=load,
        table=replace(table, referenced_by=foreign_keys),
        scope=scope,
        columns=tuple(by_name[name] for name in (*names, *(column.name for column in new_columns))),
        query=one_select(sql, binds)[0],
        binds=binds,
        attempt_id=ATTEMPT,
        new_columns=new_columns,
        drops_columns=drops_columns,
    )
