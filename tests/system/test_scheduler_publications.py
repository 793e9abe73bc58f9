"""A real scheduler, a real receiver: answers that are lost, a task that is killed in mid-send; sent once."""

from __future__ import annotations

import os
import signal
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from tests.receiver import HANG, LOSE, Receiver, receiving
from tests.system.airflow_api import AirflowApi, wait_until
from tests.system.conftest import PUBLICATIONS
from tests.system.warehouse import SPRING, Warehouse, instant

if TYPE_CHECKING:
    from collections.abc import Iterator

LOST, KILLED = (instant(SPRING + timedelta(days=n)) for n in (1, 2))


@pytest.fixture(scope="module")
def receiver(api: AirflowApi) -> Iterator[Receiver]:
    """A partner's API that Airflow has a connection to."""
    with receiving() as listening:
        partner = {"connection_id": "partner", "conn_type": "http", "host": "127.0.0.1", "port": listening.port}
        api.call("POST", "/connections", json=partner)
        api.unpause(*PUBLICATIONS)
        yield listening
        api.call("DELETE", "/connections/partner")


def of(receiver: Receiver, key: str) -> tuple[list[Any], int]:
    """What happened under a key, and how many posts that took."""
    return [body for name, body in receiver.effects if name == key], sum(name == key for name, _ in receiver.posts)


def recorded(warehouse: Warehouse, key: str) -> list[tuple[Any, ...]]:
    """What the ledger says of it."""
    return warehouse.rows("SELECT state, how, sends FROM safe_ops.safe_ops_publication WHERE business_key = %s", key)


def test_an_answer_that_is_lost(api: AirflowApi, warehouse: Warehouse, receiver: Receiver) -> None:
    """The first try has no answer; the second asks, and a later run and a clear of it send nothing."""
    key, body = f"published {LOST:%Y-%m-%d}", {"day": f"{LOST:%Y-%m-%d}"}
    receiver.will.append(LOSE)
    run_id = api.trigger("published", LOST)
    api.wait_run("published", run_id)
    assert api.task("published", run_id, "send")["try_number"] == 2
    assert of(receiver, key) == ([body], 1)
    assert recorded(warehouse, key) == [("done", "found", 1)]
    api.clear_run("published", run_id)
    again = api.trigger("published", LOST + timedelta(hours=1))
    for one in (run_id, again):
        api.wait_run("published", one)
    assert of(receiver, key) == ([body], 1)


def test_a_task_that_is_killed_while_it_sends(api: AirflowApi, warehouse: Warehouse, receiver: Receiver) -> None:
    """apache/airflow#69174: the receiver has it, and the process that knows is gone."""
    key, body = f"published {KILLED:%Y-%m-%d}", {"day": f"{KILLED:%Y-%m-%d}"}
    receiver.will.append(HANG)
    run_id = api.trigger("published", KILLED)
    wait_until(lambda: of(receiver, key)[0], "the post", timeout=120, every=0.1)
    os.kill(int(api.task("published", run_id, "send")["pid"]), signal.SIGKILL)
    api.wait_run("published", run_id)
    assert api.task("published", run_id, "send")["try_number"] == 2
    assert of(receiver, key) == ([body], 1)
    assert recorded(warehouse, key) == [("done", "found", 1)]


def test_an_answer_that_is_lost_and_nobody_to_ask(api: AirflowApi, warehouse: Warehouse, receiver: Receiver) -> None:
    """It fails at the first of four tries, and a clear does not send it again."""
    key, body = f"published_blindly {LOST:%Y-%m-%d}", {"day": f"{LOST:%Y-%m-%d}"}
    receiver.will.append(LOSE)
    run_id = api.trigger("published_blindly", LOST)
    api.wait_run("published_blindly", run_id, state="failed")
    assert api.task("published_blindly", run_id, "send")["try_number"] == 1
    api.clear_run("published_blindly", run_id)
    wait_until(
        lambda: api.task("published_blindly", run_id, "send")["try_number"] == 2, "the cleared task", timeout=120
    )
    api.wait_run("published_blindly", run_id, state="failed")
    assert of(receiver, key) == ([body], 1)
    assert recorded(warehouse, key) == [("undecided", None, 1)]
