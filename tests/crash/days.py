"""The days of a history, around a change of week and of month, and the periods that are loaded."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, timedelta

FIRST = date(2025, 1, 30)  # a Thursday
DAYS = tuple((FIRST + timedelta(days=n)).isoformat() for n in range(6))


@dataclass(frozen=True, repr=False)
class Period:
    """
    The rows that a load owns: all of the table, or those of some days.

    :param first: the first day; empty for the whole table.
    :param end: the day after the last one.
    """

    first: str = ""
    end: str = ""

    def __repr__(self) -> str:
        return "Period()" if self.is_all else f"Period({self.first!r}, {self.end!r})"

    @property
    def is_all(self) -> bool:
        """Whether it is the whole table."""
        return not self.first

    @property
    def key(self) -> str:
        """Its name in the ledger."""
        return "*" if self.is_all else f"day={self.first}..{self.end}"

    def holds(self, day: str | None) -> bool:
        """Whether a row of that day belongs to it."""
        return self.is_all or (day is not None and self.first <= day < self.end)

    def overlaps(self, other: Period) -> bool:
        """Whether a row could belong to both."""
        return self.is_all or other.is_all or (self.first < other.end and other.first < self.end)

    def covers(self, other: Period) -> bool:
        """Whether every row of the other one belongs to it."""
        return self.is_all or (not other.is_all and self.first <= other.first and other.end <= self.end)

    def before(self, days: int) -> Period:
        """The period so many days earlier."""
        first, end = (date.fromisoformat(bound) - timedelta(days=days) for bound in (self.first, self.end))
        return Period(first.isoformat(), end.isoformat())


def day(number: int) -> Period:
    """One of the six days."""
    return _days(FIRST + timedelta(days=number), 1)


def week(number: int) -> Period:
    """The week before or after the change: the first one shares a day with February."""
    return _days(date(2025, 1, 27) + timedelta(weeks=number), 7)


def month(number: int) -> Period:
    """January or February."""
    first, end = (date(2025, 1 + number + n, 1) for n in range(2))
    return Period(first.isoformat(), end.isoformat())


def _days(first: date, count: int) -> Period:
    return Period(first.isoformat(), (first + timedelta(days=count)).isoformat())
