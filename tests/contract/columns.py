"""The contract of columns: matched by name, none dropped or filled in silence."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from airflow_safe_ops import TimePartition, ValuePartition, WholeTable
from tests.contract.harness import D1, D2, SALES_SQL, run, sale

if TYPE_CHECKING:
    from datetime import date

    from tests.contract.harness import Warehouse

MERGE = {"strategy": "merge", "unique_key": ["day", "id"]}
BOTH = pytest.mark.parametrize("options", [{}, MERGE], ids=["delete_insert", "merge"])
WIDE = {"day": "date", "id": "int", "amount": "numeric", "note": "text"}
WIDE_SQL = SALES_SQL.replace("amount FROM raw_sales", "amount, note FROM raw_wide")

# Reserved words, mixed case, blanks, quotes, the driver's and the operator's own marks, other scripts, the names
# that the package's statements use for themselves.
NAMES = [
    "order",
    "UserId",
    "userid",
    "a b",
    'q"uote',
    "o'clock",
    "50%",
    "%s",
    "größe",
    "日本",
    "x:y",
    "a;b",
    "--",
    "$1",
]
NAMES += ["place", "rows", "keys", "ranked", "ties", "twice", "t", "s", "q", "rows_outside", "excluded"]


@BOTH
class ColumnsContract:
    """What the query returns and what the table has."""

    def wide(self, warehouse: Warehouse, **columns: str) -> None:
        """A source with a column more than the target `sales`."""
        warehouse.create("raw_wide", WIDE, [(D1, 1, 1, "x"), (D1, 2, 2, None)])
        warehouse.create("sales", columns or SALES_COLUMNS)

    def test_another_order_of_columns(self, warehouse: Warehouse, options: dict[str, Any]) -> None:
        warehouse.sales([sale(D1, 1, "5")])
        warehouse.load_twice(**options, sql=SALES_SQL.replace("day, id, amount", "amount, day, id"))
        assert warehouse.rows("sales") == [sale(D1, 1, "5")]

    def test_a_new_source_column_is_refused(self, warehouse: Warehouse, options: dict[str, Any]) -> None:
        """A new column was dropped and the run green (databricks/dbt-databricks#567)."""
        self.wide(warehouse)
        error = warehouse.refused("SO-108", **options, sql=WIDE_SQL)
        assert error.facts["extra"] == ["note"]

    def test_a_missing_column_is_refused(self, warehouse: Warehouse, options: dict[str, Any]) -> None:
        warehouse.create("sales", WIDE)
        warehouse.create("raw_sales", SALES_COLUMNS, [sale(D1, 1, "1")])
        error = warehouse.refused("SO-108", **options)
        assert error.facts["missing"] == ["note"]

    def test_both_sides_are_listed(self, warehouse: Warehouse, options: dict[str, Any]) -> None:
        warehouse.sales([sale(D1, 1, "1")])
        sql = SALES_SQL.replace("amount FROM", 'amount AS "Amount", 1 AS extra FROM')
        error = warehouse.refused("SO-108", **options, sql=sql.replace('"Amount"', warehouse.quote("Amount")))
        assert (error.facts["missing"], error.facts["extra"]) == (["amount"], ["Amount", "extra"])

    def test_new_columns_are_added_where_declared(self, warehouse: Warehouse, options: dict[str, Any]) -> None:
        self.wide(warehouse)
        warehouse.insert("sales", [sale(D2, 9, "9")])
        warehouse.load_twice(**options, sql=WIDE_SQL, on_schema_change="append_new_columns")
        assert warehouse.rows("sales", "day, id, amount, note") == [
            (*sale(D1, 1, "1"), "x"),
            (*sale(D1, 2, "2"), None),
            (*sale(D2, 9, "9"), None),
        ]
        warehouse.load_twice(**options, sql=WIDE_SQL)

    def test_a_column_is_not_added_by_a_load_that_fails(self, warehouse: Warehouse, options: dict[str, Any]) -> None:
        self.wide(warehouse)
        sql = WIDE_SQL.replace("day, id", "day, NULLIF(id, 2) AS id")
        declared = {**options, "unique_key": ["day", "id"], "on_schema_change": "append_new_columns"}
        warehouse.refused("SO-105", **declared, sql=sql)
        assert len(warehouse.execute("SELECT * FROM sales LIMIT 1")) == 0

    def test_other_columns_are_left_out_where_declared(self, warehouse: Warehouse, options: dict[str, Any]) -> None:
        columns = {**SALES_COLUMNS, "filled": "int DEFAULT 7"}
        self.wide(warehouse, **columns)
        warehouse.load_twice(**options, sql=WIDE_SQL, on_schema_change="ignore")
        assert warehouse.rows("sales") == [(*sale(D1, 1, "1"), 7), (*sale(D1, 2, "2"), 7)]

    @pytest.mark.parametrize("lost", ["day", "id"])
    def test_key_and_partition_are_never_left_out(
        self, warehouse: Warehouse, options: dict[str, Any], lost: str
    ) -> None:
        self.wide(warehouse)
        rest = ", ".join({"day", "id", "amount"} - {lost})
        declared = {**options, "unique_key": ["day", "id"], "on_schema_change": "ignore"}
        warehouse.refused("SO-108", **declared, sql=WIDE_SQL.replace("day, id, amount, note", rest))

    def test_a_subset_leaves_the_other_columns_to_their_defaults(
        self, warehouse: Warehouse, options: dict[str, Any]
    ) -> None:
        columns = {**SALES_COLUMNS, "filled": "int DEFAULT 7"}
        warehouse.create("raw_sales", SALES_COLUMNS, [sale(D1, 1, "1")])
        warehouse.create("sales", columns)
        warehouse.load_twice(**options, columns=["day", "id", "amount"])
        assert warehouse.rows("sales") == [(*sale(D1, 1, "1"), 7)]

    def test_a_subset_and_a_query_that_returns_more_is_refused(
        self, warehouse: Warehouse, options: dict[str, Any]
    ) -> None:
        self.wide(warehouse, **WIDE)
        error = warehouse.refused("SO-108", **options, columns=["day", "id", "amount"], sql=WIDE_SQL)
        assert error.facts["extra"] == ["note"]

    def test_one_name_twice_is_refused(self, warehouse: Warehouse, options: dict[str, Any]) -> None:
        warehouse.sales([sale(D1, 1, "1")])
        error = warehouse.refused("SO-211", **options, sql=SALES_SQL.replace("amount FROM", "amount, id FROM"))
        assert error.facts["columns"] == ["id"]

    def test_each_of_many_columns_is_filled(self, warehouse: Warehouse, options: dict[str, Any]) -> None:
        """Of 25 columns that differ in case and quotes only one was filled (databricks/dbt-databricks#594)."""
        names = [f"{'Col' if n % 2 else 'col'}{' ' if n % 3 == 0 else '_'}{n}" for n in range(23)]
        columns = {"day": "date", "id": "int", **dict.fromkeys(names, "int")}
        warehouse.create("raw_many", columns, [(D1, n, *range(len(names))) for n in range(3)])
        warehouse.create("many", columns)
        sql = f"SELECT {', '.join(map(warehouse.quote, reversed(columns)))} FROM raw_many WHERE day >= :partition_start"
        warehouse.load_twice(**options, table="many", sql=sql)
        counted = ", ".join(f"count({warehouse.quote(name)})" for name in columns)
        assert warehouse.execute(f"SELECT {counted} FROM many") == [(3,) * 25]
        assert warehouse.rows("many") == warehouse.rows("raw_many")


SALES_COLUMNS = {"day": "date", "id": "int", "amount": "numeric"}


class NamesContract:
    """Names of every kind, in every role and every clause."""

    @pytest.mark.parametrize("strategy", ["delete_insert", "merge"])
    @pytest.mark.parametrize("name", ["order", "UserId", 'q"uote', "50% %s", "größe:x;--"])
    def test_names_in_every_role(self, warehouse: Warehouse, name: str, strategy: str) -> None:
        """
        A reserved word or mixed case broke one clause of the upsert (mage-ai/mage-ai#3936,
        M1ha-Shvn/django-pg-bulk-update#46, artofhuman/django-pg-upsert#37): schema, table, partition, key,
        sequence and value columns.
        """
        q = warehouse.quote
        moment, seq = f"{name} at", f"{name} seq"
        values = [f"{other} v" for other in NAMES]
        columns = {**dict.fromkeys(NAMES, "int"), moment: "date", seq: "int", **dict.fromkeys(values, "text")}

        def row(number: int, day: date, sequence: int, value: str) -> tuple[Any, ...]:
            return (*[number] * len(NAMES), day, sequence, *[value] * len(values))

        table = warehouse.create(warehouse.in_schema(f"{name} schema", name), columns)
        rows = [row(1, D1, 1, "a"), row(1, D1, 2, "b"), row(2, D1, 1, "c")]
        source = warehouse.create(q(f"{name} source"), columns, rows)
        options: dict[str, Any] = {
            "table": table,
            "sql": f"SELECT {', '.join(map(q, columns))} FROM {source} "
            f"WHERE {q(moment)} >= :partition_start AND {q(moment)} < :partition_end",
            "partition": TimePartition(moment),
            "strategy": strategy,
            "unique_key": NAMES,
            "sequence_by": seq,
            "on_duplicates": "keep_latest",
            "on_key_moved": "move",
            "not_matched_by_source": "delete",
        }
        warehouse.load_twice(**options)
        assert warehouse.rows(table) == [row(1, D1, 2, "b"), row(2, D1, 1, "c")]
        warehouse.execute(f"DELETE FROM {source}")
        warehouse.insert(source, [row(1, D1, 3, "B"), row(3, D1, 1, "d"), row(4, D2, 1, "e")])
        warehouse.load_twice(**options)
        assert warehouse.rows(table) == [row(1, D1, 3, "B"), row(3, D1, 1, "d")]
        warehouse.execute(f"UPDATE {source} SET {q(moment)} = DATE '2026-01-03'")
        warehouse.load(run(D2), **options)
        assert warehouse.rows(table) == [row(1, D2, 3, "B"), row(3, D2, 1, "d"), row(4, D2, 1, "e")]

    @pytest.mark.parametrize("name", ["UserId", 'q"uote', "50%", "rows", "x:y größe"])
    def test_a_name_of_a_value_partition(self, warehouse: Warehouse, name: str) -> None:
        q = warehouse.quote
        columns = {name: "text", "id": "int"}
        warehouse.create("raw_named", columns, [("p", 1), ("r", 2)])
        warehouse.create("named", columns)
        options: dict[str, Any] = {
            "table": "named",
            "partition": ValuePartition({name: "p"}),
            "sql": f"SELECT {q(name)}, id FROM raw_named WHERE {q(name)} = :p",
            "parameters": {"p": "p"},
        }
        warehouse.load_twice(**options)
        warehouse.load_twice(**options, strategy="merge", unique_key=[name, "id"], not_matched_by_source="delete")
        assert warehouse.rows("named") == [("p", 1)]

    @pytest.mark.parametrize("name", ["UserId", "50%", "größe"])
    def test_a_name_in_a_refusal(self, warehouse: Warehouse, name: str) -> None:
        """The samples of a refusal come by queries of their own."""
        columns = {name: "int", "day": "date"}
        warehouse.create("raw_named", columns, [(None, D2)])
        warehouse.create("named", columns)
        sql = f"SELECT {warehouse.quote(name)}, day FROM raw_named WHERE :partition_start < :partition_end"
        warehouse.refused("SO-104", table="named", sql=sql, unique_key=[name])
        warehouse.execute("UPDATE raw_named SET day = DATE '2026-01-02'")
        warehouse.refused("SO-105", table="named", sql=sql, unique_key=[name])
        warehouse.execute(f"UPDATE raw_named SET {warehouse.quote(name)} = 1")
        warehouse.insert("raw_named", [(1, D1)])
        warehouse.refused("SO-106", table="named", sql=sql, unique_key=[name])

    @pytest.mark.parametrize("written", ["Mixed", "mixed", "MIXED", '"Mixed"'])
    def test_mixed_case_is_taken_as_written_first(self, warehouse: Warehouse, written: str) -> None:
        warehouse.create(warehouse.quote("Mixed"), {"id": "int"})
        warehouse.create(warehouse.quote("mixed"), {"id": "int"})
        warehouse.load_twice(table=written, partition=WholeTable(), sql="SELECT 1 AS id")
        assert len(warehouse.rows(warehouse.quote("Mixed"))) == (written in ("Mixed", '"Mixed"'))
        assert len(warehouse.rows(warehouse.quote("mixed"))) == (written in ("mixed", "MIXED"))
