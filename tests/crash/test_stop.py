"""A task that is killed, marked or timed out while its query runs stops at once and leaves nothing behind."""

from __future__ import annotations

import signal
import time
from typing import TYPE_CHECKING, Any

import pytest

from tests.crash.harness import Child, Outcome, eventually
from tests.crash.proxy import Proxy
from tests.crash.tasks import TaskJob, run_task
from tests.crash.warehouse import Shop, no_stage_left, stages

if TYPE_CHECKING:
    from tests.conftest import Database

STATEMENT = "pg_sleep(60)"


def _ours(db: Database) -> list[tuple[Any, ...]]:
    """Server processes that work for a load."""
    return db.execute(
        "SELECT pid, state, query FROM pg_stat_activity WHERE datname = current_database() AND state <> 'idle' "
        "AND application_name LIKE 'safe\\_ops%%' AND pid <> pg_backend_pid()",
        (),
    )


def _sleeping(db: Database) -> bool:
    rows = db.execute(
        "SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND wait_event = 'PgSleep' "
        "AND application_name LIKE 'safe\\_ops%%'",
        (),
    )
    return bool(rows)


def _task(db: Database, shop: Shop, driver: str, **more: Any) -> Child:
    """A task in a child, its query asleep in the server."""
    load = shop.load(pause=STATEMENT)
    child = Child(TaskJob(more.pop("uri", db.airflow_uri), load, driver, **more), main=run_task)
    assert eventually(lambda: _sleeping(db), 60), child.ended() and child.outcome()
    return child


def _in_three_seconds(child: Child) -> Outcome:
    began = time.monotonic()
    outcome = child.outcome(timeout=20)
    assert time.monotonic() - began < 3
    return outcome


def _nothing_is_left(db: Database, shop: Shop, code: str | None) -> None:
    """At once, without waiting."""
    assert _ours(db) == []
    assert shop.claims() == []
    assert [(a["outcome"], a["error_code"]) for a in shop.attempts()] == [("published", None), ("failed", code)]
    assert no_stage_left(db), stages(db)


def _next_run_starts_at_once(shop: Shop, driver: str) -> None:
    again = Child(shop.job(driver=driver, grace=5.0)).outcome()
    assert again.published, again.error
    assert again.seconds < 1.5
    assert shop.wrong() == []


@pytest.fixture
def shop(db: Database) -> Shop:
    shop = Shop(db)
    shop.run()
    shop.new_version()
    return shop


def test_a_killed_task_cancels_its_statement(db: Database, driver: str, shop: Shop) -> None:
    child = _task(db, shop, driver)
    child.signal(signal.SIGTERM)
    outcome = _in_three_seconds(child)
    assert outcome.code == "SO-404", outcome.error
    _nothing_is_left(db, shop, "SO-404")
    _next_run_starts_at_once(shop, driver)


def test_a_task_that_takes_too_long_cancels_its_statement(db: Database, driver: str, shop: Shop) -> None:
    child = _task(db, shop, driver, seconds=3.0)
    outcome = child.outcome(timeout=30)
    assert outcome.error.startswith("AirflowTaskTimeout"), outcome.error
    assert outcome.seconds < 3 + 3
    _nothing_is_left(db, shop, "SO-404")
    _next_run_starts_at_once(shop, driver)


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
    child = _task(db, shop, driver, seconds=4.0, uri=proxy.airflow_uri)
    proxy.silent.set()
    outcome = child.outcome(timeout=20)
    assert outcome.error.startswith("AirflowTaskTimeout"), outcome.error
    proxy.close()
    assert eventually(lambda: _ours(db) == [], 5)
    assert eventually(lambda: [a["outcome"] for a in shop.attempts()] == ["published", "lost"], 10)
    _next_run_starts_at_once(shop, driver)


def test_a_worker_that_is_gone_holds_nothing(db: Database, driver: str, shop: Shop) -> None:
    """SIGKILL during a long statement: the server notices, ends it and frees the claim."""
    child = _task(db, shop, driver)
    child.kill()
    killed = time.monotonic()
    assert eventually(lambda: _ours(db) == [], 5)
    assert time.monotonic() - killed < 5
    assert eventually(lambda: time.monotonic() - killed > 5)
    _next_run_starts_at_once(shop, driver)
    assert [a["outcome"] for a in shop.attempts()] == ["published", "lost", "published"]
    assert no_stage_left(db), stages(db)
