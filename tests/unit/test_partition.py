"""Which partition a run owns: its dates alone decide, and consecutive runs own consecutive days exactly once."""

from __future__ import annotations

from datetime import UTC, date, datetime, time, timedelta
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_safe_ops.definition.grain import zone
from airflow_safe_ops.definition.identity import RunIdentity
from airflow_safe_ops.definition.partition import TimePartition, ValuePartition
from airflow_safe_ops.definition.scope import TimeScope
from airflow_safe_ops.errors import (
    InvalidPartition,
    MisalignedInterval,
    NaiveDatetime,
    NoLogicalDate,
    OpenPartition,
    SafeOpsError,
    UnsupportedPartitionColumn,
    ZeroLengthInterval,
)
from tests.unit.test_grain import ZONES

NOW = datetime(2060, 6, 1, tzinfo=UTC)
CHANGES = (  # a day before the change, for each zone that has one; America/Havana's midnight comes twice
    ("America/New_York", date(2026, 3, 7)),
    ("America/New_York", date(2026, 10, 31)),
    ("Europe/Berlin", date(2026, 3, 28)),
    ("Europe/Berlin", date(2026, 10, 24)),
    ("America/Havana", date(2023, 11, 4)),
    ("America/Havana", date(2023, 3, 11)),
    ("America/Sao_Paulo", date(2017, 10, 14)),
    ("Australia/Lord_Howe", date(2026, 4, 4)),
    ("Pacific/Apia", date(2011, 12, 29)),
)
near_a_change = st.builds(
    lambda change, days: (change[0], change[1] + timedelta(days=days)),
    st.sampled_from(CHANGES),
    st.integers(-4, 4),
)
any_days = st.one_of(near_a_change, st.tuples(st.sampled_from(ZONES), st.dates(date(1980, 1, 1), date(2059, 1, 1))))


def at(moment: datetime | str | None, until: datetime | str | None = None, **facts: Any) -> RunIdentity:
    """A run at a logical date, with an interval up to `until` if that is given."""
    first, last = (datetime.fromisoformat(m) if isinstance(m, str) else m for m in (moment, until))
    interval = {"data_interval_start": first, "data_interval_end": last} if last else {}
    return RunIdentity("dag", "task", "run", logical_date=first, **{**interval, **facts})


def owned(partition: TimePartition, run: RunIdentity, kind: Any = "timestamptz", now: datetime = NOW) -> str:
    """The key of the only scope that a run owns."""
    (scope,) = partition.scopes(run, kind, now)
    return scope.key


def daily(name: str, first: date, clock: time, days: int) -> list[datetime]:
    """A cron's moments: one on each day that the zone has, at a wall clock, later where that is skipped."""
    tz = zone(name)
    moments = []
    for day in (first + timedelta(days=n) for n in range(days)):
        there = (datetime.combine(day, clock.replace(fold=fold), tzinfo=tz).astimezone(UTC) for fold in (clock.fold, 0))
        moments += [moment for moment in there if moment.astimezone(tz).date() == day][:1]
    return moments


def assert_consecutive(scopes: list[TimeScope], tz: Any) -> None:
    for before, after in pairwise(scopes):
        assert before.end == after.start
    for scope in scopes:
        assert isinstance(scope.start, datetime)
        assert isinstance(scope.end, datetime)
        first, last = scope.start.astimezone(tz), (scope.end - timedelta(microseconds=1)).astimezone(tz)
        assert first.date() == last.date()


@given(any_days, st.times())
def test_daily_runs_without_an_interval_own_each_day_once(where: tuple[str, date], clock: time) -> None:
    """apache/airflow#41014: a run at the moment X covers the day that has ended at X, whatever hour X is."""
    partition = TimePartition("d", timezone=where[0])
    moments = daily(where[0], where[1], clock, 7)
    scopes = [partition.scopes(at(m, m), "timestamptz", NOW)[0] for m in moments]
    assert_consecutive(scopes, zone(where[0]))
    for moment, before in zip(moments[1:], moments, strict=False):
        (scope,) = partition.scopes(at(moment), "timestamptz", NOW)
        assert isinstance(scope.start, datetime)
        assert scope.start.astimezone(zone(where[0])).date() == before.astimezone(zone(where[0])).date()


