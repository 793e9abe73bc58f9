"""Grains tile time in every zone: no instant belongs to two of them, and none to no one."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from itertools import pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from airflow_safe_ops.definition.grain import (
    GRAINS,
    floor,
    following,
    has_changing_offset,
    last_complete,
    midnight,
    preceding,
    utc,
    zone,
)
from airflow_safe_ops.errors import InvalidPartition, NaiveDatetime

# Havana's midnight comes twice in autumn, Sao Paulo's was missing in spring, Apia skipped a day, Lord Howe's clock
# goes by half an hour, Caracas and Pyongyang changed their offset by half an hour, Kolkata stands at half past.
ZONES = (
    "UTC",
    "America/New_York",
    "Europe/Berlin",
    "America/Havana",
    "America/Sao_Paulo",
    "Asia/Kolkata",
    "Australia/Lord_Howe",
    "Pacific/Apia",
    "America/Caracas",
    "Asia/Pyongyang",
    "Africa/Casablanca",
    "Asia/Kathmandu",
)
CHANGES = (
    ("America/New_York", datetime(2026, 3, 8, 7, tzinfo=UTC)),
    ("America/New_York", datetime(2026, 11, 1, 6, tzinfo=UTC)),
    ("America/Havana", datetime(2023, 11, 5, 5, tzinfo=UTC)),
    ("America/Sao_Paulo", datetime(2017, 10, 15, 3, tzinfo=UTC)),
    ("Australia/Lord_Howe", datetime(2026, 4, 4, 15, tzinfo=UTC)),
    ("Australia/Lord_Howe", datetime(2026, 10, 3, 15, 30, tzinfo=UTC)),
    ("Pacific/Apia", datetime(2011, 12, 30, 10, tzinfo=UTC)),
    ("America/Caracas", datetime(2016, 5, 1, 7, tzinfo=UTC)),
    ("Asia/Pyongyang", datetime(2015, 8, 14, 15, tzinfo=UTC)),
)

some_time = st.datetimes(datetime(1980, 1, 1), datetime(2060, 1, 1), timezones=st.just(UTC))
near_a_change = st.builds(
    lambda change, offset: (change[0], change[1] + offset),
    st.sampled_from(CHANGES),
    st.timedeltas(timedelta(hours=-50), timedelta(hours=50)),
)
anywhere = st.one_of(near_a_change, st.tuples(st.sampled_from(ZONES), some_time))
any_grain = st.sampled_from(GRAINS)


@given(anywhere, any_grain)
@example(("Australia/Lord_Howe", datetime(2026, 4, 4, 15, 15, tzinfo=UTC)), "hour")
@example(("Pacific/Apia", datetime(2011, 12, 30, 10, tzinfo=UTC)), "day")
def test_every_moment_lies_in_its_grain_and_grains_meet(where: tuple[str, datetime], grain: str) -> None:
    tz, moment = zone(where[0]), where[1]
    start = floor(moment, grain, tz)
    end = following(start, grain, tz)
    assert start <= moment < end
    assert floor(start, grain, tz) == start
    assert floor(end - timedelta(microseconds=1), grain, tz) == start
    assert floor(end, grain, tz) == end
    assert preceding(end, grain, tz) == start
    assert following(preceding(start, grain, tz), grain, tz) == start


@given(anywhere, any_grain)
def test_the_last_complete_grain_has_ended_and_the_next_has_not(where: tuple[str, datetime], grain: str) -> None:
    tz, moment = zone(where[0]), where[1]
    start, end = last_complete(moment, grain, tz)
    assert start < end <= moment < following(end, grain, tz)
    assert following(start, grain, tz) == end


@given(anywhere, st.sampled_from(["week", "month", "quarter", "year"]))
def test_longer_grains_are_made_of_whole_days(where: tuple[str, datetime], grain: str) -> None:
    tz, moment = zone(where[0]), where[1]
    start = floor(moment, grain, tz)
    assert floor(start, "day", tz) == start
    assert floor(moment, "day", tz) >= start


@given(near_a_change, st.sampled_from(["day", "week", "month", "quarter", "year"]))
def test_a_grain_is_what_the_calendar_of_the_zone_says(where: tuple[str, datetime], grain: str) -> None:
    tz, moment = zone(where[0]), where[1]
    local, first = moment.astimezone(tz).date(), floor(moment, grain, tz).astimezone(tz).date()
    before = (floor(moment, grain, tz) - timedelta(microseconds=1)).astimezone(tz).date()
    assert calendar(local, grain) == calendar(first, grain) != calendar(before, grain)


def calendar(day: date, grain: str) -> tuple[int, ...]:
    """What the days of one grain have in common."""
    if grain == "week":
        return day.isocalendar()[:2]
    return (day.year, (day.month - 1) // 3, day.month, day.day)[: ("year", "quarter", "month", "day").index(grain) + 1]


@given(near_a_change)
def test_a_zone_whose_clock_changes_within_a_day_is_known_to_change(where: tuple[str, datetime]) -> None:
    tz, moment = zone(where[0]), where[1]
    start = floor(moment, "day", tz)
    if start.astimezone(tz).utcoffset() != following(start, "day", tz).astimezone(tz).utcoffset():
        assert has_changing_offset(tz, start)


def hours(name: str, day: date) -> float:
    start = midnight(day, zone(name))
    return (following(start, "day", zone(name)) - start) / timedelta(hours=1)


@pytest.mark.parametrize(
    ("name", "day", "length"),
    [
        ("America/New_York", date(2026, 3, 8), 23),
        ("America/New_York", date(2026, 11, 1), 25),
        ("Europe/Berlin", date(2026, 3, 29), 23),
        ("Europe/Berlin", date(2026, 10, 25), 25),
        ("America/Havana", date(2023, 11, 5), 25),
        ("America/Sao_Paulo", date(2017, 10, 15), 23),
        ("Australia/Lord_Howe", date(2026, 4, 5), 24.5),
        ("Australia/Lord_Howe", date(2026, 10, 4), 23.5),
        ("Pacific/Apia", date(2011, 12, 29), 24),
        ("Asia/Kolkata", date(2026, 3, 29), 24),
        ("UTC", date(2026, 3, 29), 24),
    ],
)
def test_the_length_of_a_day(name: str, day: date, length: float) -> None:
    """apache/airflow#70089: days of a change have 23 or 25 hours."""
    assert hours(name, day) == length


