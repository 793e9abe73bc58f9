"""The contract of `append_once`: rows are only ever added, those of one load once, whatever became of the ledger."""

from __future__ import annotations

from datetime import date
from typing import TYPE_CHECKING, Any

import pytest

from airflow_safe_ops import RowCount, TimePartition, WholeTable
from tests.contract.harness import D0, D1, D2, SALES_SQL, run, sale

if TYPE_CHECKING:
    from tests.contract.harness import Warehouse

ONCE: dict[str, Any] = {"strategy": "append_once"}
EVENTS = {"day": "date", "id": "int", "amount": "numeric", "file": "text"}
OF_FILE = "SELECT day, id, amount FROM raw_events WHERE file = :source_slice"
MONTH = TimePartition("day", grain="month", start=date(2026, 1, 1), end=date(2026, 2, 1))


def of_file(name: str, *, column: bool = False, **more: Any) -> dict[str, Any]:
    """Options of the load of one file's events into the whole table."""
    by_key = {"unique_key": ["id"], "columns": ["day", "id", "amount"]}
    found_by = {"source_slice_column": "file"} if column else by_key
    fixed = {"table": "events", "sql": OF_FILE, "partition": WholeTable(), "source_slice": name}
    return {**ONCE, **fixed, **found_by, **more}


