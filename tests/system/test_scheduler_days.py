"""A default `@daily` DAG and its twin with data intervals load the same right days by every kind of run."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING

import pytest

from tests.system.warehouse import (
    AUTUMN,
    SPRING,
    Warehouse,
    days_around,
    events_between,
    events_of,
    expected_days,
    expected_events,
    expected_partitions,
    instant,
)

if TYPE_CHECKING:
    from tests.system.airflow_api import AirflowApi
    from tests.system.airflow_stack import AirflowStack

KINDS = ("trigger", "interval")
CATCH_UPS = {"spring": SPRING, "utc": SPRING, "two_am": SPRING, "autumn": AUTUMN}


def assert_loaded(warehouse: Warehouse, dag_id: str, days: list[date]) -> None:
    """Require that both targets of a DAG hold these days as the source does, once, and nothing else."""
    assert warehouse.all_events(f"{dag_id}_events") == expected_events(days)
    assert warehouse.all_days(f"{dag_id}_days") == expected_days(days)
    known = warehouse.partitions(f"{dag_id}_events")
    assert known == expected_partitions("event_at", days, "@America/New_York")
    known = warehouse.partitions(f"{dag_id}_days")
    assert known == dict.fromkeys(expected_partitions("flight_day", days), 1)


def assert_mapped(warehouse: Warehouse, start: datetime, end: datetime) -> None:
    """Require each row of the source once: those of a range in one target, all regions in the other."""
    week = timedelta(days=7)
    assert warehouse.events("mapped_zones_events", start - week, end + week) == events_between(start, end)
    assert warehouse.all_events("mapped_regions_events") == warehouse.source_events()


@pytest.fixture(scope="module")
def caught_up(api: AirflowApi) -> None:
    """Let the scheduler create and run every missed run of the DAGs that catch up."""
    dag_ids = [f"{kind}_{name}" for kind in KINDS for name in CATCH_UPS]
    api.unpause(*dag_ids)
    api.wait_runs(dag_ids, count=3, run_type="scheduled")


def test_the_source_has_short_and_long_days() -> None:
    """The yardstick: one event in each half hour, so the days of the changes have 46 and 50."""
    assert [len(events_of(day)) for day in days_around(SPRING)] == [48, 46, 48]
    assert [len(events_of(day)) for day in days_around(AUTUMN)] == [48, 50, 48]


@pytest.mark.parametrize("name", CATCH_UPS)
@pytest.mark.parametrize("kind", KINDS)
def test_catch_up(caught_up: None, api: AirflowApi, warehouse: Warehouse, kind: str, name: str) -> None:
    """Scheduled runs over a change of the clocks load each day once, in every zone of the schedule."""
    dag_id, days = f"{kind}_{name}", days_around(CATCH_UPS[name])
    runs = api.runs(dag_id, "scheduled")
    empty = {run["data_interval_start"] == run["data_interval_end"] for run in runs}
    assert empty == {kind == "trigger"}, "the two timetables are not what this test is about"
    assert_loaded(warehouse, dag_id, days)


@pytest.mark.parametrize("kind", KINDS)
def test_manual_run_within_the_change(caught_up: None, api: AirflowApi, warehouse: Warehouse, kind: str) -> None:
    """A manual run after the hour that does not exist, on a schedule that meets it, adds or loses no day."""
    dag_id = f"{kind}_two_am"
    api.wait_run(dag_id, api.trigger(dag_id, datetime(2013, 3, 10, 7, 30, tzinfo=UTC)))
    assert_loaded(warehouse, dag_id, days_around(SPRING))


@pytest.mark.parametrize("kind", KINDS)
def test_manual_run(api: AirflowApi, warehouse: Warehouse, kind: str) -> None:
    """A manual run loads the last day complete at its date: midnight, mid-day, an hour that repeats."""
    dag_id, day = f"{kind}_manual", timedelta(days=1)
    dates = {
        instant(SPRING + day): SPRING,
        datetime(2013, 3, 10, 7, 30, tzinfo=UTC): SPRING - day,
        instant(AUTUMN + day, 6, 20): AUTUMN,
        datetime(2013, 11, 3, 6, 30, tzinfo=UTC): AUTUMN - day,
    }
    api.unpause(dag_id)
    for run_id in [api.trigger(dag_id, moment) for moment in dates]:
        api.wait_run(dag_id, run_id)
    assert_loaded(warehouse, dag_id, sorted(dates.values()))

    again = api.trigger(dag_id, instant(SPRING + day, 6, 20))
    api.wait_run(dag_id, again)
    assert_loaded(warehouse, dag_id, sorted(dates.values()))


@pytest.mark.parametrize("kind", KINDS)
def test_cleared_run(api: AirflowApi, warehouse: Warehouse, kind: str) -> None:
    """A cleared run loads its own day again and heals it; the neighbour stays as it is."""
    dag_id, days = f"{kind}_cleared", [SPRING, SPRING + timedelta(days=1)]
    api.unpause(dag_id)
    run_ids = [api.trigger(dag_id, instant(day + timedelta(days=1))) for day in days]
    for run_id in run_ids:
        api.wait_run(dag_id, run_id)
    warehouse.damage(f"{dag_id}_events", SPRING)
    assert warehouse.all_events(f"{dag_id}_events") != expected_events(days)

    api.clear_run(dag_id, run_ids[0])
    api.wait_run(dag_id, run_ids[0])
    assert_loaded(warehouse, dag_id, days)
    assert warehouse.outcomes(f"{dag_id}_events") == ["published"] * 3


def test_manual_run_without_date_is_refused(api: AirflowApi, warehouse: Warehouse) -> None:
    """A run that has no logical date owns no partition: it fails and writes nothing."""
    api.unpause("trigger_dateless")
    api.wait_run("trigger_dateless", api.trigger("trigger_dateless", None), state="failed")
    assert_loaded(warehouse, "trigger_dateless", [])


def test_backfill(api: AirflowApi, stack: AirflowStack, warehouse: Warehouse) -> None:
    """Backfills by REST and by the command line load the right days; reprocessing heals what is damaged."""
    ranges = {
        f"{kind}_replay_{season}": (day + timedelta(days=late - 1), day + timedelta(days=late + 1))
        for kind, late in (("trigger", 1), ("interval", 0))
        for season, day in (("spring", SPRING), ("autumn", AUTUMN))
    }
    api.unpause(*ranges)
    for dag_id, (first, last) in ranges.items():
        if dag_id.endswith("spring"):
            api.backfill(dag_id, instant(first), instant(last))
        else:
            dates = ("--from-date", instant(first).isoformat(), "--to-date", instant(last).isoformat())
            stack.run("backfill", "create", "--dag-id", dag_id, *dates)
    api.wait_runs(ranges, count=3, run_type="backfill")
    for dag_id in ranges:
        assert_loaded(warehouse, dag_id, days_around(SPRING if dag_id.endswith("spring") else AUTUMN))

    for kind in KINDS:
        dag_id = f"{kind}_replay_spring"
        warehouse.damage(f"{dag_id}_events", SPRING)
        api.wait_backfill(dag_id)
        first, last = ranges[dag_id]
        api.backfill(dag_id, instant(first), instant(last), reprocess="completed")
    for kind in KINDS:
        dag_id = f"{kind}_replay_spring"
        api.wait_runs([dag_id], count=3, run_type="backfill")
        assert_loaded(warehouse, dag_id, days_around(SPRING))
        assert warehouse.outcomes(f"{dag_id}_events") == ["published"] * 6


@pytest.mark.parametrize(
    ("run_day", "start", "end"),
    [
        (date(2013, 3, 11), datetime(2013, 3, 9, 23, tzinfo=UTC), datetime(2013, 3, 11, 4, tzinfo=UTC)),
        (date(2013, 11, 4), datetime(2013, 11, 2, 23, tzinfo=UTC), datetime(2013, 11, 4, 5, tzinfo=UTC)),
    ],
    ids=["spring", "autumn"],
)
def test_mapped_task(api: AirflowApi, warehouse: Warehouse, run_day: date, start: datetime, end: datetime) -> None:
    """Each map index loads the partition of its dict; where two overlap, rows come once all the same."""
    api.unpause("mapped")
    run_id = api.trigger("mapped", instant(run_day))
    api.wait_run("mapped", run_id)
    assert_mapped(warehouse, start, end)

    api.clear_run("mapped", run_id)
    api.wait_run("mapped", run_id)
    assert_mapped(warehouse, start, end)
