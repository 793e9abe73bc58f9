"""
The package, broken in one place: a test must fail by what a database holds.

Each mutant has a copy of the repository and a run of pytest of its own.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest

from tests import figures
from tests.sabotage.mutant import Mutant
from tests.sabotage.mutants import MUTANTS
from tests.sabotage.run import Verdict, try_mutant, try_unchanged

HANDS = 2


class Bench:
    """Runs two copies at a time, and begins early with those whose tests are to come."""

    def __init__(self, hands: ThreadPoolExecutor) -> None:
        self._hands = hands
        self._runs: dict[str, Future[Any]] = {}

    def unchanged(self) -> Future[list[str]]:
        """The run of all catching tests on a copy without a fault."""
        return self._run("", try_unchanged, MUTANTS)

    def broken(self, mutant: Mutant) -> Future[Verdict]:
        """The run on a copy with that fault."""
        return self._run(mutant.name, try_mutant, mutant)

    def _run(self, name: str, work: Any, given: Any) -> Future[Any]:
        if name not in self._runs:
            self._runs[name] = self._hands.submit(work, given)
        return self._runs[name]


@pytest.fixture(scope="module")
def bench(request: pytest.FixtureRequest) -> Iterator[Bench]:
    with ThreadPoolExecutor(HANDS) as hands:
        bench = Bench(hands)
        if "PYTEST_XDIST_WORKER" not in os.environ:  # there each worker has a part of the tests
            for item in request.session.items:
                if item.path == request.path and isinstance(item, pytest.Function):
                    mutant: Any = item.callspec.params["mutant"] if hasattr(item, "callspec") else None
                    bench.unchanged() if mutant is None else bench.broken(mutant)
        yield bench
        hands.shutdown(cancel_futures=True)


def test_the_package_as_it_is_passes_what_catches_them(bench: Bench) -> None:
    """A copy of the same kind, without a fault."""
    assert bench.unchanged().result() == []


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_caught(mutant: Mutant, bench: Bench) -> None:
    verdict = bench.broken(mutant).result()
    figures.add("mutants", planted=1, caught=int(verdict.caught))
    assert verdict.caught, verdict.why
