"""The tables of the benchmark of loads, and the bare work as a good engineer writes it by hand."""

# ruff: noqa: S608 - statements are built of constants

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import date, timedelta
from typing import Any

import psycopg  # noqa: TID253 - no DAG file imports it

from benchmarks.harness import SETTINGS

FIRST = date(2026, 1, 1)
DAYS = 10
LARGE = FIRST + timedelta(days=4)  # in the middle of the table
SMALL = {10_000: FIRST + timedelta(days=DAYS), 1_000: FIRST + timedelta(days=DAYS + 1)}
KEY = "order_id"
COLUMNS = (KEY, "sale_date", "customer_id", "store_id", "status", "quantity", "amount", "note", "updated_at")
LISTED = ", ".join(COLUMNS)
# The source as it was, as it is after every row changed, and after one row in a hundred changed.
BASE, ALL_CHANGED, FEW_CHANGED = "raw.sales", "raw.sales_all_changed", "raw.sales_few_changed"
_CHANGED = {BASE: "false", ALL_CHANGED: "true", FEW_CHANGED: "n %% 100 = 0"}

_TABLE = """
CREATE TABLE {name} (
    order_id bigint NOT NULL, sale_date date NOT NULL, customer_id bigint NOT NULL, store_id integer NOT NULL,
    status text NOT NULL, quantity integer NOT NULL, amount numeric(12,2) NOT NULL, note text,
    updated_at timestamptz NOT NULL)"""

_FILL = """
INSERT INTO {name}
SELECT n, CAST(%(day)s AS date), n * 7919 %% 1000003, n %% 500, (ARRAY['new', 'paid', 'sent', 'returned'])[n %% 4 + 1],
       n %% 9 + 1, (n %% 100000) / 100.0 + CASE WHEN {changed} THEN 1 ELSE 0 END, 'order number ' || n,
       CAST(%(day)s AS date) + n %% 86400 * interval '1 second'
FROM generate_series(CAST(%(first)s AS bigint), %(last)s) AS n"""

DELETE = "DELETE FROM mart.sales WHERE sale_date >= %(start)s AND sale_date < %(end)s"
INSERT = f"""
INSERT INTO mart.sales ({LISTED})
SELECT {LISTED} FROM {{source}} WHERE sale_date >= %(start)s AND sale_date < %(end)s"""
# Without the day in its ON, this MERGE joins the whole table and takes twice as long.
MERGE = f"""
MERGE INTO mart.sales AS t
USING (SELECT {LISTED} FROM {{source}} WHERE sale_date >= %(start)s AND sale_date < %(end)s) AS s
ON t.order_id = s.order_id AND t.sale_date >= %(start)s AND t.sale_date < %(end)s
WHEN MATCHED AND (t.*) IS DISTINCT FROM (s.*) THEN UPDATE SET
    {", ".join(f"{name} = s.{name}" for name in COLUMNS if name != KEY)}
WHEN NOT MATCHED THEN INSERT ({LISTED}) VALUES ({", ".join(f"s.{name}" for name in COLUMNS)})"""


@dataclass
class Tables:
    """
    One target and its sources.

    :param rows: rows of the target; a large partition has a tenth of them.
    """

    uri: str
    rows: int
    _admin: Any = field(init=False, repr=False)

    @property
    def large(self) -> int:
        """Rows of the partition that is replaced."""
        return self.rows // DAYS

    @contextmanager
    def made(self) -> Iterator[None]:
        """Make and fill them."""
        with psycopg.connect(self.uri, autocommit=True) as self._admin:
            self._admin.execute("CREATE SCHEMA mart")
            self._admin.execute("CREATE SCHEMA raw")
            self._admin.execute(_TABLE.format(name="mart.sales"))
            for n in range(DAYS):
                self._fill("mart.sales", FIRST + timedelta(days=n), n * self.large, self.large)
            self._admin.execute("ALTER TABLE mart.sales ADD PRIMARY KEY (order_id)")
            self._admin.execute("CREATE INDEX ON mart.sales (sale_date)")
            for name in (BASE, ALL_CHANGED, FEW_CHANGED):
                self._make_source(name)
            self._admin.execute("VACUUM (ANALYZE)")
            yield

    def about(self) -> dict[str, Any]:
        """The server, and what all of it takes on disk."""
        settings = ("server_version", *SETTINGS, "fsync", "synchronous_commit", "full_page_writes", "work_mem")
        taken = "SELECT pg_database_size(current_database()) + (SELECT sum(size) FROM pg_ls_waldir())"
        return {
            "postgresql": {name: self._one(f"SHOW {name}") for name in settings},
            "rows": self.rows,
            "partition_rows": self.large,
            "disk_mb": round(float(self._one(taken)) / 2**20),
        }

    def settle(self) -> None:
        """Nobody inherits bloat, stale statistics or another's dirty pages; the file keeps its length."""
        self._admin.execute("VACUUM (ANALYZE, TRUNCATE off) mart.sales")
        self._admin.execute("CHECKPOINT")

    def expect(self, source: str, day: date) -> None:
        """
        See that a day of the target is the source's.

        :raises AssertionError: a side did not do the work.
        """
        found, wanted = (self._content(name, day) for name in ("mart.sales", source))
        if found != wanted:
            raise AssertionError(f"{day}: the target holds {found}, the source {wanted}")

    def _content(self, table: str, day: date) -> Any:
        asked = f"SELECT count(*), sum(hash_record_extended(ROW({LISTED}), 0)) FROM {table} WHERE sale_date = %s"
        return self._admin.execute(asked.encode(), (day,)).fetchone()

    def _one(self, sql: str) -> Any:
        row = self._admin.execute(sql.encode()).fetchone()
        return row[0]

    def _fill(self, table: str, day: date, first: int, rows: int) -> None:
        binds = {"day": day, "first": first, "last": first + rows - 1}
        self._admin.execute(_FILL.format(name=table, changed=_CHANGED.get(table, "false")), binds)

    def _make_source(self, name: str) -> None:
        self._admin.execute(_TABLE.format(name=name))
        self._fill(name, LARGE, (LARGE - FIRST).days * self.large, self.large)
        for n, (rows, day) in enumerate(SMALL.items(), 1):
            self._fill(name, day, self.rows + n * 1_000_000, rows)
        self._admin.execute(f"CREATE INDEX ON {name} (sale_date)")


def bare(uri: str, source: str, day: date, *statements: str) -> None:
    """The bare work: one connection, one transaction, the day's bounds bound."""
    binds = {"start": day, "end": day + timedelta(days=1)}
    with psycopg.connect(uri) as connection:
        for statement in statements:
            connection.execute(statement.format(source=source).encode(), binds)


def by_turns(*sources: str) -> Callable[[], str]:
    """The next source with each call, so that every run finds another content than it brings."""
    calls = 0

    def following() -> str:
        nonlocal calls
        calls += 1
        return sources[calls % len(sources)]

    return following
