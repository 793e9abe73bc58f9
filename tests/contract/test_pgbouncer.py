"""
Loads through PgBouncer in transaction mode, where each transaction may be another session's.

The whole contract is run through it with `--server pgbouncer`; these are about the pool itself, and are collected
only then.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from contextlib import ExitStack, contextmanager
from datetime import timedelta
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from airflow_safe_ops import TimePartition
from airflow_safe_ops.errors import SafeOpsError
from airflow_safe_ops.execution.session import Session
from airflow_safe_ops.plan.model import Statement
from tests import servers
from tests.contract.harness import D1, SALES_SQL, raised, run, sale
from tests.contract.test_postgres_server import connect_with

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.contract.postgres import PostgresWarehouse

SLEEPS = SALES_SQL.replace("WHERE", ", (SELECT pg_sleep(60)) AS s WHERE")
FACTS = """
SELECT name, setting FROM pg_settings
UNION ALL SELECT 'prepared statements', count(*)::text FROM pg_prepared_statements
UNION ALL SELECT 'cursors', count(*)::text FROM pg_cursors
UNION ALL SELECT 'locks', count(*)::text FROM pg_locks WHERE pid = pg_backend_pid() AND locktype <> 'virtualxid'
  AND relation IS DISTINCT FROM 'pg_locks'::regclass AND database IS DISTINCT FROM 0
UNION ALL SELECT 'channels', count(*)::text FROM pg_listening_channels()
"""


@pytest.fixture
def backends(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The server's process of each transaction that a load of the test has had, in their order."""
    seen: list[int] = []
    transaction = Session.transaction

    @contextmanager
    def noted(self: Session, **limits: Any) -> Iterator[Session]:
        with transaction(self, **limits) as tx:
            seen.append(tx.run(Statement("SELECT pg_backend_pid()")).rows[0][0])
            yield tx

    monkeypatch.setattr(Session, "transaction", noted)
    return seen


@pytest.fixture
def warehouse(postgres: PostgresWarehouse) -> PostgresWarehouse:
    """A day and the one before it, each with two sales."""
    postgres.sales([sale(D1 - timedelta(days=n % 2), n, "1") for n in range(4)])
    return postgres


def _lent(warehouse: PostgresWarehouse) -> int:
    """How often the pool has lent a session to a client of the database."""
    stats = servers.ask_pool(warehouse.database.folder, "SHOW STATS")
    return sum(row["total_xact_count"] for row in stats if row["database"] == warehouse.database.name)


def _sessions(warehouse: PostgresWarehouse) -> dict[int, dict[str, str]]:
    """What each session of the pool is set to and holds, by its process: as many clients at once as it has sessions."""
    found: dict[int, dict[str, str]] = {}
    with ExitStack() as clients:
        for _ in range(servers.POOL_SIZE):
            client = clients.enter_context(psycopg.connect(warehouse.database.uri))
            found[client.execute("SELECT pg_backend_pid()").fetchall()[0][0]] = dict(client.execute(FACTS).fetchall())
    return found


def _sleeping(warehouse: PostgresWarehouse) -> list[Any]:
    """Loads whose statement is asleep in the server."""
    return warehouse.execute(
        "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND wait_event = 'PgSleep'"
    )


def _soon(true: Callable[[], Any], seconds: float = 20) -> bool:
    deadline = time.monotonic() + seconds
    while not true():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


def _in_a_thread(work: Callable[[], Any], failed: list[BaseException]) -> threading.Thread:
    def called() -> None:
        try:
            work()
        except BaseException as error:  # noqa: BLE001 - the test looks at it
            failed.append(error)

    thread = threading.Thread(target=called)
    thread.start()
    return thread


def test_every_transaction_may_be_another_session_s(
    warehouse: PostgresWarehouse, driver: str, backends: list[int]
) -> None:
    before = _lent(warehouse)
    warehouse.load(partition=TimePartition("day", lookback=1))
    assert len(backends) > 6
    assert all(one != other for one, other in pairwise(backends)), backends
    assert _soon(lambda: _lent(warehouse) - before == len(backends)), "a transaction that went past the pool"
    assert len(warehouse.rows("sales")) == 4


def test_the_server_sees_the_pool_s_sessions(warehouse: PostgresWarehouse) -> None:
    """The process that holds a load's claim is one of those that the pool has opened, and says whose load it is."""
    seen: list[Any] = []

    def look(step: str, when: str) -> None:
        if (step, when) == ("target.insert", "before"):
            query = "SELECT pid, state FROM pg_stat_activity WHERE application_name = 'safe_ops sales.load'"
            seen.extend(warehouse.execute(query))
            seen.extend(row["remote_pid"] for row in servers.ask_pool(warehouse.database.folder, "SHOW SERVERS"))

    runner = warehouse.runner()
    runner.observe = look
    runner.execute()
    ((pid, state), *pool) = seen
    assert state == "idle in transaction"
    assert pid in pool


