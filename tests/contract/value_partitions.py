"""The contract of value partitions: the rows in which some columns have fixed values."""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest

from airflow_safe_ops import TimePartition, ValuePartition
from tests.contract.harness import D0, D1, D2, run

if TYPE_CHECKING:
    from tests.contract.harness import Warehouse

EU = ValuePartition(region="EU")
REGIONS = {"region": "text", "id": "int", "v": "int"}
REGION_SQL = "SELECT region, id, v FROM raw_regions WHERE region = :region"


class ValuePartitionContract:
    """A run owns the rows of one value, and only these."""

    def regions(self, warehouse: Warehouse, *rows: tuple[Any, ...]) -> dict[str, Any]:
        """A source and a target by region; the options of a load of EU."""
        warehouse.create("raw_regions", REGIONS, rows)
        warehouse.create("regions", REGIONS)
        return {"table": "regions", "partition": EU, "sql": REGION_SQL}

    @pytest.mark.parametrize(
        ("kind", "mine", "other", "given"),
        [
            ("text", "EU", "US", "EU"),
            ("text", "p 1", "p  1", "p 1"),
            ("text", "", " ", ""),
            ("text", 'O\'Hara %s \\ "x"', "O", 'O\'Hara %s \\ "x"'),
            ("text", "größe 日本", "grösse", "größe 日本"),
            ("text", "NULL", "null", "NULL"),
            ("int", 7, 8, 7),
            ("int", 7, 8, "7"),
            ("int", -7, 7, "-007"),
            ("bigint", 2**40, 2**40 + 1, 2**40),
            ("bool", True, False, True),
            ("bool", False, True, "f"),
            ("date", D1, D2, "2026-01-02"),
            ("date", D1, D2, D1),
            ("numeric", Decimal("1.5"), Decimal("1.6"), "1.50"),
        ],
    )
    def test_one_value(self, warehouse: Warehouse, kind: str, mine: Any, other: Any, given: Any) -> None:
        """
        A value with a blank failed on the second overwrite (delta-io/delta-rs#3939): any value works, as the
        column's type or as text.
        """
        columns = {"p": kind, "id": "int"}
        warehouse.create("raw_parts", columns, [(mine, 1), (mine, 2), (other, 3)])
        warehouse.create("parts", columns)
        options = {"table": "parts", "sql": "SELECT p, id FROM raw_parts WHERE p = :p"}
        warehouse.load(**options, partition=ValuePartition(p=other))
        warehouse.load_twice(**options, partition=ValuePartition(p=given))
        assert warehouse.rows("parts", "id") == [(1,), (2,), (3,)]
        warehouse.execute("DELETE FROM raw_parts WHERE id = 2")
        warehouse.load_twice(**options, partition=ValuePartition(p=given))
        assert warehouse.rows("parts", "id") == [(1,), (3,)]
        assert len(warehouse.partitions()) == 2

    def test_null_is_a_value(self, warehouse: Warehouse) -> None:
        options = self.regions(warehouse, (None, 1, 1), ("EU", 2, 2))
        warehouse.load(**options)
        options |= {"partition": ValuePartition(region=None), "sql": REGION_SQL.replace("= :region", "IS NULL")}
        warehouse.load_twice(**options)
        warehouse.execute("UPDATE raw_regions SET v = 9 WHERE region IS NULL")
        warehouse.load_twice(**options)
        assert warehouse.rows("regions") == [(None, 1, 9), ("EU", 2, 2)]
        assert [key for key, *_ in warehouse.partitions()] == ["region=EU", "region=NULL"]

    def test_null_beside_a_value(self, warehouse: Warehouse) -> None:
        columns = {"region": "text", "shop": "text", "id": "int"}
        rows = [("EU", None, 1), ("EU", "a", 2), (None, None, 3)]
        warehouse.create("raw_shops", columns, rows)
        warehouse.create("shops", columns)
        warehouse.load_twice(
            table="shops",
            partition=ValuePartition(region="EU", shop=None),
            sql="SELECT region, shop, id FROM raw_shops WHERE region = :region AND shop IS NULL",
        )
        assert warehouse.rows("shops", "id") == [(1,)]

    def test_rows_of_another_value_are_refused(self, warehouse: Warehouse) -> None:
        """A row of another value than the predicate's (delta-io/delta#1147): count and sample are reported."""
        options = self.regions(warehouse, ("EU", 1, 1), ("US", 2, 2))
        error = warehouse.refused("SO-104", **{**options, "sql": "SELECT region, id, v FROM raw_regions"})
        assert (error.facts["rows"], error.facts["staged"]) == (1, 2)
        assert "US" in error.what

    def test_null_where_a_value_belongs_is_refused(self, warehouse: Warehouse) -> None:
        options = self.regions(warehouse, ("EU", 1, 1), (None, 2, 2))
        warehouse.refused("SO-103", **{**options, "sql": "SELECT region, id, v FROM raw_regions"})

    def test_a_value_where_null_belongs_is_refused(self, warehouse: Warehouse) -> None:
        options = self.regions(warehouse, (None, 1, 1), ("EU", 2, 2))
        options |= {"partition": ValuePartition(region=None), "sql": "SELECT region, id, v FROM raw_regions"}
        warehouse.refused("SO-104", **options)

    @pytest.mark.parametrize("value", ["x", "1.5", "", "99999999999"])
    def test_a_value_that_the_type_does_not_know_is_refused(self, warehouse: Warehouse, value: str) -> None:
        warehouse.create("parts", {"p": "int", "id": "int"})
        error = warehouse.refused(
            "SO-602", table="parts", partition=ValuePartition(p=value), sql="SELECT 1 AS p, 1 AS id"
        )
        assert error.terminal

    def test_merge_by_value(self, warehouse: Warehouse) -> None:
        options = self.regions(warehouse, ("EU", 1, 1), ("EU", 2, 2), ("US", 1, 3))
        options |= {"strategy": "merge", "unique_key": ["region", "id"], "not_matched_by_source": "delete"}
        warehouse.load(**{**options, "partition": {"region": "US"}})
        warehouse.load_twice(**options)
        warehouse.execute("DELETE FROM raw_regions WHERE id = 2")
        warehouse.load_twice(**options)
        assert warehouse.rows("regions") == [("EU", 1, 1), ("US", 1, 3)]

    def test_two_columns(self, warehouse: Warehouse) -> None:
        columns = {"region": "text", "day": "date", "id": "int"}
        rows = [("EU", D1, 1), ("EU", D2, 2), ("US", D1, 3)]
        warehouse.create("raw_pairs", columns, rows)
        warehouse.create("pairs", columns)
        options = {
            "table": "pairs",
            "sql": "SELECT region, day, id FROM raw_pairs WHERE region = :region AND day = :day",
        }
        for region, day in (("EU", "2026-01-02"), ("EU", "2026-01-03"), ("US", "2026-01-02"), ("EU", "2026-01-02")):
            warehouse.load(**options, partition=ValuePartition(region=region, day=day))
        assert warehouse.rows("pairs") == rows
        assert len(warehouse.partitions()) == 3

    def test_a_part_of_a_recorded_value_is_known(self, warehouse: Warehouse) -> None:
        options = self.regions(warehouse, ("EU", 1, 1), ("EU", 2, 2))
        warehouse.load(**options)
        finer = {"partition": ValuePartition(region="EU", id=1), "sql": REGION_SQL + " AND id = :id"}
        warehouse.load_twice(**{**options, **finer})
        assert len(warehouse.rows("regions")) == 2

    def test_a_time_partition_of_the_same_table_is_another_partition(self, warehouse: Warehouse) -> None:
        columns = {"region": "text", "day": "date"}
        warehouse.create("raw_days", columns, [("EU", D0), ("EU", D1)])
        warehouse.create("days", columns)
        warehouse.load(table="days", partition=EU, sql="SELECT region, day FROM raw_days WHERE region = :region")
        sql = "SELECT region, day FROM raw_days WHERE day >= :partition_start AND day < :partition_end"
        warehouse.refused("SO-102", run(D1), table="days", partition=TimePartition("day"), sql=sql)
        warehouse.load_twice(run(D1), table="days", partition=TimePartition("day"), sql=sql, on_unledgered="replace")
        assert warehouse.rows("days") == [("EU", D0), ("EU", D1)]