@given(any_days, st.times())
def test_daily_runs_with_an_interval_own_each_day_once(where: tuple[str, date], clock: time) -> None:
    """An interval from 06:00 to 06:00 owns the day in which it begins."""
    tz, partition = zone(where[0]), TimePartition("d", timezone=where[0])
    moments = daily(where[0], where[1], clock, 7)
    runs = [at(start, end) for start, end in pairwise(moments)]
    scopes = [partition.scopes(run, "timestamptz", NOW)[0] for run in runs]
    assert [s.start.astimezone(tz).date() for s in scopes if isinstance(s.start, datetime)] == [
        m.astimezone(tz).date() for m in moments[:-1]
    ]
    assert_consecutive(scopes, tz)


@given(any_days, st.times())
def test_a_date_column_sees_the_same_days(where: tuple[str, date], clock: time) -> None:
    partition = TimePartition("d", timezone=where[0])
    scopes = [partition.scopes(at(m), "date", NOW)[0] for m in daily(where[0], where[1], clock, 7)]
    for before, after in pairwise(scopes):
        assert before.end == after.start
        assert before.end - before.start in (timedelta(days=1), timedelta(days=2))  # two where a day was skipped


@given(st.sampled_from(["UTC", "Asia/Kolkata"]), st.datetimes(datetime(2020, 1, 1), datetime(2030, 1, 1)))
def test_hourly_runs_own_each_hour_once(name: str, first: datetime) -> None:
    partition = TimePartition("d", grain="hour", timezone=name)
    moments = [first.replace(tzinfo=UTC) + timedelta(hours=n) for n in range(5)]
    scopes = [partition.scopes(at(m), "timestamp", NOW)[0] for m in moments]
    for before, after in pairwise(scopes):
        assert before.end == after.start == before.start + timedelta(hours=1)


@pytest.mark.parametrize(
    ("period", "run", "expected"),
    [
        ("auto", at("2026-01-02T00:00:00+00:00"), "d=2026-01-01..2026-01-02"),
        ("auto", at("2026-01-02T06:20:00+00:00"), "d=2026-01-01..2026-01-02"),
        ("auto", at("2026-01-01T00:00:00+00:00", "2026-01-02T00:00:00+00:00"), "d=2026-01-01..2026-01-02"),
        ("auto", at("2026-01-01T06:00:00+00:00", "2026-01-02T06:00:00+00:00"), "d=2026-01-01..2026-01-02"),
        ("auto", at("2026-01-01T00:00:00+00:00", "2026-01-08T00:00:00+00:00"), "d=2026-01-01..2026-01-08"),
        ("auto", at("2026-01-02T05:00:00+00:00", "2026-01-02T06:00:00+00:00"), "d=2026-01-01..2026-01-02"),
        ("auto", at("2026-01-02T06:20:00+00:00", "2026-01-02T06:20:00+00:00"), "d=2026-01-01..2026-01-02"),
        ("auto", at(None, partition_date=datetime(2026, 1, 1, 5, tzinfo=UTC)), "d=2026-01-01..2026-01-02"),
        ("ending_at_logical_date", at("2026-01-02T06:20:00+00:00"), "d=2026-01-01..2026-01-02"),
        ("starting_at_logical_date", at("2026-01-02T06:20:00+00:00"), "d=2026-01-02..2026-01-03"),
        (
            "ending_at_logical_date",
            at("2026-01-02T00:00:00+00:00", "2026-01-03T00:00:00+00:00"),
            "d=2026-01-01..2026-01-02",
        ),
        (
            "partition_date",
            at("2026-01-09T00:00:00+00:00", partition_date=datetime(2026, 1, 1, 5, tzinfo=UTC)),
            "d=2026-01-01..2026-01-02",
        ),
        (
            "data_interval",
            at("2026-01-01T06:00:00+00:00", "2026-01-02T06:00:00+00:00"),
            "d=2026-01-01T06:00:00+00:00..2026-01-02T06:00:00+00:00",
        ),
    ],
)
def test_periods(period: Any, run: RunIdentity, expected: str) -> None:
    assert owned(TimePartition("d", period=period), run) == expected + "@UTC"


@pytest.mark.parametrize(
    ("grain", "expected"),
    [
        ("hour", "2026-05-20T05:00:00+00:00..2026-05-20T06:00:00+00:00"),
        ("day", "2026-05-19..2026-05-20"),
        ("week", "2026-05-11..2026-05-18"),
        ("month", "2026-04-01..2026-05-01"),
        ("quarter", "2026-01-01..2026-04-01"),
        ("year", "2025-01-01..2026-01-01"),
    ],
)
def test_grains(grain: Any, expected: str) -> None:
    assert owned(TimePartition("d", grain=grain), at("2026-05-20T06:20:00+00:00")) == f"d={expected}@UTC"


