"""The contract of `delete_insert`: the partition's rows are what the query returns, all or nothing."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import pytest

from airflow_safe_ops import RowCount, TimePartition, WholeTable
from tests.contract.harness import D0, D1, D2, D3, SALES_SQL, raised, run, sale

if TYPE_CHECKING:
    from tests.contract.harness import Row, Warehouse


class DeleteInsertContract:
    """Replace a partition, again and again."""

    def test_a_second_run_changes_nothing(self, warehouse: Warehouse) -> None:
        """An overwrite that became an append (delta-io/delta-rs#4126): the second run holds the batch once."""
        rows = [sale(D1, 1, "10"), sale(D1, 2, "20.5")]
        warehouse.sales([*rows, sale(D2, 3, "5")])
        first, second = warehouse.load_twice()
        assert warehouse.rows("sales") == rows
        assert (first["rows_read"], first["rows_deleted"], first["rows_inserted"], first["rows_after"]) == (2, 0, 2, 2)
        assert (second["rows_read"], second["rows_deleted"], second["rows_inserted"]) == (2, 2, 2)
        assert (first["changed"], second["changed"]) == (True, False)

    def test_what_the_source_holds_now_replaces_what_it_held(self, warehouse: Warehouse) -> None:
        warehouse.sales([sale(D1, 1, "10"), sale(D1, 2, "20")])
        warehouse.load()
        warehouse.source(sale(D1, 2, "21"), sale(D1, 3, "30"))
        summary = warehouse.load()
        assert warehouse.rows("sales") == [sale(D1, 2, "21"), sale(D1, 3, "30")]
        assert summary["changed"] is True

    def test_only_the_declared_partition_changes(self, warehouse: Warehouse) -> None:
        """
        A static overwrite wiped every other partition (aws-samples/dbt-glue#49, databricks/dbt-databricks#696,
        databricks/dbt-databricks#697, delta-io/delta#371).
        """
        rows = [sale(D0, 1, "1"), sale(D1, 2, "2"), sale(D2, 3, "3")]
        warehouse.sales(rows)
        for day in (D0, D1, D2):
            warehouse.load(day)
        warehouse.source(sale(D1, 9, "9"))
        warehouse.load(D1)
        assert warehouse.rows("sales") == [rows[0], sale(D1, 9, "9"), rows[2]]

    def test_other_partitions_keep_their_values_not_only_their_number(self, warehouse: Warehouse) -> None:
        """Untouched rows kept their number and lost their partition column (NVIDIA/cudf-spark#15926)."""
        regions = ["DE", "FR", "US", "ZA"]
        warehouse.create("raw_regions", {"region": "text", "id": "int"}, [(r, n) for n, r in enumerate(regions)])
        warehouse.create("regions", {"region": "text", "id": "int"})
        for region in [*regions, "FR"]:
            warehouse.load(
                table="regions",
                partition={"region": region},
                sql="SELECT region, id FROM raw_regions WHERE region = :region",
            )
        assert warehouse.rows("regions", "region, count(*)", "GROUP BY region") == [(r, 1) for r in regions]

    def test_a_query_that_fails_leaves_the_old_rows(self, warehouse: Warehouse) -> None:
        """
        The delete succeeded and the insert failed (SQLMesh/sqlmesh#5843), or the rows broke off in the middle
        (apache/airflow#1262).
        """
        warehouse.sales([sale(D1, 1, "10")])
        warehouse.load()
        warehouse.source(sale(D1, 1, "1"), sale(D1, 2, "0"))
        error = warehouse.refused("SO-602", sql=SALES_SQL.replace("amount FROM", "1 / amount AS amount FROM"))
        assert error.terminal
        assert warehouse.rows("sales") == [sale(D1, 1, "10")]
        assert warehouse.states() == ["published", "failed"]

    def test_a_row_the_table_refuses_leaves_the_old_rows(self, warehouse: Warehouse) -> None:
        """A truncate committed on its own; NULL in a NOT NULL column left an empty table (dlt-hub/dlt#3025)."""
        warehouse.sales([sale(D1, 1, "10"), sale(D2, 2, "20"), sale(D3, 3, "30")])
        warehouse.create("sales", {"day": "date", "id": "int", "amount": "numeric NOT NULL"})
        whole = {"partition": WholeTable(), "sql": "SELECT day, id, amount FROM raw_sales"}
        warehouse.load(**whole)
        warehouse.execute("UPDATE raw_sales SET amount = NULL WHERE id = 3")
        warehouse.refused("SO-602", **whole)
        assert len(warehouse.rows("sales")) == 3

    def test_readers_see_the_old_rows_or_the_new(self, warehouse: Warehouse) -> None:
        """Readers saw an empty table (snowplow/dbt-snowplow-utils#197, microsoft/dbt-fabric#393)."""
        warehouse.sales([sale(D1, 1, "10"), sale(D1, 2, "20")])
        warehouse.load()
        old = warehouse.rows("sales")
        warehouse.source(sale(D1, 3, "30"))
        seen: list[list[Row]] = []
        runner = warehouse.runner()
        runner.observe = lambda _step, _when: seen.append(warehouse.rows("sales"))
        runner.execute()
        new = warehouse.rows("sales")
        assert new == [sale(D1, 3, "30")]
        assert seen[0] == old
        assert all(rows in (old, new) for rows in seen)

    def test_a_window_read_from_the_target_is_read_once(self, warehouse: Warehouse) -> None:
        """max(date) of the target changed between delete and insert; older rows came twice (dbt-labs/dbt-core#138)."""
        warehouse.sales([sale(D1, 1, "1"), sale(D2, 2, "2")])
        whole = {"partition": WholeTable(), "strategy": "merge", "unique_key": ["day", "id"]}
        warehouse.load(**whole, sql="SELECT day, id, amount FROM raw_sales")
        warehouse.source(sale(D1, 1, "1"), sale(D2, 2, "2"), sale(D2, 3, "3"))
        since = "SELECT day, id, amount FROM raw_sales WHERE day >= (SELECT max(day) FROM sales)"
        warehouse.load_twice(**whole, sql=since)
        assert len(warehouse.rows("sales")) == 3

    def test_empty_over_rows_is_refused(self, warehouse: Warehouse) -> None:
        """
        The source returned nothing and old rows stayed, because the delete went by the source's keys
        (apache/hudi#9811, databricks/dbt-databricks#1217, smart-data-lake#276).
        """
        warehouse.sales([sale(D1, 1, "1"), sale(D2, 2, "2")])
        warehouse.load()
        warehouse.source(sale(D2, 2, "2"))
        warehouse.refused("SO-101")
        assert warehouse.rows("sales") == [sale(D1, 1, "1")]

    def test_empty_over_rows_replaces_where_declared(self, warehouse: Warehouse) -> None:
        warehouse.sales([sale(D1, 1, "1"), sale(D2, 2, "2")])
        warehouse.load(D1)
        warehouse.load(D2)
        warehouse.source(sale(D2, 2, "2"))
        _, second = warehouse.load_twice(on_empty="replace")
        assert warehouse.rows("sales") == [sale(D2, 2, "2")]
        assert second["changed"] is False

    def test_empty_over_nothing_is_published_as_empty(self, warehouse: Warehouse) -> None:
        """Overwriting with no data failed (delta-io/delta-rs#3959, delta-io/delta-rs#3939)."""
        warehouse.sales()
        first, second = warehouse.load_twice()
        assert (first["rows_after"], second["changed"]) == (0, False)
        assert [(state, rows) for _, state, rows, *_ in warehouse.partitions()] == [("published", 0)]

    def test_rows_that_no_ledger_knows_are_refused(self, warehouse: Warehouse) -> None:
        warehouse.sales([sale(D1, 1, "1")], held=[sale(D1, 7, "7"), sale(D2, 8, "8")])
        warehouse.refused("SO-102")
        warehouse.load(on_unledgered="replace")
        assert warehouse.rows("sales") == [sale(D1, 1, "1"), sale(D2, 8, "8")]
        warehouse.load()

    def test_unknown_rows_elsewhere_do_not_matter(self, warehouse: Warehouse) -> None:
        warehouse.sales([sale(D1, 1, "1")], held=[sale(D2, 8, "8")])
        warehouse.load_twice()
        assert warehouse.rows("sales") == [sale(D1, 1, "1"), sale(D2, 8, "8")]

    def test_another_writer_in_the_partition_rolls_the_load_back(self, warehouse: Warehouse) -> None:
        """An append beside an overwrite: both were kept, the data doubled (delta-io/delta#550)."""
        warehouse.sales([sale(D1, 1, "1")])
        warehouse.load()
        warehouse.source(sale(D1, 1, "2"))
        error = raised(lambda: self._load_with_a_writer_beside(warehouse))
        assert (error.code, error.terminal) == ("SO-111", False)
        assert warehouse.rows("sales") == [sale(D1, 1, "1"), sale(D1, 1, "1")]
        assert warehouse.states() == ["published", "failed"]
        warehouse.load(on_unledgered="replace")
        assert warehouse.rows("sales") == [sale(D1, 1, "2")]

    @staticmethod
    def _load_with_a_writer_beside(warehouse: Warehouse) -> None:
        runner = warehouse.runner()

        def write(step: str, when: str) -> None:
            if (step, when) == ("target.delete", "after"):
                assert warehouse.another_writer("INSERT INTO sales SELECT day, id, 1 FROM raw_sales")

        runner.observe = write
        runner.execute()

    def test_exclusive_keeps_other_writers_out_and_lets_readers_in(self, warehouse: Warehouse) -> None:
        warehouse.sales([sale(D1, 1, "1")])
        runner = warehouse.runner(exclusive=True)
        got_in: list[bool] = []
        seen: list[list[Row]] = []

        def write(step: str, when: str) -> None:
            if (step, when) == ("target.insert", "after"):
                got_in.append(warehouse.another_writer("INSERT INTO sales SELECT day, 99, amount FROM raw_sales", 0.2))
                seen.append(warehouse.rows("sales"))

        runner.observe = write
        runner.execute()
        assert (got_in, seen) == ([False], [[]])
        assert warehouse.rows("sales") == [sale(D1, 1, "1")]
        warehouse.load_twice(exclusive=True)

    def test_source_rows_that_arrive_during_the_load_come_with_the_next_run(self, warehouse: Warehouse) -> None:
        """Two steps of one run used different cut-offs (dbt-labs/dbt-core#10819): audits see what is published."""
        warehouse.sales([sale(D1, 1, "1")])
        runner = warehouse.runner()

        def grow(step: str, when: str) -> None:
            if (step, when) == ("stage.fill", "after"):
                warehouse.insert("raw_sales", [sale(D1, 2, "2")])

        runner.observe = grow
        runner.execute()
        assert warehouse.rows("sales") == [sale(D1, 1, "1")]
        warehouse.load()
        assert warehouse.rows("sales") == [sale(D1, 1, "1"), sale(D1, 2, "2")]

    def test_every_way_to_run_a_day_ends_in_the_same_rows(self, warehouse: Warehouse) -> None:
        """
        First run, retry, clear, catch-up, backfill and manual run: what doubled a table by plain INSERT. One task
        owns delete and insert: clearing it repeats both (stellar/stellar-etl-airflow#421).
        """
        warehouse.sales([sale(D1, 1, "1"), sale(D1, 1, "1"), sale(D2, 2, "2")])
        contexts = [
            run(D1),
            run(D1, try_number=2),
            run(D1, run_id="backfill__1"),
            run(D1, run_id="manual__1", map_index=3),
        ]
        for context in contexts:
            warehouse.load(context)
        assert warehouse.rows("sales") == [sale(D1, 1, "1"), sale(D1, 1, "1")]
        assert warehouse.states() == ["published"] * 4
        assert len(warehouse.partitions()) == 1

    @pytest.mark.parametrize("step", ["stage.create", "stage.fill", "stage.look", "target.delete", "target.count"])
    def test_another_day_is_loaded_in_the_middle(self, warehouse: Warehouse, step: str) -> None:
        """
        A stage named after its table alone is dropped or loaded by the other run (dbt-labs/dbt-core#2881,
        dbt-labs/dbt-core#5291, elementary-data/elementary#1919); runs beside each other must not wait for each
        other's new rows either (apache/airflow#1978).
        """
        warehouse.sales([sale(D1, 1, "1"), sale(D2, 2, "2"), sale(D2, 3, "3")])
        runner = warehouse.runner(run(D1))

        def load_another(at: str, when: str) -> None:
            if (at, when) == (step, "after"):
                warehouse.operator().execute(run(D2))

        runner.observe = load_another
        runner.execute()
        assert warehouse.rows("sales") == [sale(D1, 1, "1"), sale(D2, 2, "2"), sale(D2, 3, "3")]
        assert [rows for _, _, rows, *_ in warehouse.partitions()] == [1, 2]

    def test_a_load_uses_one_connection(self, warehouse: Warehouse) -> None:
        """A connection that is opened again in mid-load has lost its stage and its locks (apache/airflow#40607)."""
        warehouse.sales([sale(D1, 1, "1")])
        runner = warehouse.runner()
        connect, opened = runner.connect, []

        def counted() -> Any:
            opened.append(connect())
            return opened[-1]

        runner.session = dataclasses.replace(runner, connect=counted).session
        runner.execute()
        assert len(opened) == 1
        assert warehouse.rows("sales") == [sale(D1, 1, "1")]

    def test_the_bounds_of_an_earlier_run_are_forgotten(self, warehouse: Warehouse) -> None:
        """The first run was given a range of its own; the next one owns its own day again (dlt-hub/dlt#3190)."""
        warehouse.sales([sale(D1, 1, "1"), sale(D2, 2, "2"), sale(D3, 3, "3")])
        warehouse.load(D1, partition=TimePartition("day", start=D1, end=D3))
        warehouse.source(sale(D1, 1, "11"), sale(D2, 2, "22"), sale(D3, 3, "33"))
        warehouse.load(D3)
        assert warehouse.rows("sales") == [sale(D1, 1, "1"), sale(D2, 2, "2"), sale(D3, 3, "33")]

    def test_a_failed_load_undoes_its_ddl_too(self, warehouse: Warehouse) -> None:
        """
        DDL in mid-transaction committed it, and the rollback restored nothing (golang-migrate/migrate#584,
        matrixorigin/matrixone#28256, HazelnutParadise/insyra#298).
        """
        warehouse.sales([sale(D1, 1, "1")])
        warehouse.load()
        with_note = SALES_SQL.replace("amount FROM", "amount, 'x' AS note FROM")
        before = warehouse.snapshot()
        warehouse.refused("SO-110", sql=with_note, on_schema_change="append_new_columns", post_checks=[RowCount(min=2)])
        assert warehouse.snapshot() == before
