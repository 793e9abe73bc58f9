"""An owner that stalls loses its claim, is kept from writing, and gets its turn; other writers beside a load."""

from __future__ import annotations

import signal
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING
from uuid import uuid4

import psycopg
import pytest

from airflow_safe_ops.definition.scope import TableScope
from airflow_safe_ops.execution.session import Session
from airflow_safe_ops.ledger import claims
from airflow_safe_ops.ledger.claims import Claim
from airflow_safe_ops.sql.dialect import dialect_for
from tests import figures
from tests.crash.harness import Child, connector, eventually, holding, until_blocked
from tests.crash.warehouse import FIRST, Shop, month

if TYPE_CHECKING:
    from tests.conftest import Database

INSIDE = frozenset({"stage.fill:after"})
BETWEEN = frozenset({"claim:after"})
WORD = str.maketrans(".:", "__")
LEVELS = ["read committed", "repeatable read"]


@pytest.fixture(params=LEVELS)
def shop(request: pytest.FixtureRequest, db: Database) -> Shop:
    db.execute(f"ALTER DATABASE {db.name} SET default_transaction_isolation = '{request.param}'")
    shop = Shop(db)
    shop.run()
    shop.new_version()
    return shop


def _ends(shop: Shop) -> list[tuple[str, str]]:
    """The attempts that ended, in the order of their ends: their partition's size and how."""
    ended = [a for a in shop.attempts() if a["finished_at"]]
    ended.sort(key=lambda a: a["finished_at"])
    return [("month" if "2026-02-01" in a["partition_key"] else "day", a["outcome"]) for a in ended]


def test_a_stalled_owner_is_fenced_and_gets_its_turn(shop: Shop) -> None:
    slow = Child(shop.job(grace=0.5, pauses=BETWEEN))
    slow.until("claim:after")
    quick = Child(shop.job(shop.load(month()), grace=0.5, pauses=INSIDE))
    quick.until("stage.fill:after")
    slow.go()
    until_blocked(slow)
    quick.go()
    outcomes = [quick.outcome(), slow.outcome()]
    assert [outcome.error for outcome in outcomes] == ["", ""]
    assert outcomes[1].points.count("claim:after") == 2
    assert _ends(shop) == [("day", "published"), ("month", "published"), ("day", "published")]
    assert shop.rows() == shop.rows(shop.source)
    assert shop.claims() == []


def test_an_owner_fenced_after_the_other_is_through(shop: Shop) -> None:
    """It wakes when the other has come and gone; what it loads then is what the source holds then."""
    slow = Child(shop.job(grace=0.5, pauses=BETWEEN))
    slow.until("claim:after")
    assert Child(shop.job(grace=0.5)).outcome().published
    shop.new_version()
    slow.go()
    outcome = slow.outcome()
    assert outcome.published, outcome.error
    assert outcome.points.count("claim:after") == 2
    assert shop.wrong() == []
    assert [a["outcome"] for a in shop.attempts()] == ["published"] * 3


def test_an_owner_at_work_is_never_fenced(db: Database) -> None:
    """However long its transaction takes, and however many wait."""
    shop = Shop(db)
    slow = Child(shop.job(grace=0.3, pauses=INSIDE))
    slow.until("stage.fill:after")
    waiting = [Child(shop.job(grace=0.3)) for _ in range(3)]
    for child in waiting:
        until_blocked(child)
    time.sleep(1.5)
    slow.go()
    outcomes = [slow.outcome(), *(child.outcome() for child in waiting)]
    assert [outcome.error for outcome in outcomes] == [""] * 4
    assert [outcome.points.count("claim:after") for outcome in outcomes] == [1] * 4
    assert shop.wrong() == []


def test_a_killed_waiter_keeps_nobody_back(db: Database) -> None:
    """The month waits for a day and dies; a second day waits behind the month."""
    shop = Shop(db)
    first = Child(shop.job(grace=0.5, pauses=INSIDE))
    first.until("stage.fill:after")
    wide = Child(shop.job(shop.load(month()), grace=0.5))
    until_blocked(wide)
    last = Child(shop.job(grace=0.5))
    until_blocked(last)
    wide.kill()
    first.go()
    assert first.outcome().published
    outcome = last.outcome(timeout=10)
    assert outcome.published, outcome.error
    wrong = shop.wrong()
    figures.add("kills", tried=1, wrong=int(bool(wrong)))
    assert wrong == []


def test_a_waiter_whose_place_was_taken_queues_again_first(db: Database) -> None:
    """It stalled, and those behind it took its place: it waits for nobody without a place in the queue."""
    shop = Shop(db)
    owner = Child(shop.job(pauses=INSIDE))
    owner.until("stage.fill:after")
    dialect = dialect_for("postgresql")
    session = Session(connector(db.uri, "psycopg"), dialect, label="safe_ops", comment="")
    session.open()
    scope = TableScope()
    claim = Claim(f'"public"."{shop.target}"', {"attempt_id": str(uuid4())}, (scope,), "waiter")
    ahead = claims._enter(session, dialect.ledger, claim)
    ticket = claim.ticket
    assert ahead is not None
    db.execute("DELETE FROM safe_ops.safe_ops_claim WHERE owner = 'waiter'")
    assert claims._wait(session, dialect.ledger, claim, ahead, left=1.0, grace=5.0) is False
    assert claims._enter(session, dialect.ledger, claim) == ahead
    assert claim.ticket == ticket
    assert [waiting for waiting, _held in shop.claims()].count("waiter") == 1
    session.close()