def test_a_manual_run_on_the_day_of_the_change() -> None:
    """apache/airflow#70089: 02:00 does not exist on 8 March in New York; no day is skipped, each has its hours."""
    partition = TimePartition("d", timezone="America/New_York")
    found = [partition.scopes(at(f"2026-03-{day:02d}T07:30:00+00:00"), "timestamptz", NOW)[0] for day in range(8, 11)]
    assert [(s.hi - s.lo) / timedelta(hours=1) for s in found] == [24, 23, 24]
    assert [s.key for s in found][1] == "d=2026-03-08..2026-03-09@America/New_York"


@pytest.mark.parametrize(
    ("kind", "start", "end"),
    [
        ("date", date(2026, 3, 8), date(2026, 3, 9)),
        ("timestamp", datetime(2026, 3, 8), datetime(2026, 3, 9)),
        ("timestamptz", datetime(2026, 3, 8, 5, tzinfo=UTC), datetime(2026, 3, 9, 4, tzinfo=UTC)),
    ],
)
def test_bounds_are_typed_as_the_column_is(kind: Any, start: Any, end: Any) -> None:
    """dbt-labs/dbt-core#11417: one typed pair of bounds, whatever zone the session has."""
    (scope,) = TimePartition("d", timezone="America/New_York").scopes(at("2026-03-09T12:00:00+00:00"), kind, NOW)
    assert (scope.start, scope.end) == (start, end)
    assert type(scope.start) is type(start)
    assert getattr(scope.start, "tzinfo", None) == getattr(start, "tzinfo", None)
    assert scope.binds == {"partition_start": start, "partition_end": end}


def test_lookback_adds_earlier_grains_oldest_first() -> None:
    partition = TimePartition("d", timezone="Europe/Berlin", lookback=3)
    scopes = partition.scopes(at("2026-03-30T12:00:00+00:00"), "timestamptz", NOW)
    assert [s.key for s in scopes] == [f"d=2026-03-{day}..2026-03-{day + 1}@Europe/Berlin" for day in (26, 27, 28, 29)]


@given(near_a_change, st.integers(0, 9), st.sampled_from(["hour", "day", "week", "month"]))
def test_lookback_leaves_no_gap(where: tuple[str, date], lookback: int, grain: Any) -> None:
    partition = TimePartition("d", grain=grain, timezone=where[0], lookback=lookback)
    noon = datetime.combine(where[1], time(12), tzinfo=UTC)
    scopes = partition.scopes(at(noon), "timestamptz", NOW)
    assert len(scopes) == lookback + 1
    for before, after in pairwise(scopes):
        assert before.lo < before.hi == after.lo


def test_lookback_is_refused_where_the_start_begins_no_grain() -> None:
    run = at("2026-01-01T06:00:00+00:00", "2026-01-02T06:00:00+00:00")
    with pytest.raises(InvalidPartition, match=r"lookback counts whole grains, and 2026-01-01T06:00:00\+00:00"):
        TimePartition("d", period="data_interval", lookback=1).scopes(run, "timestamptz", NOW)


@pytest.mark.parametrize(
    ("start", "end", "key"),
    [
        ("2026-01-01", "2026-02-01", "d=2026-01-01..2026-02-01@America/New_York"),
        (date(2026, 1, 1), date(2026, 2, 1), "d=2026-01-01..2026-02-01@America/New_York"),
        (
            datetime(2026, 1, 1, 5, tzinfo=UTC),
            "2026-01-01T06:00:00Z",
            "d=2026-01-01..2026-01-01T01:00:00-05:00@America/New_York",
        ),
    ],
)
def test_explicit_bounds_need_no_date_of_the_run(start: Any, end: Any, key: str) -> None:
    assert owned(TimePartition("d", timezone="America/New_York", start=start, end=end), at(None)) == key