def test_no_load_leaves_anything_in_a_session(warehouse: PostgresWarehouse, driver: str, backends: list[int]) -> None:
    """Published, refused, timed out, cancelled, cut off: what the next client gets is as a new session is."""
    warehouse.load(partition=TimePartition("day", lookback=1))
    warehouse.load(strategy="merge", unique_key=["day", "id"], exclusive=True, on_key_moved="move")
    warehouse.refused("SO-101", sql=f"{SALES_SQL} AND false")
    assert raised(lambda: warehouse.operator(sql="SELECT 1 / 0").execute(run(D1))).code == "SO-602"
    timed = warehouse.operator(sql=SLEEPS, execution_timeout=timedelta(seconds=1))
    assert raised(lambda: timed.execute(run(D1))).facts["sqlstate"] == "57014"
    for end in ("cancel", "cut"):
        runner = warehouse.runner(sql=SLEEPS)
        failed: list[BaseException] = []
        thread = _in_a_thread(runner.execute, failed)
        assert _soon(lambda: _sleeping(warehouse))
        if end == "cancel":
            runner.cancel()
        else:
            warehouse.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE wait_event = 'PgSleep'")
        thread.join(30)
        assert isinstance(failed[0], SafeOpsError)
    with psycopg.connect(warehouse.database.direct_uri) as new:
        expected: dict[str, str] = dict(new.execute(FACTS).fetchall())
    found = _sessions(warehouse)
    assert set(found) & set(backends), "no session of the loads is among them"
    for facts in found.values():
        assert {name: (facts[name], value) for name, value in expected.items() if facts[name] != value} == {}
    assert warehouse.execute("SELECT relname FROM pg_class WHERE relpersistence = 't'") == []


def test_a_cancel_comes_through(warehouse: PostgresWarehouse, driver: str) -> None:
    operator = warehouse.operator(sql=SLEEPS)
    failed: list[BaseException] = []
    thread = _in_a_thread(lambda: operator.execute(run(D1)), failed)
    assert _soon(lambda: _sleeping(warehouse))
    began = time.monotonic()
    operator.on_kill()
    thread.join(30)
    assert time.monotonic() - began < 3
    assert getattr(failed[0], "code", "") == "SO-404"
    assert _sleeping(warehouse) == []
    assert warehouse.claims() == []
    assert warehouse.states() == ["failed"]


def test_a_client_that_is_killed_holds_nothing(
    warehouse: PostgresWarehouse, driver: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The pool ends the session of a client that is gone, and the server looks every second whether the pool has."""
    monkeypatch.setenv("AIRFLOW__SAFE_OPS__CLAIM_GRACE", "1")
    warehouse.load()
    operator = warehouse.operator(sql=SLEEPS)
    child = os.fork()
    if not child:
        try:
            operator.execute(run(D1))
        finally:
            os._exit(1)
    try:
        assert _soon(lambda: _sleeping(warehouse))
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    assert _soon(lambda: not _sleeping(warehouse), 3)
    warehouse.load()
    assert sorted(warehouse.states()) == ["published", "published", "started"]
    assert warehouse.rows("sales", where=f"WHERE day = '{D1}'") == warehouse.rows(
        "raw_sales", where=f"WHERE day = '{D1}'"
    )


def test_options_of_a_connection_are_refused_by_name(
    warehouse: PostgresWarehouse, driver: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Unless the pool is told to ignore them: but then nothing is set."""
    connect_with(monkeypatch, warehouse, options="-c statement_timeout=10min")
    error = warehouse.refused("SO-601")
    assert "unsupported startup parameter" in str(error)
    assert "options" in str(error)


def test_more_loads_than_sessions(warehouse: PostgresWarehouse, driver: str) -> None:
    """Loads that wait for each other take a session each, and all get through a pool of two, one after the other."""
    folder = warehouse.database.folder
    everything = {"partition": "*", "sql": "SELECT * FROM raw_sales", "on_unledgered": "replace"}
    runners = [
        warehouse.runner(run(D1 - timedelta(days=n % 2)), **(everything if n % 4 == 3 else {})) for n in range(8)
    ]
    failed: list[BaseException] = []
    servers.ask_pool(folder, "SET default_pool_size = 2")
    try:
        threads = [_in_a_thread(runner.execute, failed) for runner in runners]
        for thread in threads:
            thread.join(60)
    finally:
        servers.ask_pool(folder, f"SET default_pool_size = {servers.POOL_SIZE}")
    assert failed == []
    assert warehouse.states() == ["published"] * len(runners)
    assert warehouse.claims() == []
    assert warehouse.rows("sales") == warehouse.rows("raw_sales")