class AppendOncePartitionContract:
    """One load a partition."""

    def test_a_second_run_appends_nothing(self, warehouse: Warehouse) -> None:
        """Rows were read again after a crash and reached the target twice (dlt-hub/dlt#3023, dlt-hub/dlt#3767)."""
        rows = [sale(D1, 1, "10"), sale(D1, 2, "20"), sale(D1, 2, "20")]
        warehouse.sales([*rows, sale(D2, 3, "5")])
        first, second = warehouse.load_twice(**ONCE)
        assert warehouse.rows("sales") == rows
        assert (first["rows_inserted"], first["rows_unchanged"], first["changed"]) == (3, 0, True)
        assert (second["rows_inserted"], second["rows_unchanged"], second["changed"]) == (0, 3, False)
        assert [(state, count) for _, state, count, *_ in warehouse.partitions()] == [("published", 3)]

    def test_every_way_to_run_a_day_appends_it_once(self, warehouse: Warehouse) -> None:
        warehouse.sales([sale(D1, 1, "1"), sale(D1, 1, "1")])
        ways = [run(D1), run(D1, try_number=2), run(D1, run_id="backfill__1"), run(D1, run_id="manual__1", map_index=3)]
        for context in ways:
            warehouse.load(context, **ONCE)
        assert warehouse.rows("sales") == [sale(D1, 1, "1")] * 2
        assert warehouse.states() == ["published"] * 4

    @pytest.mark.parametrize("after", [[sale(D1, 1, "11")], [sale(D1, 1, "10"), sale(D1, 2, "20")]])
    def test_other_rows_are_refused(self, warehouse: Warehouse, after: list[Any]) -> None:
        warehouse.sales([sale(D1, 1, "10")])
        warehouse.load(**ONCE)
        warehouse.source(*after)
        error = warehouse.refused("SO-113", **ONCE)
        assert (error.facts["staged"], error.facts["found"], error.facts["recorded"]) == (len(after), 1, 1)

    def test_one_value_for_another_is_another_content(self, warehouse: Warehouse) -> None:
        """The number of rows and every column's sum stay the same: two rows change places."""
        warehouse.sales([sale(D1, 1, "10"), sale(D1, 2, "20")])
        warehouse.load(**ONCE)
        warehouse.source(sale(D1, 1, "20"), sale(D1, 2, "10"))
        warehouse.refused("SO-113", **ONCE)

    def test_other_rows_are_left_out_where_declared(self, warehouse: Warehouse) -> None:
        warehouse.sales([sale(D1, 1, "10")])
        warehouse.load(**ONCE)
        partitions = warehouse.partitions()
        for rows in ([sale(D1, 1, "11"), sale(D1, 2, "2")], []):
            warehouse.source(*rows)
            assert warehouse.load(**ONCE, on_changed="skip")["changed"] is False
        assert warehouse.rows("sales") == [sale(D1, 1, "10")]
        assert warehouse.partitions() == partitions

    def test_an_empty_source_over_appended_rows_is_refused(self, warehouse: Warehouse) -> None:
        warehouse.sales([sale(D1, 1, "10")])
        warehouse.load(**ONCE)
        warehouse.source()
        warehouse.refused("SO-101", **ONCE)

    def test_what_was_empty_is_appended_when_it_comes(self, warehouse: Warehouse) -> None:
        warehouse.sales()
        warehouse.load_twice(**ONCE)
        warehouse.source(sale(D1, 1, "10"))
        assert warehouse.load(**ONCE)["rows_inserted"] == 1
        warehouse.load_twice(**ONCE)
        assert warehouse.rows("sales") == [sale(D1, 1, "10")]

    def test_a_lost_ledger_doubles_nothing(self, warehouse: Warehouse) -> None:
        """Data were there and their record was not (dlt-hub/dlt#4052, dlt-hub/dlt#4023)."""
        warehouse.sales([sale(D1, 1, "10"), sale(D1, 2, "20")])
        warehouse.load(**ONCE)
        warehouse.lose_ledger()
        warehouse.refused("SO-102", **ONCE)
        first, second = warehouse.load_twice(**ONCE, on_unledgered="adopt")
        assert (first["rows_inserted"], second["rows_inserted"]) == (0, 0)
        assert [(state, rows) for _, state, rows, *_ in warehouse.partitions()] == [("adopted", 2)]
        warehouse.load_twice(**ONCE)
        assert len(warehouse.rows("sales")) == 2

    def test_an_older_ledger_doubles_nothing(self, warehouse: Warehouse) -> None:
        """The ledger comes from a backup that was made before the last loads."""
        warehouse.sales([sale(D1, 1, "10")])
        warehouse.load(D0, **ONCE)
        backup = warehouse.backup_ledger()
        warehouse.load(D1, **ONCE)
        warehouse.restore_ledger(backup)
        warehouse.load_twice(D0, **ONCE)
        warehouse.refused("SO-102", D1, **ONCE)
        warehouse.load_twice(D1, **ONCE, on_unledgered="adopt")
        assert warehouse.rows("sales") == [sale(D1, 1, "10")]

    def test_an_older_record_of_the_partition_doubles_nothing(self, warehouse: Warehouse) -> None:
        """The backup says that the day was empty; rows were appended since."""
        warehouse.sales()
        warehouse.load(**ONCE)
        backup = warehouse.backup_ledger()
        warehouse.source(sale(D1, 1, "10"))
        warehouse.load(**ONCE)
        warehouse.restore_ledger(backup)
        warehouse.refused("SO-102", **ONCE)
        assert warehouse.rows("sales") == [sale(D1, 1, "10")]

    def test_only_the_same_rows_are_adopted(self, warehouse: Warehouse) -> None:
        """A part of the day that an older job left, and a day that it doubled."""
        for held in ([sale(D1, 1, "10")], [sale(D1, 1, "10"), sale(D1, 2, "20")] * 2):
            warehouse.sales([sale(D1, 1, "10"), sale(D1, 2, "20")], held=held)
            error = warehouse.refused("SO-113", **ONCE, on_unledgered="adopt")
            assert (error.facts["found"], error.facts["recorded"]) == (len(held), None)

    def test_a_month_over_its_days_doubles_nothing(self, warehouse: Warehouse) -> None:
        warehouse.sales([sale(D1, 1, "1"), sale(D2, 2, "2")])
        warehouse.load(D1, **ONCE)
        warehouse.refused("SO-102", **ONCE, partition=MONTH)
        warehouse.refused("SO-113", **ONCE, partition=MONTH, on_unledgered="adopt")
        assert warehouse.rows("sales") == [sale(D1, 1, "1")]

    def test_a_day_after_its_month_doubles_nothing(self, warehouse: Warehouse) -> None:
        warehouse.sales([sale(D1, 1, "1"), sale(D2, 2, "2")])
        warehouse.load(**ONCE, partition=MONTH)
        warehouse.refused("SO-102", D1, **ONCE)
        warehouse.load_twice(D1, **ONCE, on_unledgered="adopt")
        assert len(warehouse.rows("sales")) == 2

    def test_appended_rows_that_are_gone(self, warehouse: Warehouse) -> None:
        warehouse.sales([sale(D1, 1, "10")])
        warehouse.load(**ONCE)
        warehouse.execute("DELETE FROM sales")
        error = warehouse.refused("SO-114", **ONCE)
        assert error.facts["recorded"] == 1

    def test_rows_deleted_by_hand_are_noticed(self, warehouse: Warehouse) -> None:
        warehouse.sales([sale(D1, 1, "10"), sale(D1, 2, "20")])
        warehouse.load(**ONCE)
        warehouse.execute("DELETE FROM sales WHERE id = 2")
        warehouse.refused("SO-113", **ONCE)

    def test_a_replacement_in_between(self, warehouse: Warehouse) -> None:
        """Another strategy wrote the partition: what stands there counts, not what was appended once."""
        warehouse.sales([sale(D1, 1, "10")])
        warehouse.load(**ONCE)
        warehouse.load()
        assert warehouse.load(**ONCE)["rows_inserted"] == 0
        warehouse.source(sale(D1, 2, "20"))
        warehouse.load()
        assert warehouse.load(**ONCE)["rows_inserted"] == 0
        assert warehouse.rows("sales") == [sale(D1, 2, "20")]

    def test_another_writer_rolls_it_back(self, warehouse: Warehouse) -> None:
        warehouse.sales([sale(D1, 1, "1")])
        runner = warehouse.runner(**ONCE)

        def write(step: str, when: str) -> None:
            if (step, when) == ("target.insert", "after"):
                assert warehouse.another_writer("INSERT INTO sales SELECT day, id, 1 FROM raw_sales")

        runner.observe = write
        with pytest.raises(Exception, match="SO-111"):
            runner.execute()
        assert warehouse.rows("sales") == [sale(D1, 1, "1")]
        assert warehouse.partitions() == []

    def test_other_guards_hold(self, warehouse: Warehouse) -> None:
        warehouse.sales([sale(D1, 1, "1"), sale(D1, 1, "2"), sale(D2, 2, "2")])
        unfiltered = SALES_SQL.partition(" WHERE")[0]
        warehouse.refused("SO-104", **ONCE, sql=unfiltered)
        warehouse.refused("SO-106", **ONCE, unique_key=["id"])
        warehouse.refused("SO-109", **ONCE, audits=[RowCount(min=3)])
        warehouse.refused("SO-110", **ONCE, post_checks=[RowCount(min=3)])
        latest = {"unique_key": ["id"], "on_duplicates": "keep_latest", "sequence_by": "amount"}
        warehouse.load_twice(**ONCE, **latest)
        assert warehouse.rows("sales") == [sale(D1, 1, "2")]

    def test_a_key_of_another_partition_is_refused(self, warehouse: Warehouse) -> None:
        warehouse.sales([sale(D1, 1, "1")])
        warehouse.load(**ONCE, unique_key=["id"])
        warehouse.source(sale(D1, 1, "1"), sale(D2, 1, "1"))
        warehouse.refused("SO-107", D2, **ONCE, unique_key=["id"])

    @pytest.mark.parametrize(
        "options",
        [
            {"on_empty": "replace"},
            {"on_unledgered": "replace"},
            {"on_key_moved": "move", "unique_key": ["id"]},
            {"not_matched_by_source": "delete"},
            {"source_slice": "a"},
            {"source_slice": " ", "unique_key": ["id"]},
            {"source_slice_column": "file"},
            {"source_slice": "a", "source_slice_column": "day"},
            {"strategy": "delete_insert", "on_changed": "skip"},
            {"strategy": "delete_insert", "source_slice": "a", "unique_key": ["id"]},
            {"strategy": "merge", "on_unledgered": "adopt", "unique_key": ["id"]},
        ],
        ids=str,
    )
    def test_what_does_not_fit(self, warehouse: Warehouse, options: dict[str, Any]) -> None:
        warehouse.sales([sale(D1, 1, "1")])
        warehouse.refused("SO-201", **{**ONCE, **options})


