"""The connection breaks at COMMIT: what is reported is what happened, and nothing is there twice."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from itertools import count, product
from typing import TYPE_CHECKING

import pytest

from airflow_safe_ops.definition.load import Load
from tests import figures
from tests.crash.harness import Child, Outcome, run_apart
from tests.crash.proxy import Loss, Proxy
from tests.crash.warehouse import STRATEGIES, Heap, Shop

if TYPE_CHECKING:
    from tests.conftest import Database

DRIVERS = ("psycopg", "psycopg2")
EACH = pytest.mark.parametrize("strategy", STRATEGIES)
# In the short tier one driver a strategy; in the long one each loss meets each commit of all.
SOME = pytest.mark.parametrize(("strategy", "driver"), [(s, DRIVERS[n % 2]) for n, s in enumerate(STRATEGIES)])
LOSSES: tuple[Loss, ...] = ("answer", "answer_not_awaited", "request")
# A deferred trigger on the ledger fires in COMMIT itself; one on the target would be settled before the count.
SLOW_COMMIT = """
CREATE FUNCTION slowly() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_sleep(1); RETURN NULL; END $$;
CREATE CONSTRAINT TRIGGER slow AFTER UPDATE ON safe_ops.safe_ops_attempt DEFERRABLE INITIALLY DEFERRED
  FOR EACH ROW WHEN (NEW.state = 'published') EXECUTE FUNCTION slowly()
