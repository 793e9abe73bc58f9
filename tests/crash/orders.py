"""Loads that ran, one after the other or at once, and the orders in which they may have taken place."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import permutations, product

from tests.crash.harness import Outcome
from tests.crash.oracle import Ask, Row, Table, Verdict, judge
from tests.crash.world import Task


@dataclass(frozen=True)
class Ran:
    """
    A load that ended.

    :param sources: what its query may have read.
    :param first: those whose partitions overlap its own ended after it.
    """

    task: Task
    outcome: Outcome
    sources: tuple[tuple[Row, ...], ...]
    first: bool = False

    @property
    def ask(self) -> Ask:
        """What was asked for."""
        return self.task.ask

    @property
    def attempt(self) -> str:
        """How the ledger should tell it."""
        return f"failed {self.outcome.code}" if self.outcome.code else "published"

    def complaints(self, verdict: Verdict) -> list[str]:
        """What is not as the oracle says."""
        if self.outcome.code != verdict.code:
            return [f"{self.outcome.error or self.attempt}, expected {verdict.code or 'published'}"]
        if not self.outcome.partitions:
            return []
        told = self.outcome.partitions[0]
        found = []
        counts = {name: told[name] for name in verdict.counts}
        if counts != verdict.counts:
            found.append(f"counted {counts}, expected {verdict.counts}")
        if verdict.changed not in (None, told["changed"]):
            found.append(f"changed is {told['changed']}, expected {verdict.changed}")
        return found


@dataclass(frozen=True)
class Story:
    """
    What would be there, had the loads come in this order.

    :param complaints: where they ended otherwise than they did.
    """

    order: Sequence[Ran]
    table: Table
    complaints: list[str]
    met: Counter[str]


def stories(table: Table, ran: Sequence[Ran], *, at_once: bool) -> Iterator[Story]:
    """Every order in which the loads may have come, with every source that they may have read."""
    for order in permutations(ran) if at_once else [ran]:
        if _is_possible(order):
            for sources in product(*(each.sources for each in order)):
                yield _told(table, order, sources)


def _is_possible(order: Sequence[Ran]) -> bool:
    """Whether nobody who had to wait went before the one that was first."""
    return not any(
        later.first and later.ask.period.overlaps(earlier.ask.period)
        for n, later in enumerate(order)
        for earlier in order[:n]
    )


def _told(table: Table, order: Sequence[Ran], sources: Sequence[tuple[Row, ...]]) -> Story:
    complaints: list[str] = []
    met: Counter[str] = Counter()
    for each, source in zip(order, sources, strict=True):
        verdict = judge(table, source, each.ask)
        met.update(verdict.met)
        if each.outcome.code == "SO-111" and _was_beside(each, order):
            continue
        complaints += each.complaints(verdict)
        table = verdict.table
    return Story(order, table, complaints, met)


def _was_beside(ran: Ran, order: Sequence[Ran]) -> bool:
    """Whether another load, of other rows, wrote meanwhile: it may have brought one of our keys."""
    return any(
        other is not ran and not other.outcome.code and not other.ask.period.overlaps(ran.ask.period) for other in order
    )