class AppendOnceSliceContract:
    """Several slices of a source in one partition, told by a key or by a column of the target."""

    @pytest.fixture(autouse=True)
    def _events(self, warehouse: Warehouse) -> None:
        rows = [(D1, 1, 1, "a"), (D2, 2, 2, "a"), (D1, 3, 3, "b"), (None, 4, 4, "b")]
        warehouse.create("raw_events", EVENTS, rows)
        warehouse.create("events", {**EVENTS, "file": "text DEFAULT 'unknown'"})

    @pytest.mark.parametrize("column", [False, True], ids=["key", "column"])
    def test_each_slice_is_appended_once(self, warehouse: Warehouse, column: bool) -> None:
        for name in ("a", "b", "a", "b"):
            warehouse.load(**of_file(name, column=column))
        found = warehouse.rows("events", "id, file")
        names = "aabb" if column else ["unknown"] * 4
        assert found == list(zip([1, 2, 3, 4], names, strict=True))
        assert sorted(warehouse.ledger("partition", "partition_key, state, row_count, source_slice")) == [
            ("* [a]", "published", 2, "a"),
            ("* [b]", "published", 2, "b"),
        ]

    @pytest.mark.parametrize("column", [False, True], ids=["key", "column"])
    def test_a_lost_ledger_doubles_nothing(self, warehouse: Warehouse, column: bool) -> None:
        for name in ("a", "b"):
            warehouse.load(**of_file(name, column=column))
        warehouse.lose_ledger()
        warehouse.refused("SO-102", **of_file("a", column=column))
        warehouse.load_twice(**of_file("a", column=column), on_unledgered="adopt")
        assert len(warehouse.rows("events")) == 4
        assert [state for _, state, *_ in warehouse.partitions()] == ["adopted"]

    @pytest.mark.parametrize("column", [False, True], ids=["key", "column"])
    @pytest.mark.parametrize(
        "change",
        [
            "UPDATE raw_events SET amount = 9 WHERE id = 2",
            "DELETE FROM raw_events WHERE id = 2",
            "UPDATE raw_events SET id = 12 WHERE id = 2",
            "INSERT INTO raw_events VALUES ('2026-01-02', 7, 7, 'a')",
        ],
        ids=["value", "less", "key", "more"],
    )
    def test_a_changed_slice(self, warehouse: Warehouse, column: bool, change: str) -> None:
        warehouse.load(**of_file("a", column=column))
        before = warehouse.rows("events"), warehouse.partitions()
        warehouse.execute(change)
        warehouse.refused("SO-113", **of_file("a", column=column))
        warehouse.load(**of_file("a", column=column), on_changed="skip")
        assert (warehouse.rows("events"), warehouse.partitions()) == before

    def test_all_keys_of_a_slice_changed(self, warehouse: Warehouse) -> None:
        """By its key alone no row of the slice is found: the ledger knows that there were some."""
        warehouse.load(**of_file("a"))
        warehouse.execute("UPDATE raw_events SET id = id + 100 WHERE file = 'a'")
        warehouse.refused("SO-114", **of_file("a"))

    def test_one_key_in_two_slices(self, warehouse: Warehouse) -> None:
        warehouse.load(**of_file("a", column=True, unique_key=["id"]))
        warehouse.execute("UPDATE raw_events SET id = 1 WHERE id = 3")
        warehouse.refused("SO-107", **of_file("b", column=True, unique_key=["id"]))
        warehouse.refused("SO-102", **of_file("b"))

    def test_slices_of_a_day(self, warehouse: Warehouse) -> None:
        """Each file holds rows of several days; a load takes a day's part of one."""
        sql = OF_FILE + " AND day >= :partition_start AND day < :partition_end"
        for name in ("a", "b", "a"):
            for day in (D1, D2):
                warehouse.load(day, **of_file(name, column=True, sql=sql, partition=TimePartition("day")))
        assert warehouse.rows("events", "id, file") == [(1, "a"), (2, "a"), (3, "b")]
        month = of_file("a", column=True, sql=sql, partition=MONTH)
        warehouse.refused("SO-102", **month)

    def test_a_replacement_does_not_take_a_slice_for_the_whole(self, warehouse: Warehouse) -> None:
        """The ledger knows one slice of the table; the other rows are nobody's."""
        warehouse.load(**of_file("a", column=True))
        warehouse.execute("INSERT INTO events VALUES ('2026-01-02', 99, 1, 'by hand')")
        whole = {"table": "events", "partition": WholeTable(), "sql": "SELECT * FROM raw_events"}
        warehouse.refused("SO-102", **whole)
        warehouse.load(**whole, on_unledgered="replace")
        warehouse.refused("SO-102", **of_file("b", column=True))

    def test_the_slice_may_be_of_another_type(self, warehouse: Warehouse) -> None:
        warehouse.create("events", {**EVENTS, "file": "int"})
        sql = "SELECT day, id, amount FROM raw_events WHERE CAST(:source_slice AS int) = 7"
        warehouse.load_twice(**of_file("7", column=True, sql=sql))
        warehouse.refused("SO-102", **of_file("07", column=True, sql=sql))
        assert warehouse.rows("events", "file") == [(7,)] * 4

    def test_the_query_does_not_return_the_slice(self, warehouse: Warehouse) -> None:
        error = warehouse.refused("SO-108", **of_file("a", column=True, sql=OF_FILE.replace("amount", "amount, file")))
        assert error.facts["extra"] == ["file"]
        warehouse.refused("SO-302", **of_file("a", column=True, source_slice_column="nowhere"))
        warehouse.refused("SO-201", **of_file("a"), parameters={"source_slice": "b"})

    def test_a_slice_whose_name_is_odd(self, warehouse: Warehouse) -> None:
        name = 'a\'b "c" %s [x] :y ;--'
        warehouse.execute("UPDATE raw_events SET file = $n$a'b \"c\" %s [x] :y ;--$n$ WHERE file = 'a'")
        warehouse.load_twice(**of_file(name, column=True))
        assert warehouse.rows("events", "id, file") == [(1, name), (2, name)]
