"""Writers that are not ours, killed, overlapped and repeated under the guard."""

from __future__ import annotations

import random
import signal
import time
from typing import TYPE_CHECKING

import pytest

from tests import figures
from tests.crash.guards import POINTS, writer
from tests.crash.harness import Child, run_apart
from tests.crash.proxy import Proxy
from tests.crash.warehouse import ROWS, Heap, month

if TYPE_CHECKING:
    from tests.conftest import Database

DRIVERS = ("psycopg", "psycopg2")


@pytest.fixture
def shop(db: Database) -> Heap:
    """No key keeps a row from standing twice."""
    shop = Heap(db)
    shop.run(shop.load(table=shop.twin))
    return shop


def _state(shop: Heap) -> list[str]:
    return [state for _, state, *_ in shop.partitions()]


def _wrong(shop: Heap) -> list[str]:
    """What differs from one clean run of the writer."""
    found = [] if shop.rows() == shop.rows(shop.twin) else [f"rows: {shop.rows()}"]
    if shop.partitions() != shop.partitions(shop.twin):
        found.append(f"ledger: {shop.partitions()}")
    found += [f"claims: {shop.claims()}"] if shop.claims() else []
    figures.add("kills", tried=1, wrong=int(bool(found)))
    return found


@pytest.mark.parametrize("driver", DRIVERS)
@pytest.mark.parametrize("point", POINTS)
def test_killed(shop: Heap, point: str, driver: str) -> None:
    """Killed anywhere, the ledger says what is known, and a run with the declared clean-up heals it."""
    child = writer(shop, point, driver=driver)
    child.until(point)
    child.kill()
    assert _state(shop) == (["published"] if point == "ended" else ["unconfirmed"])
    rows = {"begun": 0, "half": 1}.get(point, ROWS)
    assert len(shop.rows()) == rows
    refused = writer(shop, on_repeat="fail", driver=driver).outcome()
    assert refused.code == ("SO-731" if rows else "")
    again = writer(shop, driver=driver).outcome()
    assert again.error == ""
    assert again.seconds < 10
    assert _wrong(shop) == []
    outcomes = [a["outcome"] for a in shop.attempts()]
    assert outcomes[0] == ("published" if point == "ended" else "lost")


def test_killed_at_any_moment(shop: Heap) -> None:
    chance = random.Random(1)  # noqa: S311
    for _ in range(15):
        child = writer(shop)
        child.until_connected()
        time.sleep(chance.uniform(0, 0.2))
        child.kill()
        again = writer(shop).outcome()
        assert again.error == ""
        assert _wrong(shop) == []


def test_many_at_once(shop: Heap) -> None:
    """Each waits for the one before it, cleans up, and writes; a load of the month is among them."""
    writers = [writer(shop, driver=DRIVERS[n % 2], name=f"guarded_{n}") for n in range(6)]
    load = Child(shop.job(shop.load(month(), unique_key=None)))
    assert [child.outcome(60).error for child in (*writers, load)] == [""] * 7
    assert writer(shop).outcome().error == ""
    first = [row for row in shop.rows() if row in shop.rows(shop.twin)]
    assert first == shop.rows(shop.twin)
    assert len(shop.rows()) == 31 * ROWS
    assert shop.claims() == []


def test_many_at_once_of_which_one_writes(shop: Heap) -> None:
    """Where no clean-up is declared the others are refused: one copy, whoever was first."""
    writers = [writer(shop, on_repeat="fail", name=f"guarded_{n}") for n in range(6)]
    assert sorted(child.outcome(60).code for child in writers) == ["", *["SO-731"] * 5]
    assert _wrong(shop) == []


def test_a_second_one_waits_while_the_first_is_half_way(shop: Heap) -> None:
    first = writer(shop, "half")
    first.until("half")
    second, load = writer(shop, "begun", name="second"), Child(shop.job(shop.load(unique_key=None)))
    assert not second.until_anywhere(0.5)
    assert not load.ended()
    first.go()
    assert first.outcome().error == ""
    second.until_anywhere()
    second.go()
    assert [second.outcome().error, load.outcome().error] == ["", ""]
    assert shop.rows() == shop.rows(shop.twin)


@pytest.mark.parametrize("driver", DRIVERS)
def test_a_writer_whose_network_falls_silent(db: Database, shop: Heap, driver: str) -> None:
    """The guard says that it does not know any more; another one gets the partition, the ledger has both."""
    proxy = Proxy(db.folder, db.name)
    first = writer(shop, "half", claim_uri=proxy.uri, driver=driver, every=0.5)
    first.until("half")
    proxy.silent.set()
    time.sleep(2)
    first.go()
    ended = first.outcome(120)
    proxy.close()
    assert ended.code == "SO-732", ended.error
    assert writer(shop).outcome(75).error == ""
    assert _wrong(shop) == []


@pytest.mark.parametrize("loss", ["answer", "request"])
def test_the_answer_to_its_commit_is_lost(db: Database, shop: Heap, loss: str) -> None:
    """The ledger is asked: published is success, and what was not published is said to be unfenced."""
    proxy = Proxy(db.folder, db.name)
    first = writer(shop, "written", claim_uri=proxy.uri)
    first.until("written")
    proxy.loss = loss  # type: ignore[assignment]
    first.go()
    ended = first.outcome(90)
    proxy.close()
    assert ended.code == ("" if loss == "answer" else "SO-732"), ended.error
    assert _state(shop) == (["published"] if loss == "answer" else ["unconfirmed"])
    assert writer(shop).outcome().error == ""
    assert _wrong(shop) == []


def test_a_frozen_process_loses_its_claim(shop: Heap) -> None:
    """It is told so when it goes on: whatever it then writes is not called published."""
    first = writer(shop, "half", every=0.3)
    first.until("half")
    held = "application_name LIKE 'safe_ops % guard' AND state LIKE 'idle in%'"
    first.signal(signal.SIGSTOP)
    assert shop.db.execute(f"SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE {held}") == [(True,)]
    assert writer(shop, name="second").outcome().error == ""
    first.signal(signal.SIGCONT)
    first.go()
    assert first.outcome().code == "SO-732"
    assert _state(shop) == ["unconfirmed"]
    assert writer(shop).outcome().error == ""
    assert _wrong(shop) == []


def test_beside_a_load_of_ours(shop: Heap) -> None:
    outcome = run_apart(shop.job(shop.load(unique_key=None)))
    assert outcome.error == ""
    assert writer(shop, on_repeat="fail").outcome().code == "SO-731"
    assert writer(shop).outcome().error == ""
    assert _wrong(shop) == []
