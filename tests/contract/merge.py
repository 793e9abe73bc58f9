"""The contract of `merge`: rows that differ are updated, new keys inserted, nothing else touched."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from airflow_safe_ops import WholeTable
from tests.contract.harness import D1, D2, SALES_SQL, sale

if TYPE_CHECKING:
    from tests.contract.harness import Warehouse

MERGE: dict[str, Any] = {"strategy": "merge", "unique_key": ["day", "id"]}
COUNTS = ("rows_read", "rows_inserted", "rows_updated", "rows_unchanged", "rows_deleted", "rows_after")


def counts(summary: dict[str, Any]) -> tuple[int, ...]:
    """Read, inserted, updated, unchanged, deleted, after."""
    return tuple(summary[name] for name in COUNTS)


class MergeContract:
    """Merge by key, again and again."""

    def test_a_second_run_changes_nothing_and_says_so(self, warehouse: Warehouse) -> None:
        warehouse.sales([sale(D1, 1, "1"), sale(D1, 2, "2")])
        first, second = warehouse.load_twice(**MERGE)
        assert (counts(first), first["changed"]) == ((2, 2, 0, 0, 0, 2), True)
        assert (counts(second), second["changed"]) == ((2, 0, 0, 2, 0, 2), False)

    def test_each_count_is_what_the_database_did(self, warehouse: Warehouse) -> None:
        warehouse.sales([sale(D1, 1, "1"), sale(D1, 2, "2"), sale(D1, 3, "3")])
        warehouse.load(**MERGE)
        warehouse.source(sale(D1, 1, "1"), sale(D1, 2, "2.5"), sale(D1, 4, "4"))
        assert counts(warehouse.load(**MERGE)) == (3, 1, 1, 1, 0, 4)
        assert warehouse.rows("sales") == [sale(D1, n, a) for n, a in ((1, "1"), (2, "2.5"), (3, "3"), (4, "4"))]

    @pytest.mark.parametrize("others", ["keep", "delete"])
    def test_copies_that_are_there_already_are_refused(self, warehouse: Warehouse, others: str) -> None:
        """A merge cannot tell which copy is right; a replacement needs not to."""
        warehouse.sales([sale(D1, 1, "2")], held=[sale(D1, 1, "1"), sale(D1, 1, "1")])
        options = {**MERGE, "on_unledgered": "replace", "not_matched_by_source": others}
        warehouse.refused("SO-112", **options)
        warehouse.load(on_unledgered="replace")
        warehouse.load_twice(**MERGE)
        assert warehouse.rows("sales") == [sale(D1, 1, "2")]

    def test_copies_that_an_index_on_other_columns_holds_apart_are_refused_for_what_they_are(
        self, warehouse: Warehouse
    ) -> None:
        """Updated, both would be the same row to the index: the database's word alone would be another reason."""
        warehouse.sales([sale(D1, 1, "3"), sale(D1, 2, "2")], held=[sale(D1, 1, "1"), sale(D1, 1, "2")])
        warehouse.execute("CREATE UNIQUE INDEX ON sales (id, amount)")
        held = warehouse.rows("sales")
        warehouse.refused("SO-112", **MERGE, on_unledgered="replace")
        assert warehouse.rows("sales") == held

    def test_a_key_that_is_written_otherwise_is_written_anew(self, warehouse: Warehouse) -> None:
        """1.0 and 1.00 are one key; after the load it stands there as a clean run writes it."""
        warehouse.create("raw_scales", {"day": "date", "id": "numeric"}, [(D1, "1.0")])
        warehouse.create("scales", {"day": "date", "id": "numeric", "v": "int"})
        sql = "SELECT day, id, 1 AS v FROM raw_scales WHERE day >= :partition_start AND day < :partition_end"
        options = {**MERGE, "table": "scales", "sql": sql}
        warehouse.load(**options)
        warehouse.execute("UPDATE raw_scales SET id = 1.00")
        warehouse.load_twice(**options)
        assert [str(row[1]) for row in warehouse.rows("scales")] == ["1.00"]

    def test_rows_the_source_no_longer_has_are_kept(self, warehouse: Warehouse) -> None:
        """A conditional merge dropped the rows it should have left alone (delta-io/delta-rs#2158)."""
        warehouse.sales([sale(D1, 1, "1"), sale(D1, 2, "2")])
        warehouse.load(**MERGE)
        warehouse.source(sale(D1, 1, "1"))
        assert counts(warehouse.load_twice(**MERGE)[0]) == (1, 0, 0, 1, 0, 2)
        assert len(warehouse.rows("sales")) == 2

    def test_rows_the_source_no_longer_has_are_deleted_in_the_partition_where_declared(
        self, warehouse: Warehouse
    ) -> None:
        warehouse.sales([sale(D1, 1, "1"), sale(D1, 2, "2"), sale(D2, 3, "3")])
        warehouse.load(D1, **MERGE)
        warehouse.load(D2, **MERGE)
        warehouse.source(sale(D1, 1, "1"))
        summary, again = warehouse.load_twice(**MERGE, not_matched_by_source="delete")
        assert counts(summary) == (1, 0, 0, 1, 1, 1)
        assert (summary["changed"], again["changed"]) == (True, False)
        assert warehouse.rows("sales") == [sale(D1, 1, "1"), sale(D2, 3, "3")]

    @pytest.mark.parametrize("not_matched", ["keep", "delete"])
    def test_empty_over_rows_is_a_decision(self, warehouse: Warehouse, not_matched: str) -> None:
        options = {**MERGE, "not_matched_by_source": not_matched}
        warehouse.sales([sale(D1, 1, "1")])
        warehouse.load(**options)
        warehouse.source()
        warehouse.refused("SO-101", **options)
        warehouse.load_twice(**options, on_empty="replace")
        assert len(warehouse.rows("sales")) == {"keep": 1, "delete": 0}[not_matched]

    def test_null_differs_from_a_value_and_equals_null(self, warehouse: Warehouse) -> None:
        """`<>` misses a change to or from NULL; an equal NULL is no change (DBDiff/DBDiff#53)."""
        rows = [(D1, 1, None), (D1, 2, 2), (D1, 3, None)]
        warehouse.sales(rows)
        warehouse.load(**MERGE)
        warehouse.source((D1, 1, 1), (D1, 2, None), (D1, 3, None))
        assert counts(warehouse.load(**MERGE)) == (3, 0, 2, 1, 0, 3)
        assert warehouse.rows("sales") == [sale(D1, 1, "1"), (D1, 2, None), (D1, 3, None)]

    def test_text_that_differs_in_a_blank_or_in_case_is_updated(self, warehouse: Warehouse) -> None:
        warehouse.create("raw_texts", {"id": "int", "v": "text"}, [(1, "a"), (2, "b"), (3, "")])
        warehouse.create("texts", {"id": "int", "v": "text"})
        options = {**MERGE, "unique_key": ["id"], "table": "texts", "partition": WholeTable()}
        warehouse.load(**options, sql="SELECT id, v FROM raw_texts")
        warehouse.execute("UPDATE raw_texts SET v = CASE id WHEN 1 THEN 'a ' WHEN 2 THEN 'B' ELSE ' ' END")
        summary = warehouse.load(**options, sql="SELECT id, v FROM raw_texts")
        assert summary["rows_updated"] == 3
        assert warehouse.rows("texts") == [(1, "a "), (2, "B"), (3, " ")]

    def test_floats_are_compared_exactly(self, warehouse: Warehouse) -> None:
        warehouse.create("raw_floats", {"id": "int", "v": "float"}, [(1, 0.1), (2, 0.3), (3, float("nan"))])
        warehouse.create("floats", {"id": "int", "v": "float"})
        options = {**MERGE, "unique_key": ["id"], "table": "floats", "partition": WholeTable()}
        warehouse.load(**options, sql="SELECT id, v FROM raw_floats")
        warehouse.execute("DELETE FROM raw_floats WHERE id = 2")
        warehouse.insert("raw_floats", [(2, 0.1 + 0.2)])
        summary, again = warehouse.load_twice(**options, sql="SELECT id, v FROM raw_floats")
        assert (summary["rows_updated"], again["rows_updated"]) == (1, 0)
        assert warehouse.rows("floats", "v", "WHERE id = 2") == [(0.1 + 0.2,)]

    def test_a_table_of_keys_alone_inserts_what_is_new(self, warehouse: Warehouse) -> None:
        warehouse.create("raw_pairs", {"day": "date", "id": "int"}, [(D1, 1)])
        warehouse.create("pairs", {"day": "date", "id": "int"})
        options = {**MERGE, "table": "pairs", "sql": SALES_SQL.replace(", amount FROM raw_sales", " FROM raw_pairs")}
        warehouse.load_twice(**options)
        warehouse.insert("raw_pairs", [(D1, 2)])
        assert counts(warehouse.load(**options)) == (2, 1, 0, 1, 0, 2)
        assert warehouse.rows("pairs") == [(D1, 1), (D1, 2)]

    def test_a_new_key_twice_in_the_batch_is_refused(self, warehouse: Warehouse) -> None:
        """
        A key that stands twice in the batch and not yet in the target was inserted twice without a word
        (dbt-labs/dbt-core#1556, delta-io/delta#218, delta-io/delta#338, delta-io/delta-rs#2961,
        delta-io/delta-rs#2407).
        """
        warehouse.sales([sale(D1, 7, "1"), sale(D1, 7, "2")])
        warehouse.refused("SO-106", **MERGE)
        assert warehouse.rows("sales") == []

    def test_a_key_column_that_also_is_the_partition_is_not_ambiguous(self, warehouse: Warehouse) -> None:
        """A predicate on a column of both target and stage was ambiguous (dbt-labs/dbt-adapters#230)."""
        warehouse.sales([sale(D1, 1, "1")])
        warehouse.load_twice(**MERGE, not_matched_by_source="delete")
        assert warehouse.rows("sales") == [sale(D1, 1, "1")]

    def test_a_large_batch_of_one_partition_value_is_joined_by_key(self, warehouse: Warehouse) -> None:
        """The delete joined 20,000 rows with 20,000 on the partition's value (dbt-labs/dbt-adapters#150, #2039)."""
        number = 2000
        warehouse.sales([sale(D1, n, n) for n in range(number)])
        warehouse.load(**MERGE)
        assert counts(warehouse.load(**MERGE, not_matched_by_source="delete")) == (number, 0, 0, number, 0, number)

    def test_a_key_of_another_type_than_text_is_compared_as_it_is(self, warehouse: Warehouse) -> None:
        """Concatenated keys collide: (1, 11) and (11, 1) (datafold/data-diff#807, dlt-hub/dlt#4274)."""
        columns = {"a": "int", "b": "int", "s": "text", "u": "text", "v": "int"}
        rows = [(1, 11, "a-b", "c", 1), (11, 1, "a-b", "c", 2), (1, 11, "a", "b-c", 3), (1, 11, "a", "b-c ", 4)]
        warehouse.create("raw_compound", columns, rows)
        warehouse.create("compound", columns)
        options = {**MERGE, "unique_key": ["a", "b", "s", "u"], "table": "compound", "partition": WholeTable()}
        first, second = warehouse.load_twice(**options, sql="SELECT a, b, s, u, v FROM raw_compound")
        assert (first["rows_inserted"], second["rows_unchanged"]) == (4, 4)

    def test_rows_that_no_ledger_knows_are_refused(self, warehouse: Warehouse) -> None:
        warehouse.sales([sale(D1, 1, "1")], held=[sale(D1, 7, "7")])
        warehouse.refused("SO-102", **MERGE)
        warehouse.load_twice(**MERGE, on_unledgered="replace")
        assert warehouse.rows("sales") == [sale(D1, 1, "1"), sale(D1, 7, "7")]

    def test_the_two_strategies_share_one_ledger(self, warehouse: Warehouse) -> None:
        warehouse.sales([sale(D1, 1, "1")])
        warehouse.load()
        assert counts(warehouse.load(**MERGE)) == (1, 0, 0, 1, 0, 1)
        assert warehouse.load()["changed"] is False
        assert len(warehouse.partitions()) == 1

    def test_a_second_row_that_the_query_leaves_out_is_no_duplicate(self, warehouse: Warehouse) -> None:
        """Two source rows match one key, and one of them would change nothing (delta-io/delta-rs#4359)."""
        warehouse.sales([sale(D1, 1, "1"), sale(D1, 1, "-1")])
        wanted = SALES_SQL + " AND amount > 0"
        warehouse.load_twice(**MERGE, sql=wanted)
        assert warehouse.rows("sales") == [sale(D1, 1, "1")]
        warehouse.refused("SO-106", **MERGE)
