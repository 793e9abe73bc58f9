"""The server dies under a load and recovers: data and ledger come back together, and the next load heals."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from tests import figures, servers
from tests.crash.harness import Child, eventually
from tests.crash.warehouse import STRATEGIES, Heap

if TYPE_CHECKING:
    from tests.conftest import Database

POINTS = ("claim:after", "stage.fill:after", "target.insert:after", "ledger.publish:after", "commit:after")
DRIVERS = ("psycopg", "psycopg2")
CASES = [(strategy, point) for strategy in STRATEGIES for point in POINTS]


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    """A server that nobody else uses."""
    with servers.running(servers.EMBEDDED) as folder:
        yield folder


def _crash(db: Database, backend: int) -> None:
    """Kill one of its processes, as a lack of memory would: all sessions end, and it replays its log."""
    witness = psycopg.connect(db.uri, autocommit=True)
    os.kill(backend, signal.SIGKILL)
    assert eventually(lambda: not _answers(lambda: witness.execute("SELECT 1").fetchone()), 30)
    assert eventually(lambda: _answers(lambda: db.execute("SELECT 1")), 30)


def _answers(ask: Callable[[], Any]) -> bool:
    try:
        ask()
    except psycopg.OperationalError:
        return False
    return True


@pytest.mark.long
@pytest.mark.parametrize(("number", "strategy", "point"), [(n, *case) for n, case in enumerate(CASES)])
def test_the_server_crashes_under_a_load(db: Database, folder: Path, number: int, strategy: str, point: str) -> None:
    own = replace(db, name="postgres", folder=folder)
    driver = DRIVERS[number % 2]
    shop = Heap(own, str(number))
    shop.ready(strategy)
    before, rows = shop.attempts(), shop.rows()
    child = Child(shop.job(shop.load(strategy=strategy), driver=driver, pauses=frozenset({point})))
    child.until(point)
    _crash(own, child.backends[-1])
    outcome = child.outcome()
    assert outcome.published == (point == "commit:after"), outcome.error
    assert not outcome.terminal
    assert outcome.published or shop.rows() == rows
    again = Child(shop.job(shop.load(strategy=strategy), driver=driver)).outcome()
    wrong = [again.error] if again.error else shop.wrong()
    figures.add("kills", tried=1, wrong=int(bool(wrong)))
    assert wrong == []
    ends = ["published" if outcome.published else "failed", "published"]
    assert [a["outcome"] for a in shop.attempts()][len(before) :] == ends
