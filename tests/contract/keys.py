"""The contract of unique keys: NULLs, duplicates, the latest row, and keys that stand in another partition."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from airflow_safe_ops import RowCount, TimePartition, ValuePartition, WholeTable
from tests.contract.harness import D0, D1, D2, SALES_SQL, raised, run, sale

if TYPE_CHECKING:
    from tests.contract.harness import Warehouse

BOTH = pytest.mark.parametrize("strategy", ["delete_insert", "merge"])
LATEST = {"unique_key": ["id"], "sequence_by": "seq", "on_duplicates": "keep_latest"}
VERSIONS = {"day": "date", "id": "int", "seq": "int", "v": "text"}
VERSIONS_SQL = "SELECT day, id, seq, v FROM raw_versions WHERE day >= :partition_start AND day < :partition_end"


@BOTH
class KeysContract:
    """One key, one row."""

    def versions(self, warehouse: Warehouse, *rows: tuple[Any, ...]) -> None:
        """A source and a target of versioned rows."""
        warehouse.create("raw_versions", VERSIONS, rows)
        warehouse.create("versions", VERSIONS)

    def test_a_null_in_the_key_is_refused_by_name(self, warehouse: Warehouse, strategy: str) -> None:
        """
        A row with NULL in one key column was added again by each run (dbt-labs/dbt-adapters#159,
        dbt-labs/dbt-core#5691, dbt-labs/dbt-core#7873).
        """
        columns = {"day": "date", "a": "text", "b": "int"}
        warehouse.create("raw_keys", columns, [(D1, "x", 1), (D1, "y", None)])
        warehouse.create("keys", columns)
        for _ in range(2):
            error = warehouse.refused(
                "SO-105",
                table="keys",
                strategy=strategy,
                unique_key=["a", "b"],
                sql=SALES_SQL.replace("day, id, amount FROM raw_sales", "day, a, b FROM raw_keys"),
            )
            assert error.facts["columns"] == ["b"]
        assert warehouse.rows("keys") == []

    def test_duplicates_are_refused_with_the_keys(self, warehouse: Warehouse, strategy: str) -> None:
        """Two rows of one key (dbt-labs/dbt-core#1556, delta-io/delta#218): found before anything is written."""
        warehouse.sales([sale(D1, 7, "1"), sale(D1, 7, "2"), sale(D1, 8, "3")])
        error = warehouse.refused("SO-106", strategy=strategy, unique_key=["id"])
        assert [row["id"] for row in error.facts["keys"]] == ["7"]

    def test_equal_duplicates_are_refused_too(self, warehouse: Warehouse, strategy: str) -> None:
        warehouse.sales([sale(D1, 7, "1"), sale(D1, 7, "1")])
        warehouse.refused("SO-106", strategy=strategy, unique_key=["id"])

    def test_the_latest_row_is_kept(self, warehouse: Warehouse, strategy: str) -> None:
        """The newest of two rows of a key, wherever it stands in the batch (ebiznext/comet-data-pipeline#572)."""
        rows = [(D1, 1, 2, "new"), (D1, 1, 1, "old"), (D1, 2, None, "none"), (D1, 2, 0, "zero"), (D1, 3, 5, "only")]
        self.versions(warehouse, *rows)
        first, _ = warehouse.load_twice(table="versions", sql=VERSIONS_SQL, strategy=strategy, **LATEST)
        assert warehouse.rows("versions", "id, v") == [(1, "new"), (2, "zero"), (3, "only")]
        assert (first["rows_read"], first["rows_after"]) == (5, 3)

    @pytest.mark.parametrize("sequence", [(4, 4), (None, None)])
    def test_a_tie_for_the_latest_row_is_refused(
        self, warehouse: Warehouse, strategy: str, sequence: tuple[int | None, int | None]
    ) -> None:
        self.versions(warehouse, *((D1, 1, seq, str(n)) for n, seq in enumerate(sequence)))
        warehouse.refused("SO-106", table="versions", sql=VERSIONS_SQL, strategy=strategy, **LATEST)

    def test_a_tie_among_older_rows_does_no_harm(self, warehouse: Warehouse, strategy: str) -> None:
        self.versions(warehouse, (D1, 1, 1, "a"), (D1, 1, 1, "b"), (D1, 1, 2, "c"))
        warehouse.load_twice(table="versions", sql=VERSIONS_SQL, strategy=strategy, **LATEST)
        assert warehouse.rows("versions", "v") == [("c",)]

    # --- keys in another partition --------------------------------------------------------------------------

    def moved_sale(self, warehouse: Warehouse, strategy: str, **options: Any) -> dict[str, Any]:
        """Key 1 was published on D0 and now is a row of D1."""
        given = {"strategy": strategy, "unique_key": ["id"], **options}
        warehouse.sales([sale(D0, 1, "1"), sale(D0, 2, "2"), sale(D1, 3, "3")])
        warehouse.load(D0, **given)
        warehouse.load(D1, **given)
        warehouse.source(sale(D0, 2, "2"), sale(D1, 1, "5"), sale(D1, 3, "3"))
        return given

    def test_a_moved_key_is_refused_with_its_partition(self, warehouse: Warehouse, strategy: str) -> None:
        options = self.moved_sale(warehouse, strategy)
        error = warehouse.refused("SO-107", D1, **options)
        assert error.facts["rows"] == 1
        assert error.facts["samples"][0]["day"] == D0.isoformat()
        assert len(warehouse.rows("sales")) == 3

    def test_reloading_the_partitions_named_heals_it(self, warehouse: Warehouse, strategy: str) -> None:
        options = self.moved_sale(warehouse, strategy, not_matched_by_source="delete")
        warehouse.refused("SO-107", D1, **options)
        warehouse.load(D0, **options)
        warehouse.load_twice(D1, **options)
        assert warehouse.rows("sales") == [sale(D0, 2, "2"), sale(D1, 1, "5"), sale(D1, 3, "3")]

    def test_a_moved_key_is_moved_where_declared(self, warehouse: Warehouse, strategy: str) -> None:
        options = self.moved_sale(warehouse, strategy, on_key_moved="move")
        first, second = warehouse.load_twice(D1, **options)
        assert warehouse.rows("sales") == [sale(D0, 2, "2"), sale(D1, 1, "5"), sale(D1, 3, "3")]
        assert (first["rows_moved"], second["rows_moved"]) == (1, 0)
        assert (first["changed"], second["changed"]) == (True, False)
        counts = {key: rows for key, _, rows, *_ in warehouse.partitions()}
        assert counts == {"day=2026-01-01..2026-01-02": None, "day=2026-01-02..2026-01-03": 2}

    def test_the_partition_a_key_left_loads_as_before(self, warehouse: Warehouse, strategy: str) -> None:
        options = self.moved_sale(warehouse, strategy, on_key_moved="move")
        warehouse.load(D1, **options)
        warehouse.load_twice(D0, **options)
        assert warehouse.rows("sales") == [sale(D0, 2, "2"), sale(D1, 1, "5"), sale(D1, 3, "3")]

    def test_moving_fails_as_a_whole(self, warehouse: Warehouse, strategy: str) -> None:
        options = self.moved_sale(warehouse, strategy, on_key_moved="move")
        error = raised(lambda: warehouse.load(D1, **options, post_checks=[RowCount(max=0)]))
        assert error.code == "SO-110"
        assert sale(D0, 1, "1") in warehouse.rows("sales")

    def test_a_moved_instant_names_the_day_of_the_zone(self, warehouse: Warehouse, strategy: str) -> None:
        """23:30 in New York is the next day in UTC: the day named is the zone's, and only it is claimed."""
        columns = {"at": "timestamptz", "id": "int"}
        evening = datetime(2026, 1, 3, 4, 30, tzinfo=UTC)
        warehouse.create("raw_events", columns, [(evening, 1)])
        warehouse.create("events", columns)
        options = {
            "table": "events",
            "partition": TimePartition("at", timezone="America/New_York"),
            "sql": "SELECT at, id FROM raw_events WHERE at >= :partition_start AND at < :partition_end",
            "strategy": strategy,
            "unique_key": ["id"],
        }
        start = datetime(2026, 1, 2, 5, tzinfo=UTC)
        day = timedelta(days=1)
        warehouse.load(run(start, start + day), **options)
        warehouse.execute("DELETE FROM raw_events")
        warehouse.insert("raw_events", [(evening + day, 1)])
        error = warehouse.refused("SO-107", run(start + day, start + 2 * day), **options)
        assert error.facts["samples"][0]["at"] == D1.isoformat()
        warehouse.load_twice(run(start + day, start + 2 * day), **options, on_key_moved="move")
        assert warehouse.rows("events") == [(evening + day, 1)]

    @pytest.mark.parametrize("left", ["EU", None])
    def test_a_key_that_moved_between_values(self, warehouse: Warehouse, strategy: str, left: str | None) -> None:
        columns = {"region": "text", "id": "int"}
        warehouse.create("raw_regions", columns, [(left, 1), (left, 2)])
        warehouse.create("regions", columns)
        sql = "SELECT region, id FROM raw_regions WHERE region IS NOT DISTINCT FROM :region"
        options: dict[str, Any] = {"table": "regions", "strategy": strategy, "unique_key": ["id"]}
        where_left = sql if left else sql.replace("IS NOT DISTINCT FROM :region", "IS NULL")
        warehouse.load(**options, sql=where_left, partition=ValuePartition(region=left))
        warehouse.execute("UPDATE raw_regions SET region = 'US' WHERE id = 1")
        options["partition"] = ValuePartition(region="US")
        error = warehouse.refused("SO-107", **options, sql=sql)
        assert error.facts["samples"][0]["region"] == left
        warehouse.load_twice(**options, sql=sql, on_key_moved="move")
        assert warehouse.rows("regions") == [(left, 2), ("US", 1)]

    def test_a_key_that_left_a_partition_without_a_date(self, warehouse: Warehouse, strategy: str) -> None:
        warehouse.sales([sale(D1, 1, "1")], held=[(None, 1, 1), sale(D2, 2, "2")])
        options = {"strategy": strategy, "unique_key": ["id"]}
        warehouse.refused("SO-107", D1, **options)
        warehouse.load_twice(D1, **options, on_key_moved="move")
        assert warehouse.rows("sales") == [sale(D1, 1, "1"), sale(D2, 2, "2")]

    def test_a_key_with_the_partition_s_columns_cannot_move(self, warehouse: Warehouse, strategy: str) -> None:
        warehouse.sales([sale(D0, 1, "1"), sale(D1, 1, "1")])
        for day in (D0, D1):
            warehouse.load_twice(day, strategy=strategy, unique_key=["day", "id"])
        assert len(warehouse.rows("sales")) == 2

    def test_an_index_on_fewer_columns_than_the_key(self, warehouse: Warehouse, strategy: str) -> None:
        """The load's key allows what the table's own index forbids: it is no other writer's fault, and never heals."""
        options: dict[str, Any] = {"strategy": strategy, "unique_key": ["day", "id"], "on_unledgered": "replace"}
        for held, code in (([], "SO-106"), ([sale(D2, 1, "1")], "SO-107")):
            twice = [sale(D1, 1, "1"), *([sale(D0, 1, "2")] if not held else [])]
            warehouse.sales(twice, held=held)
            warehouse.execute("CREATE UNIQUE INDEX ON sales (id)")
            days = TimePartition("day", start=D0, end=D2)
            warehouse.refused(code, **options, partition=days)

    def test_a_row_that_merge_leaves_there(self, warehouse: Warehouse, strategy: str) -> None:
        """The index forbids it beside the staged one; a replacement, or a merge that deletes, takes it away."""
        options: dict[str, Any] = {"unique_key": ["day", "id"], "on_unledgered": "replace", "partition": WholeTable()}
        warehouse.sales([sale(D1, 1, "1")], held=[sale(D2, 1, "1")])
        warehouse.execute("CREATE UNIQUE INDEX ON sales (id)")
        sql = SALES_SQL.partition(" WHERE")[0]
        if strategy == "merge":
            warehouse.refused("SO-602", strategy="merge", sql=sql, **options)
            options["not_matched_by_source"] = "delete"
        warehouse.load_twice(strategy=strategy, sql=sql, **options)
        assert warehouse.rows("sales") == [sale(D1, 1, "1")]