def test_the_day_that_a_zone_skipped_is_no_day() -> None:
    """Pacific/Apia went from 29 to 31 December 2011."""
    tz = zone("Pacific/Apia")
    days = [midnight(date(2011, 12, 28), tz)]
    for _ in range(4):
        days.append(following(days[-1], "day", tz))
    assert [day.astimezone(tz).date().day for day in days] == [28, 29, 31, 1, 2]
    assert last_complete(midnight(date(2011, 12, 31), tz), "day", tz) == (days[1], days[2])


def test_a_clock_set_by_half_an_hour_makes_one_short_hour() -> None:
    tz = zone("Australia/Lord_Howe")
    starts = [datetime(2026, 4, 4, 13, tzinfo=UTC)]
    for _ in range(4):
        starts.append(following(starts[-1], "hour", tz))
    assert [(after - before) / timedelta(minutes=1) for before, after in pairwise(starts)] == [60, 60, 30, 60]
    assert starts[-1].astimezone(tz).isoformat() == "2026-04-05T03:00:00+10:30"


def test_the_end_of_the_calendar_is_a_start_too() -> None:
    assert floor(midnight(date(9999, 12, 31), UTC), "day", UTC) == datetime(9999, 12, 31, tzinfo=UTC)


@pytest.mark.parametrize("name", ["Mars/Olympus", "", "../etc/passwd", "America", None, 5, UTC])
def test_what_is_no_zone_is_refused(name: str) -> None:
    with pytest.raises(InvalidPartition, match=r"^SO-202 .* is not a time zone\. Use an IANA name"):
        zone(name)


def test_a_naive_moment_is_refused() -> None:
    with pytest.raises(NaiveDatetime, match=r"^SO-207 start is 2026-01-01T00:00:00, without a time zone\..*Give it"):
        utc(datetime(2026, 1, 1), "start")


def test_a_moment_of_any_class_becomes_a_plain_one() -> None:
    pendulum = pytest.importorskip("pendulum")
    found = utc(pendulum.datetime(2026, 1, 1, 1, tz="Europe/Berlin"), "start")
    assert (type(found), found) == (datetime, datetime(2026, 1, 1, tzinfo=UTC))