DAY_6 = ("2026-01-01T06:00:00+00:00", "2026-01-02T06:00:00+00:00")
EMPTY = ("2026-01-01T06:00:00+00:00", "2026-01-01T06:00:00+00:00")
NAIVE = datetime(2026, 1, 1)
REFUSED: list[tuple[str, type[SafeOpsError], TimePartition, RunIdentity, Any]] = [
    ("no date", NoLogicalDate, TimePartition("d"), at(None), "date"),
    ("no interval", NoLogicalDate, TimePartition("d", period="data_interval"), at(DAY_6[0]), "date"),
    ("no partition date", NoLogicalDate, TimePartition("d", period="partition_date"), at(DAY_6[0]), "date"),
    ("no length", ZeroLengthInterval, TimePartition("d", period="data_interval"), at(*EMPTY), "date"),
    ("open", OpenPartition, TimePartition("d"), at("2060-06-02T00:00:00+00:00"), "date"),
    ("open by a moment", OpenPartition, TimePartition("d", start="2060-05-31", end="2060-06-02"), at(None), "date"),
    ("naive date", NaiveDatetime, TimePartition("d"), at(NAIVE), "date"),
    ("naive interval", NaiveDatetime, TimePartition("d"), at(NAIVE, datetime(2026, 1, 2)), "date"),
    ("naive start", NaiveDatetime, TimePartition("d", start="2026-01-01T00:00", end="2026-01-02"), at(None), "date"),
    ("misaligned", MisalignedInterval, TimePartition("d", period="data_interval"), at(*DAY_6), "date"),
    ("hours of a date", UnsupportedPartitionColumn, TimePartition("d", grain="hour"), at(DAY_6[0]), "date"),
    (
        "hour that comes twice",
        UnsupportedPartitionColumn,
        TimePartition("d", grain="hour", timezone="Europe/Berlin"),
        at(DAY_6[0]),
        "timestamp",
    ),
    ("end before start", InvalidPartition, TimePartition("d", start="2026-01-02", end="2026-01-01"), at(None), "date"),
    ("empty range", InvalidPartition, TimePartition("d", start="2026-01-01", end="2026-01-01"), at(None), "date"),
    ("no date at all", InvalidPartition, TimePartition("d", start="soon", end="later"), at(None), "date"),
    ("a number", InvalidPartition, TimePartition("d", start=20260101, end=20260102), at(None), "date"),  # type: ignore[arg-type]
]


@pytest.mark.parametrize(("error", "partition", "run", "kind"), [r[1:] for r in REFUSED], ids=[r[0] for r in REFUSED])
def test_runs_that_are_refused(
    error: type[SafeOpsError], partition: TimePartition, run: RunIdentity, kind: Any
) -> None:
    """TobikoData/sqlmesh#5236 and apache/airflow#41014: a period that is empty, open or not there is no partition."""
    with pytest.raises(error) as refused:
        partition.scopes(run, kind, NOW)
    assert type(refused.value) is error
    assert str(refused.value).startswith(f"{error.code} ")
    assert refused.value.what
    assert refused.value.fix


def test_what_ends_now_has_ended() -> None:
    noon = datetime(2026, 1, 2, tzinfo=UTC)
    assert owned(TimePartition("d"), at(noon), now=noon) == "d=2026-01-01..2026-01-02@UTC"
    with pytest.raises(OpenPartition):
        owned(TimePartition("d"), at(noon), now=noon - timedelta(microseconds=1))


def test_an_open_partition_is_allowed_by_name() -> None:
    partition = TimePartition("d", period="starting_at_logical_date", allow_open=True)
    assert owned(partition, at(NOW), kind="date") == "d=2060-06-01..2060-06-02"


def test_an_hour_of_wall_clock_is_allowed_where_the_clock_never_changes() -> None:
    partition = TimePartition("d", grain="hour", timezone="Asia/Kolkata")
    assert (
        owned(partition, at("2026-01-01T06:00:00+00:00"), "timestamp") == "d=2026-01-01T10:00:00..2026-01-01T11:00:00"
    )


def test_templates_are_accepted_and_rendered_in_a_copy() -> None:
    values = {"{{ c }}": "d", "{{ g }}": "month", "{{ z }}": "Asia/Kolkata", "{{ p }}": "auto", "{{ s }}": "2026-01-01"}
    shared = TimePartition("{{ c }}", "{{ g }}", "{{ z }}", "{{ p }}", start="{{ s }}", end="{{ s }}")  # type: ignore[arg-type]
    before = repr(shared)
    rendered = shared.rendered(lambda text: values.get(text, text))
    assert (rendered.column, rendered.grain, rendered.timezone, rendered.start) == (
        "d",
        "month",
        "Asia/Kolkata",
        "2026-01-01",
    )
    assert repr(shared) == before
    region = ValuePartition(region="{{ c }}", n=5, nothing=None)
    assert region.rendered(lambda text: values[text]) == ValuePartition(region="d", n=5, nothing=None)
    assert region == ValuePartition(region="{{ c }}", n=5, nothing=None)


@pytest.mark.parametrize("bad", [{"grain": "minute"}, {"timezone": "Nowhere"}, {"period": "manual"}])
def test_a_template_that_renders_to_nonsense_is_refused(bad: dict[str, str]) -> None:
    shared = TimePartition("d", **dict.fromkeys(bad, "{{ x }}"))  # type: ignore[arg-type]
    with pytest.raises(InvalidPartition):
        shared.rendered(lambda text: next(iter(bad.values())) if "{{" in text else text)
