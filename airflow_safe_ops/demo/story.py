"""What happens to the two DAGs, decided before anything runs: the same events for both."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from typing import Literal
from zoneinfo import ZoneInfo

NEW_YORK = ZoneInfo("America/New_York")
FIRST_DAY = date(2013, 1, 1)
FEWEST_DAYS, MOST_DAYS = 4, 365
APPEND_DAG, SAFE_DAG = "flights_daily_append", "flights_daily"
DAGS = (APPEND_DAG, SAFE_DAG)

Phase = Literal["history", "catch-up", "clears", "kill", "overlap"]


@dataclass(frozen=True)
class Story:
    """
    The incident over some days.

    :param days: the days whose flights are loaded.
    :param cleared: days whose scheduled run is cleared and runs again.
    :param killed: a day whose cleared run is killed while it writes.
    :param overlapped: a day whose cleared run and a new one by hand write at the same time.
    """

    days: tuple[date, ...]
    cleared: tuple[date, ...]
    killed: date
    overlapped: date


@dataclass(frozen=True)
class Job:
    """
    One DAG run to be made, or made again.

    :param day: the day whose flights the run loads.
    :param how: ``triggered`` at six in the morning after, ``by_hand`` at nine, ``scheduled`` at midnight,
        ``cleared``: the scheduled run again.
    """

    phase: Phase
    dag_id: str
    day: date
    how: Literal["triggered", "by_hand", "scheduled", "cleared"]

    @property
    def logical_date(self) -> datetime:
        """When the run is dated, in UTC: after its day has ended in New York."""
        hours = {"triggered": 6, "by_hand": 9}
        clock = time(hours.get(self.how, 0))
        return datetime.combine(self.day + timedelta(days=1), clock, NEW_YORK).astimezone(UTC)


def tell(days: int, seed: int) -> Story:
    """Choose which days suffer what; the same seed tells the same story."""
    dates = tuple(FIRST_DAY + timedelta(days=n) for n in range(days))
    dice = random.Random(seed)  # noqa: S311
    unlucky = dice.sample(dates, max(3, days // 4))
    killed, overlapped, *cleared = unlucky
    return Story(days=dates, cleared=tuple(sorted(cleared)), killed=killed, overlapped=overlapped)


def history(story: Story) -> Sequence[Job]:
    """Every day ran once, on the morning after, triggered from outside; catch-up is off."""
    return [Job("history", dag, day, "triggered") for day in story.days for dag in DAGS]


def catch_up(story: Story) -> Sequence[Job]:
    """Catch-up is turned on: no scheduled run exists yet, so Airflow makes one for every day since the start date."""
    return [Job("catch-up", dag, day, "scheduled") for day in story.days for dag in DAGS]


def clears(story: Story) -> Sequence[Job]:
    """Somebody clears task instances in the UI."""
    return [Job("clears", dag, day, "cleared") for day in story.cleared for dag in DAGS]


def kill(story: Story, dag_id: str) -> Job:
    """One of the cleared runs is killed while it writes."""
    return Job("kill", dag_id, story.killed, "cleared")


def overlap(story: Story, dag_id: str) -> tuple[Job, Job]:
    """One of the cleared runs meets a run by hand of the same day."""
    day = story.overlapped
    return Job("overlap", dag_id, day, "cleared"), Job("overlap", dag_id, day, "by_hand")
