"""How often, and how soon, a failure of each class is tried again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from datetime import timedelta
from typing import Any

from airflow_safe_ops.errors import FailureClass, InvalidRetryPolicy

_MOST_TRIES = 1000
_LONGEST = timedelta(days=30)


def check_retries(name: str, value: Any) -> None:
    """Refuse what is not given as Retries(…)."""
    if value is not None and not isinstance(value, Retries):
        raise InvalidRetryPolicy(f"{name}={value!r} is no Retries(…).")


def _whole(name: str, value: Any, least: int, most: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise InvalidRetryPolicy(f"{name}={value!r} is no whole number between {least:,} and {most:,}.")
    return value


def _number(name: str, value: Any, least: float, most: float) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value <= most:
        raise InvalidRetryPolicy(f"{name}={value!r} is no number between {least:g} and {most:g}.")
    return float(value)


def checked_span(name: str, value: Any) -> timedelta:
    """A span of time that a policy can mean."""
    if not isinstance(value, timedelta) or not timedelta() < value <= _LONGEST:
        raise InvalidRetryPolicy(f"{name}={value!r} is no timedelta above zero and up to {_LONGEST.days} days.")
    return value


@dataclass(frozen=True)
class Retries:
    """
    How failures of one class are tried again.

    :param tries: tries that may fail in this way in all, the first included; 1 is never again.
    :param delay: before the second try; None: the task's own ``retry_delay``.
    :param growth: each delay is so many times the one before; 1 keeps it.
    :param longest: no delay is longer, except one that a server asked for (Retry-After).
    :param jitter: a delay is so much shorter or longer, 0.2 is up to 20 %, so that tasks that failed together do not
        come back together. It follows from DAG, task, run and try, and is the same each time it is computed.
    :raises InvalidRetryPolicy: a value is out of range.
    """

    tries: int = 1
    delay: timedelta | None = None
    growth: float = 2.0
    longest: timedelta = timedelta(minutes=10)
    jitter: float = 0.2

    def __post_init__(self) -> None:
        _whole("tries", self.tries, 1, _MOST_TRIES)
        if self.delay is not None:
            checked_span("delay", self.delay)
        checked_span("longest", self.longest)
        _number("growth", self.growth, 1.0, 100.0)
        _number("jitter", self.jitter, 0.0, 0.9)
        if self.delay is not None and self.delay > self.longest:
            raise InvalidRetryPolicy(f"delay ({self.delay}) is longer than longest ({self.longest}).")

    def before(self, failed: int, chance: float) -> timedelta | None:
        """
        The delay before the next try.

        :param failed: how many tries failed so far.
        :param chance: between 0 and 1.
        """
        if self.delay is None:
            return None
        first, longest = self.delay.total_seconds(), self.longest.total_seconds()
        grown = longest
        if self.growth ** min(failed - 1, 50) * first < longest:
            grown = self.growth ** (failed - 1) * first
        return timedelta(seconds=min(longest, grown * (1 + self.jitter * (2 * chance - 1))))


NEVER = Retries(tries=1)
_HALF_MINUTE, _TEN_SECONDS, _MINUTE = timedelta(seconds=30), timedelta(seconds=10), timedelta(minutes=1)
# The defaults. UNKNOWN is not here: what no rule knows is retried as the task says.
DEFAULTS: Mapping[FailureClass, Retries] = {
    FailureClass.TRANSIENT: Retries(tries=5, delay=_HALF_MINUTE, growth=2, longest=10 * _MINUTE, jitter=0.2),
    FailureClass.CONTENTION: Retries(tries=6, delay=_TEN_SECONDS, growth=2, longest=2 * _MINUTE, jitter=0.5),
    FailureClass.RESOURCE: Retries(tries=4, delay=2 * _MINUTE, growth=3, longest=30 * _MINUTE, jitter=0.5),
    FailureClass.CANCELLED: Retries(tries=2),
    FailureClass.LATE_INPUT: NEVER,
    FailureClass.PERMISSION: NEVER,
    FailureClass.CONTRACT: NEVER,
    FailureClass.DATA: NEVER,
}
NEVER_RETRIED = (FailureClass.PERMISSION, FailureClass.CONTRACT, FailureClass.DATA)
TOTAL = timedelta(hours=6)


def plain(how: Retries) -> dict[str, Any]:
    """As JSON takes it."""
    facts = asdict(how)
    return {n: value.total_seconds() if isinstance(value, timedelta) else value for n, value in facts.items()}


def retries_from(facts: Mapping[str, Any]) -> Retries:
    """Back from that."""
    spans = ("delay", "longest")
    names = {field.name for field in fields(Retries)}
    if set(facts) != names:
        raise ValueError(f"{sorted(facts)} are not {sorted(names)}")
    given: dict[str, Any] = dict(facts)
    given |= {name: timedelta(seconds=given[name]) for name in spans if given[name] is not None}
    return Retries(**given)


def told(span: timedelta) -> str:
    """A span in words."""
    seconds = span.total_seconds()
    for unit, length, most in (("s", 1.0, 100), ("min", 60.0, 100), ("h", 3600.0, 72)):
        if round(seconds / length) < most:
            return f"{_plain(seconds / length)} {unit}"
    return f"{_plain(seconds / 86400)} days"


def _plain(number: float) -> str:
    return f"{number:.2g}" if number < 10 else f"{round(number):,}"
