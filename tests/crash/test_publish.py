"""Publishers that are killed, stopped, cut off from their ledger, or not alone: the receiver gets it once."""

from __future__ import annotations

import signal
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from threading import Timer
from typing import TYPE_CHECKING, Any

import pytest

from airflow_safe_ops.plan.model import Statement
from airflow_safe_ops.sql.dialect import Limits
from airflow_safe_ops.sql.postgres import Postgres
from tests.crash.harness import Child, Outcome, eventually, until_blocked
from tests.crash.proxy import Loss, Proxy
from tests.crash.publishers import INTENT, KEY, POINTS, PublishJob, publish, publish_here
from tests.receiver import HANG, LOSE, Receiver, receiving

if TYPE_CHECKING:
    from tests.conftest import Database

# asks, takes_keys: whether the receiver can be looked up, whether it takes an Idempotency-Key
DECIDABLE = [(True, False), (False, True)]
# Where the key alone decides, in the short tier.
BY_KEY = ("publish.begin:after", "publish.send:after")
UNKNOWN_FROM = POINTS.index("publish.begin:after")


def start(db: Database, receiver: Receiver, *pauses: str, **more: Any) -> Child:
    job = PublishJob(uri=db.uri, url=receiver.url, takes_keys=receiver.takes_keys, pauses=frozenset(pauses), **more)
    return Child(job, main=publish)


def run(db: Database, receiver: Receiver, **more: Any) -> Outcome:
    child = start(db, receiver, **more)
    outcome = child.outcome(60)
    child.close()
    return outcome


def state(db: Database) -> tuple[Any, ...]:
    ((*found,),) = db.execute("SELECT state, sends FROM safe_ops.safe_ops_publication")
    return tuple(found)


@pytest.mark.parametrize(
    ("point", "asks", "takes_keys"),
    [
        *((point, True, False) for point in POINTS),
        *(
            pytest.param(point, False, True, marks=[] if point in BY_KEY else [pytest.mark.long])
            for point in POINTS
            if not point.startswith("publish.ask")
        ),
    ],
)
def test_killed_anywhere_it_happens_once(db: Database, point: str, asks: bool, takes_keys: bool) -> None:
    """apache/airflow#69174: a worker that dies after it sent does not make a second one."""
    with receiving(takes_keys=takes_keys) as receiver:
        child = start(db, receiver, point, asks=asks)
        child.until(point)
        child.kill()
        again = run(db, receiver, asks=asks)
        assert again.published, again.error
        assert receiver.effects == [(KEY, INTENT)]
        assert len(set(receiver.keys)) == 1
        assert run(db, receiver, asks=asks).partitions[0]["how"] == "recorded"
    assert state(db)[0] == "done"


@pytest.mark.parametrize(("asks", "takes_keys"), DECIDABLE)
def test_killed_while_the_receiver_works(db: Database, asks: bool, takes_keys: bool) -> None:
    """It has done it and does not answer."""
    with receiving(takes_keys=takes_keys, will=[HANG]) as receiver:
        child = start(db, receiver, asks=asks)
        assert eventually(lambda: receiver.effects, 30)
        child.kill()
        again = run(db, receiver, asks=asks)
        assert again.published, again.error
        assert receiver.effects == [(KEY, INTENT)]
    assert state(db)[0] == "done"


@pytest.mark.parametrize("point", [point for point in POINTS if not point.startswith("publish.ask")])
def test_killed_where_nobody_can_be_asked(db: Database, point: str) -> None:
    """Sent if it certainly was not; undecided where it may have been, and never sent again."""
    with receiving() as receiver:
        child = start(db, receiver, point, asks=False)
        child.until(point)
        child.kill()
        before = len(receiver.posts)
        again = run(db, receiver, asks=False)
        if point == POINTS[-1]:
            assert again.partitions[0]["how"] == "recorded"
        elif POINTS.index(point) < UNKNOWN_FROM:
            assert again.published, again.error
            assert receiver.effects == [(KEY, INTENT)]
        else:
            assert (again.code, again.terminal) == ("SO-724", True)
            assert run(db, receiver, asks=False).code == "SO-724"
            assert len(receiver.posts) == before
            assert state(db) == ("undecided", 1)


def test_the_receiver_counts_one_where_nobody_can_be_asked(db: Database) -> None:
    with receiving(will=[HANG]) as receiver:
        child = start(db, receiver, asks=False)
        assert eventually(lambda: receiver.effects, 30)
        child.kill()
        assert [run(db, receiver, asks=False).code for _ in range(3)] == ["SO-724"] * 3
        assert (len(receiver.posts), receiver.effects) == (1, [(KEY, INTENT)])


@pytest.mark.parametrize("asks", [True, False])
def test_eight_processes_at_once(db: Database, asks: bool) -> None:
    with receiving() as receiver:
        children = [start(db, receiver, asks=asks, name=f"p{n}") for n in range(8)]
        outcomes = [child.outcome(60) for child in children]
        assert [outcome.error for outcome in outcomes] == [""] * 8
        assert sorted(o.partitions[0]["how"] for o in outcomes) == ["recorded"] * 7 + ["sent"]
        assert (len(receiver.posts), receiver.effects) == (1, [(KEY, INTENT)])
    assert state(db) == ("done", 1)


def test_the_next_in_line_takes_over_from_one_that_is_killed(db: Database) -> None:
    with receiving(will=[LOSE]) as receiver:
        first = start(db, receiver, "publish.send:after")
        first.until("publish.send:after")
        second = start(db, receiver)
        until_blocked(second)
        first.kill()
        outcome = second.outcome(30)
        assert outcome.partitions[0]["how"] == "found"
        assert receiver.effects == [(KEY, INTENT)]


