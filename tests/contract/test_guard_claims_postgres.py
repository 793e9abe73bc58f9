"""The claim of a guard: other writers wait for it or are refused, and whoever loses it is told."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from airflow_safe_ops import TimePartition
from airflow_safe_ops.errors import (
    ClaimTimeout,
    SafeOpsError,
    Unfenced,
)
from airflow_safe_ops.operators.guard import partition_claim
from tests.contract.guards import (
    TARGET,
    elsewhere,
    lose_the_claim,
    once,
    perform,
    state,
    task_run,
    watched,
)
from tests.contract.harness import D0, D1, D2, raised, run, sale
from tests.crash.harness import eventually

if TYPE_CHECKING:
    from tests.contract.postgres import PostgresWarehouse


@pytest.fixture
def warehouse(postgres: PostgresWarehouse) -> PostgresWarehouse:
    postgres.sales([sale(D1, 1, 10), sale(D1, 2, 20), sale(D2, 3, 30)])
    return postgres


def test_a_writer_that_lost_its_claim(warehouse: PostgresWarehouse) -> None:
    """T02: a late writer is told so; what others may have written meanwhile is unknown, and the ledger says it."""

    def write_late() -> None:
        warehouse.insert("sales", [sale(D1, 1, 10), sale(D1, 2, 20)])
        lose_the_claim(warehouse)
        warehouse.load(D1, on_unledgered="replace")
        assert state(warehouse) == [("published", 2)]

    with pytest.raises(Unfenced) as lost, partition_claim(*TARGET, context=task_run()):
        write_late()
    assert not lost.value.terminal
    assert state(warehouse) == [("unconfirmed", None)]
    assert warehouse.states() == ["unfenced", "published"]
    assert warehouse.claims() == []


def test_it_is_asked_again_and_again_whether_the_claim_is_held(
    warehouse: PostgresWarehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = "SELECT state_change FROM pg_stat_activity WHERE application_name LIKE 'safe_ops % guard'"
    with watched(monkeypatch, 0.1), partition_claim(*TARGET, context=task_run()):
        before = warehouse.execute(asked)
        time.sleep(0.5)
        assert warehouse.execute(asked) > before


def test_a_lost_claim_is_seen_while_it_writes(warehouse: PostgresWarehouse, monkeypatch: pytest.MonkeyPatch) -> None:

    def see(watch: Any) -> None:
        lose_the_claim(warehouse)
        watch.join(5)
        assert not watch.is_alive()

    with watched(monkeypatch, 0.1), pytest.raises(Unfenced), partition_claim(*TARGET, context=task_run()) as write:
        see(write._claim._watch)
    assert warehouse.states() == ["unfenced"]


def test_a_guard_that_is_lost_while_it_cleans_up(warehouse: PostgresWarehouse) -> None:
    """Nothing is cleaned up then, and the writer is not started."""
    warehouse.insert("sales", [sale(D1, 1, 10)])
    blocker = warehouse.database.connect(autocommit=False)
    blocker.execute("SELECT 1 FROM sales FOR UPDATE")
    with ThreadPoolExecutor(1) as other:
        writer = other.submit(lambda: perform(on_repeat="clean_up"))
        guards = (
            "SELECT {} FROM pg_stat_activity WHERE application_name LIKE 'safe_ops % guard' AND query LIKE '%DELETE%'"
        )
        assert eventually(lambda: warehouse.execute(guards.format("pid") + " AND wait_event_type = 'Lock'"))
        assert warehouse.execute(guards.format("pg_terminate_backend(pid, 5000)")) == [(True,)]
        blocker.rollback()
        with pytest.raises(SafeOpsError, match="not started"):
            writer.result(30)
    assert warehouse.rows("sales", where=f"WHERE day = '{D1}'") == [sale(D1, 1, 10)]
    perform(on_repeat="clean_up")
    assert once(warehouse)


def test_a_writer_that_lost_its_claim_and_failed(warehouse: PostgresWarehouse) -> None:
    """What another load published meanwhile is not what stands there now."""

    def write_late() -> None:
        lose_the_claim(warehouse)
        warehouse.load(D1)
        warehouse.insert("sales", [sale(D1, 9, 9)])
        raise RuntimeError("late")

    with pytest.raises(RuntimeError, match="late"), partition_claim(*TARGET, context=task_run()):
        write_late()
    assert state(warehouse) == [("unconfirmed", None)]
    assert warehouse.states() == ["unfenced", "published"]


def test_a_writer_beside_one_that_lost_its_claim(warehouse: PostgresWarehouse) -> None:
    """The second held its claim to the end; the rows that the first brought late are no rows of its own."""
    late, begun = threading.Event(), threading.Event()

    def first() -> None:
        with partition_claim(*TARGET, context=task_run(), on_repeat="clean_up"):
            lose_the_claim(warehouse)
            begun.set()
            late.wait(20)
            warehouse.insert("sales", [sale(D1, 1, 10)])

    with ThreadPoolExecutor(1) as other:
        lost = other.submit(first)
        begun.wait(20)

        def second() -> None:
            with partition_claim(*TARGET, context=task_run(), on_repeat="clean_up"):
                late.set()
                assert isinstance(lost.exception(20), Unfenced)

        assert raised(second).code == "SO-732"
    assert state(warehouse) == [("unconfirmed", None)]
    assert warehouse.states() == ["unfenced", "unfenced"]
    perform(on_repeat="clean_up")
    assert once(warehouse)


def test_a_limit_on_transactions_is_not_the_guards(
    warehouse: PostgresWarehouse, new_postgres: PostgresWarehouse
) -> None:
    """``transaction_timeout``, which servers have since 17."""
    database = new_postgres.database.name
    new_postgres.sales([sale(D1, 1, 10)])
    if new_postgres.execute("SELECT current_setting('server_version_num')::int >= 170000") == [(True,)]:
        new_postgres.execute(f"ALTER DATABASE {database} SET transaction_timeout = 700")
    with partition_claim(*TARGET, context=task_run()):
        time.sleep(1.5)
        new_postgres.insert("sales", [sale(D1, 1, 10)])
    assert once(new_postgres)


def test_a_second_writer_is_refused(warehouse: PostgresWarehouse) -> None:
    """Two runs of one task at once (apache/airflow#23520): the second never starts, whatever it writes."""
    with partition_claim(*TARGET, context=task_run()):
        started = time.monotonic()
        assert "sales.load" in str(elsewhere(lambda: perform(lock_timeout=0)))
        month = TimePartition("day", grain="month", start="2026-01-01", end="2026-02-01")
        with pytest.raises(ClaimTimeout):
            warehouse.operator(partition=month, lock_timeout=0.1).execute(run(D1))
        assert time.monotonic() - started < 5
        perform(D2)
        warehouse.insert("sales", [sale(D1, 1, 10), sale(D1, 2, 20)])
    assert once(warehouse)
    assert once(warehouse, D2)


@pytest.mark.parametrize("on_repeat", ["fail", "clean_up"])
def test_a_second_writer_waits(warehouse: PostgresWarehouse, on_repeat: str) -> None:
    with ThreadPoolExecutor(1) as other:
        with partition_claim(*TARGET, context=task_run()):
            second = other.submit(lambda: perform(on_repeat=on_repeat))
            time.sleep(0.5)
            assert warehouse.rows("sales") == []
            warehouse.insert("sales", [sale(D1, 1, 10), sale(D1, 2, 20)])
        if on_repeat == "fail":
            assert raised(lambda: second.result(20)).code == "SO-731"
        else:
            second.result(20)
    assert once(warehouse)


def test_no_patience_at_all(warehouse: PostgresWarehouse) -> None:
    """Other partitions of the table are none of its business, however many are claimed at this moment."""
    days = [D0 + timedelta(days=n) for n in range(24)]
    with ThreadPoolExecutor(6) as hands:
        list(hands.map(lambda day: perform(day, sql="SELECT 1", lock_timeout=0), days))
        list(hands.map(lambda day: warehouse.operator(lock_timeout=0).execute(run(day)), days))
    assert set(warehouse.states()) == {"published"}


def test_a_guard_inside_a_guard_is_refused_and_does_not_wait(warehouse: PostgresWarehouse) -> None:
    with partition_claim(*TARGET, context=task_run()):
        assert raised(perform).code == "SO-201"
        warehouse.insert("sales", [sale(D1, 1, 10), sale(D1, 2, 20)])
    assert once(warehouse)
    perform(D1, on_repeat="clean_up")
    assert once(warehouse)