"""
_numbers = count(1)


@pytest.fixture
def proxy(db: Database) -> Iterator[Proxy]:
    proxy = Proxy(db.folder, db.name)
    yield proxy
    proxy.close()


def _shop(db: Database, strategy: str) -> Shop:
    """Tables without a key, so that rows may stand twice, and a load with something to write."""
    shop = Heap(db, str(next(_numbers)))
    shop.ready(strategy)
    return shop


def _load_through(proxy: Proxy, shop: Shop, loss: Loss, load: Load, driver: str, timeout: float = 20) -> Outcome:
    """One load whose COMMIT of data and ledger meets the loss."""
    job = shop.job(load, driver=driver, pauses=frozenset({"commit:before"}))
    child = Child(replace(job, uri=proxy.uri))
    child.until("commit:before")
    proxy.loss = loss
    child.go()
    outcome = child.outcome(timeout)
    assert proxy.lost == 1
    return outcome


def _count(wrong: list[str], commits: int = 1) -> None:
    figures.add("commits", tried=commits, wrong=int(bool(wrong)))
    assert wrong == []


def _ends(shop: Shop) -> list[tuple[str, str | None]]:
    return [(a["outcome"], a["error_code"]) for a in shop.attempts()]


@SOME
def test_a_lost_answer_is_still_success(db: Database, proxy: Proxy, driver: str, strategy: str) -> None:
    shop = _shop(db, strategy)
    before = _ends(shop)
    outcome = _load_through(proxy, shop, "answer", shop.load(strategy=strategy), driver)
    assert outcome.published, outcome.error
    assert outcome.partitions[0]["rows_after"] == len(shop.rows())
    _count(shop.wrong())
    assert _ends(shop) == [*before, ("published", None)]
    assert shop.publishers() == [outcome.partitions[0]["attempt_id"]]
    shop.run(shop.load(strategy=strategy))
    assert shop.wrong() == []


@SOME
def test_a_commit_still_under_way_is_waited_for(db: Database, proxy: Proxy, driver: str, strategy: str) -> None:
    """The server takes its time to commit: whoever asks what became of it must not be told too early."""
    shop = _shop(db, strategy)
    before = _ends(shop)
    db.execute(SLOW_COMMIT)
    outcome = _load_through(proxy, shop, "answer_not_awaited", shop.load(strategy=strategy), driver)
    assert outcome.published, outcome.error
    assert outcome.seconds > 1
    _count(shop.wrong())
    assert _ends(shop) == [*before, ("published", None)]


@SOME
def test_a_commit_that_never_arrived_is_a_failure_that_heals(
    db: Database, proxy: Proxy, driver: str, strategy: str
) -> None:
    shop = _shop(db, strategy)
    before, rows = _ends(shop), shop.rows()
    outcome = _load_through(proxy, shop, "request", shop.load(strategy=strategy), driver)
    assert (outcome.code, outcome.terminal) == ("SO-403", False)
    assert shop.rows() == rows
    assert shop.claims() == []
    assert _ends(shop) == [*before, ("failed", "SO-403")]
    assert Child(shop.job(shop.load(strategy=strategy), driver=driver)).outcome().published
    _count(shop.wrong())
    assert _ends(shop) == [*before, ("failed", "SO-403"), ("published", None)]


@pytest.mark.long
def test_a_server_that_never_learns_of_it(db: Database) -> None:
    """The network swallows COMMIT and the goodbye: the server ends the transaction by itself within a minute."""

    def swallow(strategy: str, driver: str) -> None:
        shop = _shop(db, strategy)
        before, rows = _ends(shop), shop.rows()
        with closing(Proxy(db.folder, db.name)) as proxy:
            outcome = _load_through(proxy, shop, "everything", shop.load(strategy=strategy), driver, timeout=90)
            assert not outcome.published
            assert not outcome.terminal
            assert shop.rows() == rows
            again = Child(shop.job(shop.load(strategy=strategy), driver=driver)).outcome()
            assert again.published, again.error
            assert again.seconds < 5
        _count(shop.wrong())
        assert [outcome for outcome, _ in _ends(shop)][len(before) :] == ["failed", "published"]

    both = [(strategy, driver) for strategy in STRATEGIES for driver in DRIVERS]
    with ThreadPoolExecutor(len(both)) as hands:
        list(hands.map(lambda one: swallow(*one), both))


def _lose(db: Database, strategy: str, driver: str, loss: Loss, *, commit: int = 0, message: int = 0) -> bool:
    """Lose one of them; False where a load does not send so many."""
    shop = _shop(db, strategy)
    before = len(shop.attempts())
    with closing(Proxy(db.folder, db.name, tcp=commit % 2 == 1)) as proxy:
        proxy.loss, proxy.passes, proxy.at = loss, commit - 1, message
        job = shop.job(shop.load(strategy=strategy), driver=driver)
        outcome = run_apart(replace(job, uri=proxy.uri))
        lost = bool(proxy.lost)
    wrong = [outcome.error] if outcome.terminal else []
    ended = [outcome for outcome, _ in _ends(shop)][before:]
    if outcome.published != (ended == ["published"]):
        wrong.append(f"it said {outcome.error or 'published'}, and the ledger says {ended}")
    again = run_apart(shop.job(shop.load(strategy=strategy), driver=driver))
    wrong += [again.error] if again.error else shop.wrong()
    if again.waited > 2.5:
        wrong.append(f"it had to wait for {again.waited} s")
    if commit and lost:
        figures.add("commits", tried=1, wrong=int(bool(wrong)))
    assert wrong == [], (strategy, driver, loss, commit, message)
    return lost


@pytest.mark.long
@EACH
def test_whichever_commit_is_lost(db: Database, driver: str, strategy: str) -> None:
    """That of the claim, of a look at the ledger, of the data, of the last question; with a goodbye or a reset."""

    def lose_each(loss: Loss) -> int:
        number = 1
        while _lose(db, strategy, driver, loss, commit=number):
            number += 1
        return number - 1

    with ThreadPoolExecutor(len(LOSSES)) as hands:
        commits = list(hands.map(lose_each, LOSSES))
    assert min(commits) == max(commits) >= 4


@pytest.mark.long
@SOME
def test_the_connection_breaks_at_any_message(db: Database, driver: str, strategy: str) -> None:
    """Before the server has it, or before its answer is back; strategies and losses take their turns."""
    losses: tuple[Loss, ...] = ("answer", "request")
    turns = list(product(STRATEGIES, losses))

    def lose_each(loss: Loss) -> int:
        number = turns.index((strategy, loss)) + 1
        while _lose(db, strategy, driver, loss, message=number):
            number += len(turns)
        return number

    with ThreadPoolExecutor(len(losses)) as hands:
        messages = list(hands.map(lose_each, losses))
    assert min(messages) > 40
