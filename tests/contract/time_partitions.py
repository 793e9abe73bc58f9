"""The contract of time partitions: typed bounds, which part of the target a run owns, what the ledger knows of it."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from itertools import pairwise
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

import pytest

from airflow_safe_ops import TimePartition, WholeTable
from tests.contract.harness import D0, D1, D2, D3, DAY, SALES_SQL, raised, run, sale

if TYPE_CHECKING:
    from tests.contract.harness import Warehouse

NEW_YORK = "America/New_York"
MONTH = TimePartition("day", grain="month")
JANUARY = run(date(2026, 1, 1), date(2026, 2, 1))


class Events:
    """A table of moments, by the kind of its column, and loads of it."""

    def __init__(self, warehouse: Warehouse, kind: str, moments: list[datetime]) -> None:
        self.warehouse = warehouse
        columns = {"at": kind, "n": "int"}
        warehouse.create("raw_events", columns, [(moment, n) for n, moment in enumerate(moments)])
        warehouse.create("events", columns)

    def load_twice(self, context: dict[str, Any], **partition: Any) -> list[int]:
        """The numbers of the events that one load of a period took over, run twice."""
        before = {n for _, n in self.warehouse.rows("events")}
        self.warehouse.load_twice(
            context,
            table="events",
            partition=TimePartition("at", **partition),
            sql="SELECT at, n FROM raw_events WHERE at >= :partition_start AND at < :partition_end",
        )
        return sorted({n for _, n in self.warehouse.rows("events")} - before)

    def partition(self) -> str:
        """The key of the only recorded partition."""
        ((key, *_),) = self.warehouse.partitions()
        return str(key)


def local(*moment: int, fold: int = 0, zone: str = NEW_YORK) -> datetime:
    """An instant by its wall clock."""
    return datetime(*moment, tzinfo=ZoneInfo(zone), fold=fold)  # type: ignore[misc,arg-type]


class TimePartitionContract:
    """A run owns a half-open range of one column, and only that."""

    @pytest.mark.parametrize("kind", ["timestamp", "timestamptz"])
    def test_the_start_belongs_to_the_day_and_the_end_does_not(self, warehouse: Warehouse, kind: str) -> None:
        midnight = datetime(2026, 1, 2, tzinfo=UTC)
        second = timedelta(microseconds=1)
        moments = [midnight - second, midnight, midnight + timedelta(days=1) - second, midnight + timedelta(days=1)]
        if kind == "timestamp":
            moments = [moment.replace(tzinfo=None) for moment in moments]
        assert Events(warehouse, kind, moments).load_twice(run(D1)) == [1, 2]

    def test_a_day_of_a_date_column(self, warehouse: Warehouse) -> None:
        warehouse.sales([sale(D0, 1, "1"), sale(D1, 2, "2"), sale(D2, 3, "3")])
        warehouse.load_twice(D1)
        assert warehouse.rows("sales") == [sale(D1, 2, "2")]
        assert [key for key, *_ in warehouse.partitions()] == ["day=2026-01-02..2026-01-03"]

    def test_instants_of_a_day_in_a_zone(self, warehouse: Warehouse) -> None:
        moments = [local(2026, 1, 1, 23, 59), local(2026, 1, 2), local(2026, 1, 2, 23, 59), local(2026, 1, 3)]
        events = Events(warehouse, "timestamptz", moments)
        assert events.load_twice(run(moments[1], moments[3]), timezone=NEW_YORK) == [1, 2]
        assert events.partition() == "at=2026-01-02..2026-01-03@America/New_York"

    def test_the_wall_clock_of_a_day_in_a_zone(self, warehouse: Warehouse) -> None:
        """
        Naive column, zoned window: select and delete took different rows (dbt-labs/dbt-core#11417,
        dbt-labs/dbt-adapters#955, dbt-labs/dbt-core#10976).
        """
        moments = [
            datetime(2026, 1, 1, 23, 59),
            datetime(2026, 1, 2),
            datetime(2026, 1, 2, 23, 59),
            datetime(2026, 1, 3),
        ]
        events = Events(warehouse, "timestamp", moments)
        assert events.load_twice(run(local(2026, 1, 2), local(2026, 1, 3)), timezone=NEW_YORK) == [1, 2]

    def test_a_month_of_wall_clock(self, warehouse: Warehouse) -> None:
        """The window of February over a row of the 28th, 18:19, run twice (dbt-labs/dbt-core#11417)."""
        events = Events(warehouse, "timestamp", [datetime(2025, 2, 28, 18, 19), datetime(2025, 3, 1)])
        february = run(date(2025, 2, 1), date(2025, 3, 1))
        assert events.load_twice(february, grain="month") == [0]

    @pytest.mark.parametrize(("day", "hours"), [(date(2013, 3, 10), 23), (date(2013, 11, 3), 25)])
    def test_days_of_23_and_25_hours(self, warehouse: Warehouse, day: date, hours: int) -> None:
        """A day of the change lost or doubled an hour (apache/airflow#70089): each hour belongs to one day."""
        first = local(day.year, day.month, day.day).astimezone(UTC)
        moments = [first + timedelta(hours=n) for n in range(-24, 50)]
        events = Events(warehouse, "timestamptz", moments)
        following = local(day.year, day.month, day.day + 1).astimezone(UTC)
        assert events.load_twice(run(first, following), timezone=NEW_YORK) == list(range(24, 24 + hours))

    @pytest.mark.parametrize("day", [date(2013, 3, 10), date(2013, 11, 3)])
    def test_the_days_around_a_change_share_no_hour_and_leave_none_out(self, warehouse: Warehouse, day: date) -> None:
        days = [day + timedelta(days=n) for n in (-1, 0, 1)]
        starts = [local(d.year, d.month, d.day).astimezone(UTC) for d in [*days, day + timedelta(days=2)]]
        moments = [starts[0] + timedelta(hours=n) for n in range(int((starts[-1] - starts[0]) / timedelta(hours=1)))]
        events = Events(warehouse, "timestamptz", moments)
        taken = [n for lo, hi in pairwise(starts) for n in events.load_twice(run(lo, hi), timezone=NEW_YORK)]
        assert taken == list(range(len(moments)))

    def test_hours_of_instants_over_the_hour_that_comes_twice(self, warehouse: Warehouse) -> None:
        first, again = local(2013, 11, 3, 1, 30), local(2013, 11, 3, 1, 30, fold=1)
        events = Events(warehouse, "timestamptz", [first, again])
        hour = timedelta(hours=1)
        start = local(2013, 11, 3, 1).astimezone(UTC)
        assert events.load_twice(run(start, start + hour), grain="hour", timezone=NEW_YORK) == [0]
        assert events.load_twice(run(start + hour, start + 2 * hour), grain="hour", timezone=NEW_YORK) == [1]
        assert len(warehouse.partitions()) == 2

    def test_the_default_cron_run_owns_the_day_that_ended(self, warehouse: Warehouse) -> None:
        """
        An interval without length: the run's day has just begun and is empty, the one before is complete
        (apache/airflow#41014, apache/airflow#23689).
        """
        warehouse.sales([sale(D1, 1, "1"), sale(D2, 2, "2")])
        midnight = datetime(2026, 1, 3, tzinfo=UTC)
        warehouse.load_twice(run(midnight, midnight))
        assert warehouse.rows("sales") == [sale(D1, 1, "1")]

    @pytest.mark.parametrize(
        ("period", "context", "day"),
        [
            ("data_interval", run(D1), D1),
            ("ending_at_logical_date", run(None, logical=datetime(2026, 1, 3, 5, tzinfo=UTC)), D1),
            ("starting_at_logical_date", run(None, logical=datetime(2026, 1, 2, 5, tzinfo=UTC)), D1),
            ("partition_date", run(None, partition=datetime(2026, 1, 2, tzinfo=UTC)), D1),
            ("auto", run(None, logical=datetime(2026, 1, 3, 5, tzinfo=UTC)), D1),
            ("auto", run(None, partition=datetime(2026, 1, 2, tzinfo=UTC)), D1),
        ],
    )
    def test_each_period(self, warehouse: Warehouse, period: Any, context: dict[str, Any], day: date) -> None:
        warehouse.sales([sale(D0, 1, "1"), sale(D1, 2, "2"), sale(D2, 3, "3")])
        warehouse.load_twice(context, partition=TimePartition("day", period=period))
        assert [d for d, *_ in warehouse.rows("sales")] == [day]

    def test_the_bounds_are_the_run_s_whenever_it_is_tried(self, warehouse: Warehouse) -> None:
        """
        A retry days later computed its dates from today (dbt-labs/dbt-core#11423, dbt-labs/dbt-core#12525): the
        scope is in the ledger, and the same for a later try.
        """
        warehouse.sales([sale(D1, 1, "0")])
        warehouse.refused("SO-602", run(D1), sql=SALES_SQL.replace("amount FROM", "1 / amount AS amount FROM"))
        warehouse.load(run(D1, try_number=2))
        scopes = warehouse.ledger("attempt", "scope")
        assert len(scopes) == 2
        assert len(set(scopes)) == 1
        assert warehouse.ledger("partition", "scope")[0] == scopes[0]

    def test_explicit_bounds(self, warehouse: Warehouse) -> None:
        warehouse.sales([sale(D0, 1, "1"), sale(D1, 2, "2"), sale(D2, 3, "3")])
        warehouse.load_twice(None, partition="day=2026-01-01..2026-01-03")
        assert [n for _, n, _ in warehouse.rows("sales")] == [1, 2]

    # --- lookback -------------------------------------------------------------------------------------------

    def test_lookback_loads_each_day_as_a_partition_of_its_own(self, warehouse: Warehouse) -> None:
        days = [D0, D1, D2, D3]
        warehouse.sales([sale(d, n, n) for n, d in enumerate(days)])
        back = {"partition": TimePartition("day", lookback=2)}
        first, _ = warehouse.load_twice(D3, **back)
        assert [n for _, n, _ in warehouse.rows("sales")] == [1, 2, 3]
        keys = [f"day={d}..{d + timedelta(days=1)}" for d in (D1, D2, D3)]
        assert [part["partition"] for part in first["partitions"]] == keys
        assert [key for key, *_ in warehouse.partitions()] == keys
        assert first["rows_inserted"] == 3

    def test_lookback_changes_only_the_days_whose_source_changed(self, warehouse: Warehouse) -> None:
        warehouse.sales([sale(d, 1, "1") for d in (D1, D2, D3)])
        back = {"partition": TimePartition("day", lookback=2)}
        warehouse.load(D3, **back)
        warehouse.source(sale(D1, 1, "1"), sale(D2, 1, "5"), sale(D3, 1, "1"))
        summary = warehouse.load(D3, **back)
        assert [part["changed"] for part in summary["partitions"]] == [False, True, False]

    def test_a_day_of_the_lookback_that_fails_stops_there_and_heals(self, warehouse: Warehouse) -> None:
        warehouse.sales([sale(D1, 1, "1"), sale(D2, 1, "0"), sale(D3, 1, "1")])
        back = {"partition": TimePartition("day", lookback=2)}
        divided = SALES_SQL.replace("amount FROM", "1 / amount AS amount FROM")
        error = raised(lambda: warehouse.load(D3, **back, sql=divided))
        assert error.code == "SO-602"
        assert [d for d, *_ in warehouse.rows("sales")] == [D1]
        assert warehouse.claims() == []
        warehouse.load_twice(D3, **back)
        assert [d for d, *_ in warehouse.rows("sales")] == [D1, D2, D3]

    # --- what the ledger knows ------------------------------------------------------------------------------

    def test_a_month_over_recorded_days_with_a_gap(self, warehouse: Warehouse) -> None:
        warehouse.sales([sale(D0, 1, "1"), sale(D2, 3, "3")])
        warehouse.load(D0)
        warehouse.load(D2)
        warehouse.load(JANUARY, partition=MONTH)
        assert [n for _, n, _ in warehouse.rows("sales")] == [1, 3]

    def test_a_month_over_recorded_days_with_unknown_rows_in_the_gap(self, warehouse: Warehouse) -> None:
        warehouse.sales([sale(D0, 1, "1"), sale(D2, 3, "3")], held=[sale(D1, 2, "2")])
        warehouse.load(D0)
        warehouse.load(D2)
        warehouse.refused("SO-102", JANUARY, partition=MONTH)
        warehouse.load_twice(JANUARY, partition=MONTH, on_unledgered="replace")
        assert [n for _, n, _ in warehouse.rows("sales")] == [1, 3]

    def test_a_day_in_a_recorded_month(self, warehouse: Warehouse) -> None:
        warehouse.sales([sale(D0, 1, "1"), sale(D1, 2, "2")])
        warehouse.load(JANUARY, partition=MONTH)
        warehouse.source(sale(D0, 1, "1"), sale(D1, 9, "9"))
        warehouse.load_twice(D1)
        assert [n for _, n, _ in warehouse.rows("sales")] == [1, 9]
        counts = {key: rows for key, _, rows, *_ in warehouse.partitions()}
        assert counts == {"day=2026-01-01..2026-02-01": None, "day=2026-01-02..2026-01-03": 1}

    def test_a_day_beside_a_recorded_month_is_not_known(self, warehouse: Warehouse) -> None:
        february = sale(date(2026, 2, 1), 2, "2")
        warehouse.sales([sale(D0, 1, "1"), february], held=[february])
        warehouse.load(JANUARY, partition=MONTH)
        warehouse.refused("SO-102", date(2026, 2, 1))

    def test_a_month_takes_back_what_was_counted_of_its_days(self, warehouse: Warehouse) -> None:
        """After the month was written, a day's old count and checksum prove nothing: its reload is a change."""
        warehouse.sales([sale(D1, 1, "1")])
        warehouse.load(D1)
        warehouse.source(sale(D1, 1, "2"))
        warehouse.load(JANUARY, partition=MONTH)
        warehouse.source(sale(D1, 1, "1"))
        assert warehouse.load(D1)["changed"] is True
        assert warehouse.rows("sales") == [sale(D1, 1, "1")]

    def test_the_whole_table(self, warehouse: Warehouse) -> None:
        whole = {"partition": WholeTable(), "sql": "SELECT day, id, amount FROM raw_sales"}
        warehouse.sales([sale(D0, 1, "1"), (None, 2, 2)])
        warehouse.load_twice(**whole)
        assert warehouse.rows("sales") == [(None, 2, 2), sale(D0, 1, "1")]
        warehouse.source(sale(D1, 3, "3"))
        warehouse.load_twice(**whole)
        assert warehouse.rows("sales") == [sale(D1, 3, "3")]
        warehouse.load_twice(D1)
        assert [key for key, *_ in warehouse.partitions()] == ["*", "day=2026-01-02..2026-01-03"]

    def test_the_whole_table_over_days_with_unknown_rows(self, warehouse: Warehouse) -> None:
        warehouse.sales([sale(D1, 1, "1")], held=[sale(D2, 2, "2")])
        warehouse.load(D1)
        warehouse.refused("SO-102", partition=WholeTable(), sql="SELECT day, id, amount FROM raw_sales")

    def test_an_open_day_loads_where_declared(self, warehouse: Warehouse) -> None:
        today = datetime.now(UTC).date()
        warehouse.sales([sale(today, 1, "1")])
        warehouse.load_twice(today, partition=TimePartition("day", allow_open=True))
        assert warehouse.rows("sales") == [sale(today, 1, "1")]

    def test_tasks_may_share_one_partition_object(self, warehouse: Warehouse) -> None:
        warehouse.sales([sale(D1, 1, "1"), sale(D2, 2, "2")])
        warehouse.load(D1, partition=DAY)
        warehouse.load(D2, partition=DAY.serialize())
        assert len(warehouse.partitions()) == 2
