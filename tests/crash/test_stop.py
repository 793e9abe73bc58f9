"""A task that is killed, marked or timed out while its query runs stops at once and leaves nothing behind."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from itertools import cycle, product
from typing import TYPE_CHECKING, Any, cast

import pytest

from tests import figures
from tests.crash.harness import Child, Outcome, eventually, holding
from tests.crash.proxy import Proxy
from tests.crash.tasks import TaskJob, run_task
from tests.crash.warehouse import STRATEGIES, Desk, Shop, no_stage_left, stages

if TYPE_CHECKING:
    from tests.conftest import Database

DRIVERS = ("psycopg", "psycopg2")
# What a load does for a minute and longer: SQL that its query waits for, or what another session locks before it.
LONG: dict[str, tuple[str, str]] = {
    "sleeps": ("pg_sleep(60)", ""),
    "computes": ("count(*) FROM generate_series(1, 1000000) AS a, generate_series(1, 1000000) AS b", ""),
    "waits": ("", "INSERT INTO {target} SELECT day, id FROM {source} WHERE id > 4"),
    "prepares": ("", "LOCK TABLE {source}"),
}
SECONDS = 5.0
"""How long after its end a task may hold anything."""


def _ours(shop: Shop) -> list[tuple[Any, ...]]:
    """Server processes that work for the task, and whether for long."""
    return shop.db.execute(
        "SELECT state = 'active' AND clock_timestamp() - query_start > interval '0.3 s', query FROM pg_stat_activity "
        "WHERE datname = current_database() AND state <> 'idle' AND application_name = %s",
        (f"safe_ops crash.{shop.tag}",),
    )


def _task(shop: Shop, driver: str, long: str = "sleeps", **more: Any) -> Child:
    """A task in a child, its long statement under way in the server."""
    load = shop.load(pause=LONG[long][0], **({"strategy": more.pop("strategy")} if "strategy" in more else {}))
    child = Child(TaskJob(more.pop("uri", shop.db.airflow_uri), load, driver, name=shop.tag, **more), main=run_task)

    def is_long() -> bool:
        return any(active for active, _ in _ours(shop)) and (long == "prepares" or bool(shop.claims()))

    assert eventually(is_long, 60), child.ended() and child.outcome()
    return child


def _in_three_seconds(child: Child) -> Outcome:
    began = time.monotonic()
    outcome = child.outcome(timeout=20)
    assert time.monotonic() - began < 3
    return outcome


def _nothing_is_left(db: Database, shop: Shop, code: str | None) -> None:
    """At once, without waiting."""
    assert _ours(shop) == []
    assert shop.claims() == []
    assert [(a["outcome"], a["error_code"]) for a in shop.attempts()] == [("published", None), ("failed", code)]
    assert no_stage_left(db), stages(db)


def _next_run_starts_at_once(shop: Shop, driver: str) -> None:
    again = Child(shop.job(driver=driver, grace=5.0)).outcome()
    assert again.published, again.error
    assert again.seconds < 1.5
    assert shop.wrong() == []


def _shop(db: Database, tag: str) -> Shop:
    """A day that was published once; the source has changed since."""
    shop = Shop(cast("Database", Desk(db)), tag)
    shop.run()
    shop.new_version()
    return shop


@pytest.fixture
def shop(db: Database) -> Shop:
    return _shop(db, "one")


def _each(end: Callable[[Any], None], cases: Sequence[Any]) -> None:
    """Try all cases at once: most of their time they wait."""
    with ThreadPoolExecutor(len(cases)) as hands:
        list(hands.map(end, cases))


def test_a_killed_task_cancels_its_statement(db: Database, driver: str, shop: Shop) -> None:
    child = _task(shop, driver)
    child.signal(signal.SIGTERM)
    outcome = _in_three_seconds(child)
    assert outcome.code == "SO-404", outcome.error
    _nothing_is_left(db, shop, "SO-404")
    _next_run_starts_at_once(shop, driver)


def test_a_task_that_takes_too_long_cancels_its_statement(db: Database) -> None:
    def time_out(driver: str) -> None:
        shop = _shop(db, driver)
        child = _task(shop, driver, seconds=3.0)
        outcome = child.outcome(timeout=30)
        assert outcome.error.startswith("AirflowTaskTimeout"), outcome.error
        assert outcome.seconds < 3 + 3
        _nothing_is_left(db, shop, "SO-404")
        _next_run_starts_at_once(shop, driver)

    _each(time_out, DRIVERS)


def test_a_task_killed_while_it_waits_for_its_claim(db: Database, driver: str, shop: Shop) -> None:
    """It stands in the queue behind a load that goes on."""
    owner = Child(shop.job(name="owner", pauses=frozenset({"stage.fill:after"})))
    owner.until("stage.fill:after")
    child = Child(TaskJob(db.airflow_uri, shop.load(), driver), main=run_task)
    assert eventually(lambda: len(shop.claims()) == 2, 60)
    time.sleep(0.2)
    child.signal(signal.SIGTERM)
    assert _in_three_seconds(child).code == "SO-404"
    assert [owner for owner, _held in shop.claims()] == ["crash.owner test try 1"]
    assert owner.outcome().published
    assert sorted(a["outcome"] for a in shop.attempts()) == ["failed", "published", "published"]
    assert shop.wrong() == []


@pytest.mark.long
def test_a_task_that_takes_too_long_on_a_silent_network(db: Database, shop: Shop) -> None:
    """
    Neither the statement's end nor a cancel comes through, and no new connection: the task ends all the same.

    Not with psycopg 2, whose cancel stops the whole interpreter until the network speaks again.
    """
    driver = "psycopg"
    proxy = Proxy(db.folder, db.name)
    child = _task(shop, driver, seconds=4.0, uri=proxy.airflow_uri)
    proxy.silent.set()
    outcome = child.outcome(timeout=20)
    assert outcome.error.startswith("AirflowTaskTimeout"), outcome.error
    proxy.close()
    assert eventually(lambda: _ours(shop) == [], 5)
    assert eventually(lambda: [a["outcome"] for a in shop.attempts()] == ["published", "lost"], 10)
    _next_run_starts_at_once(shop, driver)


@pytest.mark.long
def test_a_task_that_is_killed_on_a_silent_network(db: Database) -> None:
    """The supervisor's way: SIGTERM, and SIGKILL five seconds later where the task cannot end by itself."""

    def kill(driver: str) -> None:
        shop = _shop(db, driver)
        proxy = Proxy(db.folder, db.name)
        child = _task(shop, driver, uri=proxy.airflow_uri)
        proxy.silent.set()
        child.signal(signal.SIGTERM)
        eventually(lambda: not child.is_alive(), 5)
        child.kill()
        proxy.close()
        _holds_nothing_after(shop, driver, time.monotonic())
        assert [a["outcome"] for a in shop.attempts()][1:2] == ["lost"]

    _each(kill, DRIVERS)


