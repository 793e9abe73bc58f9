"""Calendar arithmetic: where an hour, day, week, month, quarter or year of a time zone begins and ends."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta, tzinfo
from functools import lru_cache
from typing import Literal, get_args
from zoneinfo import ZoneInfo

from airflow_safe_ops.errors import InvalidPartition, NaiveDatetime

Grain = Literal["hour", "day", "week", "month", "quarter", "year"]
GRAINS: tuple[str, ...] = get_args(Grain)


@lru_cache(maxsize=64)
def zone(name: str) -> ZoneInfo:
    """The time zone of an IANA name, or a clear refusal."""
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError, TypeError, AttributeError) as error:
        raise InvalidPartition(
            f"{name!r} is not a time zone.",
            fix='Use an IANA name such as "UTC" or "America/New_York".',
            timezone=name,
        ) from error


def utc(moment: datetime, what: str) -> datetime:
    """The same instant as a plain datetime in UTC; a naive one is refused."""
    if moment.tzinfo is None or moment.utcoffset() is None:
        raise NaiveDatetime(f"{what} is {moment.isoformat()}, without a time zone.", moment=moment.isoformat())
    there = moment.astimezone(UTC)
    return datetime(there.year, there.month, there.day, there.hour, there.minute, there.second, there.microsecond, UTC)


def midnight(day: date, tz: tzinfo) -> datetime:
    """The instant at which a calendar day begins in a zone, also where 00:00 does not exist or comes twice."""
    return datetime(day.year, day.month, day.day, tzinfo=tz).astimezone(UTC)


def floor(moment: datetime, grain: str, tz: tzinfo) -> datetime:
    """The start, in UTC, of the grain of that zone in which the moment lies."""
    local = moment.astimezone(tz)
    if grain != "hour":
        return midnight(_first_day(local.date(), grain), tz)
    start = local.astimezone(UTC) - timedelta(
        minutes=local.minute, seconds=local.second, microseconds=local.microsecond
    )
    while start.astimezone(tz).utcoffset() != local.utcoffset():  # the clock was set within this hour: it begins there
        start += timedelta(minutes=1)
    return start


def following(start: datetime, grain: str, tz: tzinfo) -> datetime:
    """The start, in UTC, of the grain after the one that begins there."""
    if grain == "hour":
        end = start + timedelta(hours=1)
        while (earlier := preceding(end, grain, tz)) > start:
            end = earlier
        return end
    day = _first_day(start.astimezone(tz).date(), grain)
    if grain in ("day", "week"):
        return midnight(day + timedelta(days=7 if grain == "week" else 1), tz)
    months = day.year * 12 + day.month - 1 + {"month": 1, "quarter": 3, "year": 12}[grain]
    return midnight(date(months // 12, months % 12 + 1, 1), tz)


def preceding(start: datetime, grain: str, tz: tzinfo) -> datetime:
    """The start, in UTC, of the grain before the one that begins there; a day that a zone skipped is none."""
    return floor(start - timedelta(microseconds=1), grain, tz)


def last_complete(moment: datetime, grain: str, tz: tzinfo) -> tuple[datetime, datetime]:
    """The last grain that ends at or before the moment."""
    end = floor(moment, grain, tz)
    return preceding(end, grain, tz), end


def has_changing_offset(tz: tzinfo, start: datetime) -> bool:
    """Whether the zone's offset changes in the year around the moment, so that wall clocks repeat or skip."""
    return len({(start + timedelta(days=30 * n)).astimezone(tz).utcoffset() for n in range(-6, 7)}) > 1


def _first_day(day: date, grain: str) -> date:
    if grain == "week":
        return day - timedelta(days=day.weekday())
    if grain == "month":
        return day.replace(day=1)
    if grain == "quarter":
        return date(day.year, (day.month - 1) // 3 * 3 + 1, 1)
    if grain == "year":
        return date(day.year, 1, 1)
    return day