def test_a_publisher_that_waits_too_long_names_the_other(db: Database) -> None:
    with receiving() as receiver:
        first = start(db, receiver, "publish.send:before", name="slow")
        first.until("publish.send:before")
        late = run(db, receiver, lock_timeout=0.5)
        assert (late.code, late.terminal) == ("SO-729", False)
        assert "crash.slow" in late.error
        assert first.outcome().published
        assert receiver.effects == [(KEY, INTENT)]


def test_one_that_stood_still_before_its_send_does_not_send(db: Database) -> None:
    """It began a send, and somebody took over; when it wakes up its token is gone."""
    with receiving() as receiver:
        frozen = start(db, receiver, "publish.begin:after")
        frozen.until("publish.begin:after")
        frozen.signal(signal.SIGSTOP)
        assert run(db, receiver).partitions[0]["how"] == "sent"
        frozen.signal(signal.SIGCONT)
        assert frozen.outcome().partitions[0]["how"] == "recorded"
        assert (len(receiver.posts), receiver.effects) == (1, [(KEY, INTENT)])


@pytest.mark.parametrize("driver", ["psycopg", "psycopg2"])
@pytest.mark.parametrize("point", ["publish.ask:after", "publish.begin:after", "publish.send:before"])
def test_a_ledger_that_hangs_up_before_the_send(db: Database, point: str, driver: str) -> None:
    """Nothing was sent, and that is known."""
    with receiving() as receiver:
        child = start(db, receiver, point, asks=point.startswith("publish.ask"), driver=driver)
        child.until(point)
        db.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid = ANY (%s)", (child.backends,))
        outcome = child.outcome()
        if point == "publish.send:before":  # too late to notice: it is sent, and recorded on a new connection
            assert outcome.published, outcome.error
        else:
            assert (outcome.code, outcome.terminal, receiver.posts) == ("SO-601", False, [])
            assert run(db, receiver, asks=False).published
        assert receiver.effects == [(KEY, INTENT)]
    assert state(db)[0] == "done"


@pytest.mark.parametrize("driver", ["psycopg", "psycopg2"])
@pytest.mark.parametrize("point", ["publish.send:after", "publish.outcome:before"])
def test_a_ledger_that_hangs_up_after_the_send(db: Database, point: str, driver: str) -> None:
    """The receiver's answer is recorded on a new connection."""
    with receiving() as receiver:
        child = start(db, receiver, point, asks=False, driver=driver)
        child.until(point)
        db.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid = ANY (%s)", (child.backends,))
        outcome = child.outcome()
        assert outcome.published, outcome.error
        assert (len(receiver.posts), state(db)) == (1, ("done", 1))


def test_an_answer_that_comes_after_somebody_gave_up(db: Database) -> None:
    """It lost its lock in mid-send; whoever looked meanwhile could not tell, and did not send."""
    with receiving() as receiver:
        child = start(db, receiver, "publish.send:after", asks=False)
        child.until("publish.send:after")
        db.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid = ANY (%s)", (child.backends,))
        assert run(db, receiver, asks=False).code == "SO-724"
        assert child.outcome().published
        assert (len(receiver.posts), state(db)) == (1, ("done", 1))


@pytest.mark.parametrize("loss", ["answer", pytest.param("request", marks=[pytest.mark.long])])
def test_a_ledger_that_is_lost_at_any_message(db: Database, loss: Loss) -> None:
    """Nobody can be asked: it is sent once, and never is it undecided without having been sent."""
    with receiving() as receiver:
        assert run(db, receiver).published  # it makes the ledger
    for at in range(1, 60):
        db.execute("DELETE FROM safe_ops.safe_ops_publication")
        with receiving() as receiver, closing(Proxy(db.folder, db.name)) as proxy:
            proxy.loss, proxy.at = loss, at
            through = PublishJob(uri=proxy.uri, url=receiver.url, asks=False, lock_timeout=10)
            first = publish_here(through)
            again = publish_here(replace(through, uri=db.uri))
            assert again.published, (at, first.error, again.error)
            assert (at, len(receiver.posts), receiver.effects) == (at, 1, [(KEY, INTENT)])
            assert not first.terminal, (at, first.error)
        if not proxy.lost:
            assert at > 15
            return
    pytest.fail("it never came to an end without a loss")


def test_a_send_that_takes_long_keeps_its_lock(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """The server ends transactions that are silent; this one gives signs of life."""
    begin = Postgres.begin

    def impatient(self: Postgres, limits: Limits) -> list[Statement]:
        short = "idle_in_transaction_session_timeout = 1000"
        return [
            Statement(statement.text.replace("idle_in_transaction_session_timeout = 60000", short))
            for statement in begin(self, limits)
        ]

    monkeypatch.setattr(Postgres, "begin", impatient)
    monkeypatch.setattr("airflow_safe_ops.execution.publish.BEAT", 0.2)
    with receiving(will=[HANG]) as receiver:
        Timer(2.5, receiver.go_on.set).start()
        job = PublishJob(uri=db.uri, url=receiver.url, asks=False)
        with ThreadPoolExecutor(1) as pool:
            first = pool.submit(publish_here, job)
            assert eventually(lambda: receiver.effects, 10)
            second = publish_here(job)
        assert (first.result().error, second.partitions[0]["how"]) == ("", "recorded")
        assert len(receiver.posts) == 1
    assert db.execute("SELECT count(*) FROM pg_stat_activity WHERE application_name LIKE 'safe_ops%'") == [(0,)]