def test_a_worker_that_is_gone_holds_nothing(db: Database) -> None:
    """SIGKILL during a long statement: the server notices, ends it and frees the claim."""

    def kill(driver: str) -> None:
        shop = _shop(db, driver)
        child = _task(shop, driver)
        child.kill()
        _holds_nothing_after(shop, driver, time.monotonic())
        assert [a["outcome"] for a in shop.attempts()][:2] == ["published", "lost"]

    _each(kill, DRIVERS)
    assert no_stage_left(db), stages(db)


def _holds_nothing_after(shop: Shop, driver: str, end: float, strategy: str = "delete_insert") -> None:
    """Within some seconds nothing works for the task any more, and its next run has its claim."""
    assert eventually(lambda: _ours(shop) == [], end + SECONDS - time.monotonic())
    again = Child(shop.job(shop.load(strategy=strategy), driver=driver, grace=SECONDS)).outcome()
    assert again.published, again.error
    assert again.began + again.waited < end + SECONDS + 1
    wrong = shop.wrong()
    figures.add("kills", tried=1, wrong=int(bool(wrong)))
    assert wrong == []


def _kill_process(child: Child) -> None:
    child.kill()


def _kill_group(child: Child) -> None:
    """With a process that it forked, which holds its connection too."""
    child.signal(signal.SIGUSR1)
    assert eventually(lambda: len(child.family()) == 2)
    os.killpg(child.pid, signal.SIGKILL)
    assert eventually(lambda: child.family() == [])


def _kill_by_supervisor(child: Child) -> None:
    child.signal(signal.SIGTERM)
    assert eventually(lambda: not child.is_alive(), 5), "it had to be killed"


def _mark_failed(child: Child) -> None:
    child.signal(signal.SIGTERM)
    assert _in_three_seconds(child).code == "SO-404"


def _time_out(child: Child) -> None:
    outcome = child.outcome(timeout=30)
    assert outcome.error.startswith("AirflowTaskTimeout"), outcome.error
    assert outcome.seconds < child.job.seconds + 3


@pytest.mark.long
@pytest.mark.parametrize("end", [_kill_process, _kill_group, _kill_by_supervisor, _mark_failed, _time_out])
def test_whatever_it_does_it_holds_nothing(db: Database, end: Callable[[Child], None]) -> None:
    """A statement that sleeps, one that computes, one that waits for another session's lock; strategies in turn."""
    cases = list(zip(product(LONG, DRIVERS), cycle(STRATEGIES), strict=False))

    def end_and_run_again(case: tuple[tuple[str, str], str]) -> None:
        (long, driver), strategy = case
        shop = Shop(cast("Database", Desk(db)), f"{long}_{driver}", days=2)
        shop.ready(strategy)
        before = [a["outcome"] for a in shop.attempts()]
        with ExitStack() as other:
            if lock := LONG[long][1]:
                other.enter_context(holding(db.uri, lock.format(source=shop.source, target=shop.target)))
            child = _task(shop, driver, long, strategy=strategy, seconds=6.0 if end is _time_out else None)
            end(child)
            ended = time.monotonic()
            assert eventually(lambda: _ours(shop) == [], SECONDS)
            if end in (_mark_failed, _time_out):
                assert shop.claims() == []
        _holds_nothing_after(shop, driver, ended, strategy)
        killed = [] if long == "prepares" else ["lost" if end in (_kill_process, _kill_group) else "failed"]
        assert [a["outcome"] for a in shop.attempts()] == [*before, *killed, "published"]

    _each(end_and_run_again, cases)
    assert no_stage_left(db), stages(db)


@pytest.mark.long
def test_killed_while_it_is_being_stopped(db: Database) -> None:
    """SIGKILL comes while the task still cancels, rolls back and records."""
    chance = random.Random(1)  # noqa: S311

    def stop_and_kill(case: tuple[int, float]) -> None:
        number, moment = case
        driver = DRIVERS[number % 2]
        shop = _shop(db, f"stopped_{number}")
        child = _task(shop, driver)
        child.signal(signal.SIGTERM)
        time.sleep(moment)
        child.kill()
        _holds_nothing_after(shop, driver, time.monotonic())
        assert [a["outcome"] for a in shop.attempts()][1] in ("lost", "failed")

    _each(stop_and_kill, [(number, chance.uniform(0, 0.1)) for number in range(12)])
