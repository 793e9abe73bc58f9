"""The contract of refusals: what names no partition, no table or no safe write is refused, and nothing is written."""

from __future__ import annotations

import threading
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from airflow_safe_ops import TimePartition, ValuePartition, WholeTable
from airflow_safe_ops.errors import SafeOpsError
from tests.contract.harness import D0, D1, D2, DAY, SALES_SQL, raised, run, sale

if TYPE_CHECKING:
    from tests.contract.harness import Warehouse

MIDNIGHT = datetime(2026, 1, 3, tzinfo=UTC)
UNFILTERED = "SELECT day, id, amount FROM raw_sales"


class RefusalContract:
    """Every refusal by its code; a code never changes its meaning."""

    @pytest.fixture(autouse=True)
    def _sales(self, warehouse: Warehouse) -> None:
        warehouse.sales([sale(D1, 1, "1"), sale(D1, 2, "2")], held=[sale(D0, 7, "7")])

    # --- the run -----------------------------------------------------------------------------------------------

    def test_a_run_without_a_date(self, warehouse: Warehouse) -> None:
        warehouse.refused("SO-203", run(None))

    @pytest.mark.parametrize("period", ["ending_at_logical_date", "starting_at_logical_date", "partition_date"])
    def test_a_run_without_the_date_that_is_meant(self, warehouse: Warehouse, period: Any) -> None:
        warehouse.refused("SO-203", run(None), partition=TimePartition("day", period=period))

    def test_an_interval_without_length(self, warehouse: Warehouse) -> None:
        """A manual run got an interval of no length, the next period was skipped (apache/airflow#70089)."""
        warehouse.refused("SO-204", run(MIDNIGHT, MIDNIGHT), partition=TimePartition("day", period="data_interval"))

    def test_an_interval_that_cuts_through_days(self, warehouse: Warehouse) -> None:
        odd = run(MIDNIGHT - timedelta(hours=5), MIDNIGHT + timedelta(hours=19))
        warehouse.refused("SO-205", odd, partition=TimePartition("day", period="data_interval"))

    @pytest.mark.parametrize("grain", ["day", "month", "year"])
    def test_an_open_partition(self, warehouse: Warehouse, grain: Any) -> None:
        """A backfill up to today wrote what the schedule writes (mozilla/bigquery-etl#3726)."""
        today = datetime.now(UTC).date()
        open_run = run(None, logical=datetime(today.year, today.month, today.day, tzinfo=UTC))
        partition = TimePartition("day", grain=grain, period="starting_at_logical_date")
        warehouse.refused("SO-206", open_run, partition=partition)

    def test_a_naive_logical_date(self, warehouse: Warehouse) -> None:
        warehouse.refused("SO-207", run(None, logical=datetime(2026, 1, 3)))

    @pytest.mark.parametrize("start", [datetime(2026, 1, 1), "2026-01-01T00:00:00"])
    def test_a_naive_bound(self, warehouse: Warehouse, start: Any) -> None:
        warehouse.refused("SO-207", partition=TimePartition("day", start=start, end="2026-01-02"))

    # --- the declaration -----------------------------------------------------------------------------------------

    @pytest.mark.parametrize(
        "options",
        [
            {"strategy": "append"},
            {"strategy": "merge"},
            {"strategy": "merge", "unique_key": []},
            {"unique_key": []},
            {"unique_key": "id"},
            {"unique_key": ["id", "id"]},
            {"unique_key": [""]},
            {"columns": []},
            {"on_duplicates": "keep_first"},
            {"on_duplicates": "keep_latest"},
            {"on_duplicates": "keep_latest", "unique_key": ["id"]},
            {"on_key_moved": "ignore"},
            {"on_empty": True},
            {"on_unledgered": "adopt"},
            {"on_schema_change": "sync_all_columns"},
            {"not_matched_by_source": "update"},
            {"checksum": "md5"},
            {"checksum": "key"},
        ],
        ids=str,
    )
    def test_an_argument_that_is_not_usable(self, warehouse: Warehouse, options: dict[str, Any]) -> None:
        """An empty list of keys switched the protection off in silence (dlt-hub/dlt#971)."""
        warehouse.refused("SO-201", **options)

    @pytest.mark.parametrize(
        "partition",
        [
            {"column": "day", "grain": "fortnight"},
            {"column": "day", "period": "today"},
            {"column": "day", "timezone": "Mars/Olympus"},
            {"column": "day", "lookback": -1},
            {"column": "day", "start": "2026-01-01"},
            {"column": "day", "start": "2026-01-02", "end": "2026-01-02"},
            {"column": "day", "start": "soon", "end": "2026-01-02"},
            {"column": ""},
            {},
            "day",
            {"region": ["EU", "US"]},
        ],
        ids=str,
    )
    def test_a_partition_that_names_no_rows(self, warehouse: Warehouse, partition: Any) -> None:
        warehouse.refused("SO-202", partition=partition)

    def test_hours_of_a_date_column(self, warehouse: Warehouse) -> None:
        warehouse.refused("SO-208", partition=TimePartition("day", grain="hour"))

    def test_hours_of_wall_clock_in_a_zone_with_summer_time(self, warehouse: Warehouse) -> None:
        warehouse.create("events", {"at": "timestamp", "n": "int"})
        hour = TimePartition("at", grain="hour", timezone="America/New_York")
        sql = "SELECT at, n FROM events WHERE at >= :partition_start"
        warehouse.refused("SO-208", table="events", sql=sql, partition=hour)

    @pytest.mark.parametrize("column", ["id", "amount"])
    def test_a_time_partition_on_a_column_without_time(self, warehouse: Warehouse, column: str) -> None:
        warehouse.refused("SO-208", partition=TimePartition(column))

    # --- the target ------------------------------------------------------------------------------------------------

    @pytest.mark.parametrize("table", ["no_such_table", "nowhere.sales", "a.b.c.d", "", "sales; DROP TABLE sales"])
    def test_an_unknown_table(self, warehouse: Warehouse, table: str) -> None:
        warehouse.refused("SO-301", table=table)

    @pytest.mark.parametrize(
        "options",
        [
            {"partition": TimePartition("Day")},
            {"partition": ValuePartition(region="EU")},
            {"unique_key": ["day", "nr"]},
            {"unique_key": ["ID"]},
            {"columns": ["day", "id", "sum"]},
            {"unique_key": ["id"], "on_duplicates": "keep_latest", "sequence_by": "updated_at"},
        ],
        ids=str,
    )
    def test_an_unknown_column(self, warehouse: Warehouse, options: dict[str, Any]) -> None:
        warehouse.refused("SO-302", **options)

    # --- the rows ----------------------------------------------------------------------------------------------------

    @pytest.mark.parametrize("options", [{}, {"strategy": "merge", "unique_key": ["id"]}], ids=["replace", "merge"])
    def test_rows_outside(self, warehouse: Warehouse, options: dict[str, Any]) -> None:
        """A batch with a row outside the replaced range (delta-io/delta#1147): count and samples are reported."""
        warehouse.source(sale(D0, 3, "0"), sale(D1, 1, "1"), sale(D2, 4, "3"))
        error = warehouse.refused("SO-104", sql=UNFILTERED, **options)
        assert (error.facts["rows"], error.facts["staged"]) == (2, 3)
        assert "2026-01-01" in error.what
        assert "2026-01-03" in error.what

    @pytest.mark.parametrize("day", ["infinity", "-infinity", "2026-01-03", "0001-01-01"])
    def test_one_row_outside_anywhere(self, warehouse: Warehouse, day: str) -> None:
        warehouse.execute(f"INSERT INTO raw_sales SELECT '{day}', 9, 9")
        warehouse.refused("SO-104", sql=UNFILTERED)

    def test_null_in_the_partition_column(self, warehouse: Warehouse) -> None:
        warehouse.source(sale(D1, 1, "1"), (None, 2, 2))
        error = warehouse.refused("SO-103", sql=UNFILTERED)
        assert error.facts["rows"] == 1

    def test_only_nulls_in_the_partition_column(self, warehouse: Warehouse) -> None:
        warehouse.source((None, 2, 2))
        warehouse.refused("SO-103", sql=UNFILTERED)

    def test_samples_may_be_switched_off(self, warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("AIRFLOW__SAFE_OPS__LOG_SAMPLES", "False")
        warehouse.source(sale(D0, 4242, "0"))
        error = warehouse.refused("SO-104", sql=UNFILTERED)
        assert "2026-01-01" not in error.what.replace(error.facts["partition"], "")
        assert all("4242" not in message for (message,) in warehouse.ledger("attempt", "error_message"))

    # --- another load -------------------------------------------------------------------------------------------------

    def test_a_claim_held_for_longer_than_the_limit(self, warehouse: Warehouse) -> None:
        """The owner is named; the waiting load leaves nothing and the other one publishes."""
        holds, go_on = threading.Event(), threading.Event()
        runner = warehouse.runner(run(D1, run_id="manual__first"))

        def pause(step: str, when: str) -> None:
            if (step, when) == ("target.insert", "after"):
                holds.set()
                go_on.wait(30)

        runner.observe = pause
        first = threading.Thread(target=runner.execute)
        first.start()
        try:
            assert holds.wait(30)
            before = warehouse.snapshot()
            error = raised(lambda: warehouse.load(run(D1, run_id="manual__second"), lock_timeout=0.4))
            assert warehouse.snapshot() == before
        finally:
            go_on.set()
            first.join(30)
        assert (error.code, error.terminal) == ("SO-401", False)
        assert error.facts["owner"] == "sales.load manual__first try 1"
        assert warehouse.ledger("attempt", "run_id", "WHERE state = 'published'") == [("manual__first",)]
        assert warehouse.claims() == []
        assert len(warehouse.rows("sales")) == 3

    def test_an_error_says_what_why_and_what_to_do(self, warehouse: Warehouse) -> None:
        warehouse.source(sale(D0, 3, "0"))
        error = warehouse.refused("SO-104", sql=UNFILTERED)
        assert isinstance(error, SafeOpsError)
        assert all(part and part in str(error) for part in (error.code, error.what, error.why, error.fix))

    def test_a_dry_run_writes_nothing(self, warehouse: Warehouse) -> None:
        before = warehouse.snapshot()
        operator = warehouse.operator(dry_run=True)
        assert operator.execute(run(D1)) is None
        assert warehouse.snapshot() == before
        assert warehouse.ledger("attempt", "1") == []
        assert warehouse.partitions() == []

    def test_a_dry_run_refuses_what_the_run_would_refuse(self, warehouse: Warehouse) -> None:
        warehouse.refused("SO-301", table="nowhere", dry_run=True)
        warehouse.refused("SO-206", date(2999, 1, 1), dry_run=True)

    def test_after_a_refusal_the_next_run_is_clean(self, warehouse: Warehouse) -> None:
        warehouse.source(sale(D1, 1, "1"), sale(D2, 2, "2"))
        for _ in range(3):
            warehouse.refused("SO-104", sql=UNFILTERED)
        warehouse.load_twice(partition=DAY)
        assert warehouse.rows("sales") == [sale(D0, 7, "7"), sale(D1, 1, "1")]
        assert warehouse.states() == ["failed"] * 3 + ["published"] * 2

    def test_the_whole_table_with_rows_nobody_recorded(self, warehouse: Warehouse) -> None:
        warehouse.refused("SO-102", partition=WholeTable(), sql=SALES_SQL.partition(" WHERE")[0])