def test_one_that_cannot_wait_any_longer_names_the_owner(db: Database, driver: str) -> None:
    shop = Shop(db)
    owner = Child(shop.job(name="owner", pauses=INSIDE))
    owner.until("stage.fill:after")
    outcome = Child(shop.job(driver=driver, lock_timeout=0.5)).outcome()
    assert (outcome.code, outcome.terminal) == ("SO-401", False)
    assert "crash.owner" in outcome.error
    assert len(shop.claims()) == 1
    assert owner.outcome().published
    assert shop.wrong() == []
    assert sorted(a["outcome"] for a in shop.attempts()) == ["failed", "published"]


def _insert(shop: Shop, number: int) -> str:
    return f"INSERT INTO {shop.target} VALUES (DATE '{FIRST}', {number}, 0, 'by hand')"


def test_exclusive_keeps_a_plain_writer_out(shop: Shop) -> None:
    """A writer that knows no claims waits for the load; readers do not."""
    child = Child(shop.job(shop.load(exclusive=True), pauses=frozenset({"target.delete:after"})))
    child.until("target.delete:after")
    with psycopg.connect(shop.db.uri, autocommit=True) as writer:
        writer.execute("SET lock_timeout = '300ms'")
        with pytest.raises(psycopg.errors.LockNotAvailable):
            writer.execute(_insert(shop, 77).encode())
    assert len(shop.rows()) == 5
    assert child.outcome().published
    assert shop.wrong() == []


def test_exclusive_replaces_what_a_plain_writer_was_about_to_commit(shop: Shop) -> None:
    """The load waits for it and then sees it: under REPEATABLE READ too, since it asks for READ COMMITTED."""
    with psycopg.connect(shop.db.uri) as writer:
        writer.execute(_insert(shop, 77).encode())
        child = Child(shop.job(shop.load(exclusive=True)))
        until_blocked(child)
        writer.commit()
        assert child.outcome().published
    assert shop.wrong() == []


def test_exclusive_keeps_its_claim_while_it_waits_for_the_table(db: Database) -> None:
    """A plain writer holds the table for longer than claim_grace: the load that came first stays the first."""
    shop = Shop(db)
    shop.run()
    shop.new_version()
    with holding(db.uri, _insert(shop, 77)):
        first = Child(shop.job(shop.load(exclusive=True), grace=0.3))
        until_blocked(first)
        second = Child(shop.job(shop.load(month()), grace=0.3))
        until_blocked(second)
        time.sleep(1.5)
        passed = second.ended()
    outcomes = [first.outcome(), second.outcome()]
    assert [outcome.error for outcome in outcomes] == ["", ""]
    assert not passed, "who came second went first"
    assert _ends(shop) == [("day", "published"), ("day", "published"), ("month", "published")]
    assert [outcome.points.count("claim:after") for outcome in outcomes] == [1, 1]


def test_a_plain_writer_that_is_seen_rolls_the_load_back(db: Database, driver: str) -> None:
    """Without exclusive, rows that another writer puts between delete and count are noticed."""
    shop = Shop(db)
    shop.run()
    before = shop.rows()
    shop.new_version()
    child = Child(shop.job(driver=driver, pauses=frozenset({"target.insert:after"})))
    child.until("target.insert:after")
    db.execute(_insert(shop, 77))
    outcome = child.outcome()
    assert (outcome.code, outcome.terminal) == ("SO-111", False)
    assert [row for row in shop.rows() if row[1] != 77] == before
    shop.run()
    assert shop.wrong() == []


@pytest.mark.long
def test_a_frozen_owner_is_cut_off(db: Database) -> None:
    """A process that stands still in its transaction loses it after a minute, and may not write when it wakes."""

    points = ("claim.hold:after", "stage.fill:after", "target.delete:after", "target.insert:after", "commit:before")

    def freeze(point: str, driver: str) -> None:
        shop = Shop(db, f"{point.translate(WORD)}_{driver}", days=2)
        shop.run()
        shop.new_version()
        frozen = Child(shop.job(driver=driver, pauses=frozenset({point})))
        frozen.until(point)
        frozen.signal(signal.SIGSTOP)
        shop.new_version()
        other = Child(shop.job(driver=driver)).outcome(timeout=90)
        assert other.published, other.error
        assert 30 < other.waited < 70
        frozen.signal(signal.SIGCONT)
        late = frozen.outcome()
        assert not late.published
        assert not late.terminal
        assert shop.wrong() == []
        assert sorted(a["outcome"] for a in shop.attempts()) == ["failed", "published", "published"]

    cases = [(point, driver) for point in points for driver in ("psycopg", "psycopg2")]
    with ThreadPoolExecutor(len(cases)) as hands:
        list(hands.map(lambda case: freeze(*case), cases))


def test_the_ledger_tells_who_lives(db: Database) -> None:
    """A load at work is running however long it takes; one that died is lost as soon as the server knows."""
    grace = 0.3
    shop = Shop(db)
    alive = Child(shop.job(pauses=INSIDE))
    alive.until("stage.fill:after")
    assert [a["outcome"] for a in shop.attempts(grace)] == ["running"]
    time.sleep(grace * 3)
    assert [a["outcome"] for a in shop.attempts(grace)] == ["running"]
    alive.kill()
    assert eventually(lambda: [a["outcome"] for a in shop.attempts(grace)] == ["lost"])
