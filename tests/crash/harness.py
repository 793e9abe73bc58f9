"""
Real processes that load, seen and steered from the test: stop one at a step, hold it inside one, kill it.

A child comes from a fork server that has everything imported, so it is there in milliseconds and is still a
process of its own that SIGKILL ends. It tells each point of its load (``target.delete:before``) over a pipe and
stands still at those it was asked to; a lock, or a stopped server process, holds it inside a step.
"""

from __future__ import annotations

import json
import logging
import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from itertools import count, takewhile
from multiprocessing.connection import Connection as Pipe
from typing import Any

import psutil
import psycopg

from airflow_safe_ops.definition.identity import RunIdentity
from airflow_safe_ops.definition.load import Load
from airflow_safe_ops.errors import SafeOpsError
from airflow_safe_ops.execution.runner import LoadRunner
from airflow_safe_ops.ledger.claims import Patience
from airflow_safe_ops.sql.dialect import dialect_for

EVERYWHERE = "*"
PATIENCE = 30.0

_fork = multiprocessing.get_context("forkserver")
_fork.set_forkserver_preload(["tests.crash.harness", "tests.crash.tasks"])
_starting = threading.Lock()
_alive: list[Child] = []


@dataclass(frozen=True)
class Job:
    """
    What one process does: the same as a worker does with one task, without Airflow.

    :param loads: run one after another, on a runner each.
    :param pauses: the points at which it stands still until it is told to go on; ``*`` is every one.
    :param seconds: begin with the first load again until so much time has passed.
    :param stays: go on with the next load after one that failed.
    :param logical_date: of the run, for partitions that go by it.
    """

    uri: str
    loads: tuple[Load, ...]
    driver: str = "psycopg"
    name: str = "child"
    grace: float = 1.0
    lock_timeout: float = 80.0  # longer than the minute after which the server drops a frozen client
    pauses: frozenset[str] = frozenset()
    seconds: float = 0.0
    stays: bool = False
    logical_date: datetime | None = None
    ledger_schema: str = "safe_ops"


@dataclass(frozen=True)
class Outcome:
    """How one load of a job ended, and the points it came by."""

    partitions: list[dict[str, Any]] = field(default_factory=list)
    code: str = ""
    error: str = ""
    terminal: bool = False
    points: tuple[str, ...] = ()
    began: float = 0.0
    seconds: float = 0.0

    @property
    def published(self) -> bool:
        """Whether it reported success."""
        return not self.error

    @property
    def waited(self) -> float:
        """Seconds that it waited for claims."""
        return float(sum(p["waited"] for p in self.partitions))


def connector(uri: str, driver: str) -> Callable[[], Any]:
    """Open connections as the hook does, by either driver."""
    if driver == "psycopg":
        return partial(psycopg.connect, uri)
    import psycopg2

    return partial(psycopg2.connect, uri)


def run_job(
    job: Job,
    tell: Callable[[str, Any], None],
    stand: Callable[[str], None],
    begin: Callable[[LoadRunner], None] = lambda _runner: None,
) -> None:
    """Run a job's loads here and now."""
    opening = connector(job.uri, job.driver)

    def connect() -> Any:
        connection = opening()
        tell("backend", connection.info.backend_pid)
        return connection

    end = time.monotonic() + job.seconds
    turns = takewhile(lambda turn: turn == 0 or time.monotonic() < end, count())
    for load in (load for _ in turns for load in job.loads):
        points: list[str] = []
        began = time.monotonic()

        def observe(step: str, when: str, points: list[str] = points) -> None:
            points.append(f"{step}:{when}")
            if job.pauses & {points[-1], EVERYWHERE}:
                stand(points[-1])

        runner = LoadRunner(
            load=load,
            run=RunIdentity(
                dag_id="crash",
                task_id=job.name,
                run_id="test",
                logical_date=job.logical_date,
                params=dict(load.parameters),
            ),
            connect=connect,
            dialect=dialect_for("postgresql", job.ledger_schema),
            patience=Patience(job.lock_timeout, job.grace),
            observe=observe,
        )
        begin(runner)
        try:
            result = runner.execute()
            outcome = Outcome(result.as_dict()["partitions"])
        except SafeOpsError as error:
            outcome = Outcome(code=error.code, error=f"{type(error).__name__}: {error}", terminal=error.terminal)
        except Exception as error:  # noqa: BLE001 - whatever it is, the test has to see it
            outcome = Outcome(code="-", error=f"{type(error).__name__}: {error}")
        facts = {"points": tuple(points), "began": began, "seconds": time.monotonic() - began}
        tell("done", Outcome(**{**vars(outcome), **facts}))
        if outcome.error and not job.stays:
            return


def run_here(job: Job) -> list[Outcome]:
    """Run a job in this process: for what only has to be there."""
    seen: list[Outcome] = []
    run_job(job, lambda what, value: seen.append(value) if what == "done" else None, lambda _point: None)
    return seen


def _child(job: Job, pipe: Pipe) -> None:
    """The main function of a child, which SIGTERM cancels. What it logs is no part of any test."""
    logging.disable(logging.CRITICAL)

    def tell(what: str, value: Any) -> None:
        pipe.send((what, value))

    def stand(point: str) -> None:
        pipe.send(("at", point))
        pipe.recv()

    def begin(runner: LoadRunner) -> None:
        signal.signal(signal.SIGTERM, lambda _number, _frame: runner.cancel())

    run_job(job, tell, stand, begin)


class Child:
    """
    A process of its own.

    :param main: its main function, called with ``job`` and its end of the pipe.
    """

    def __init__(self, job: Any, main: Callable[[Any, Pipe], None] = _child) -> None:
        self.job = job
        self.at = ""
        self.backends: list[int] = []
        self._outcomes: list[Outcome] = []
        self._read = 0
        self._watcher: psycopg.Connection[tuple[Any, ...]] | None = None
        self._pipe, theirs = _fork.Pipe()
        self._process = _fork.Process(target=main, args=(job, theirs), daemon=True)
        with _starting:
            self._process.start()
            _alive.append(self)
        theirs.close()

    @property
    def pid(self) -> int:
        """Its process id."""
        assert self._process.pid is not None
        return self._process.pid

    def until(self, point: str, timeout: float = PATIENCE, *, nth: int = 1) -> None:
        """Wait until it stands at the point for the nth time; at all others on its way it is told to go on."""
        seen = int(self.at == point)
        while seen < nth:
            if self.at:
                self.go()
            assert self._next(timeout), f"it never came to {point}"
            assert self._read == len(self._outcomes), f"over before {point}: {self._outcomes[-1]}"
            seen += self.at == point

    def until_connected(self, timeout: float = PATIENCE) -> None:
        """Wait until it has a connection."""
        while not self.backends:
            assert self._next(timeout), "it never connected"

    def until_anywhere(self, timeout: float = PATIENCE) -> bool:
        """Wait until it stands at any point; False when it has ended instead."""
        while not self.at:
            if not self._next(timeout):
                return False
        return True

    def go(self) -> None:
        """Let it go on from where it stands."""
        self.at = ""
        self._pipe.send("go")

    def outcome(self, timeout: float = PATIENCE) -> Outcome:
        """How its next load ended."""
        deadline = time.monotonic() + timeout
        while self._read == len(self._outcomes):
            if self.at:
                self.go()
            left = deadline - time.monotonic()
            assert self._next(max(left, 0)), f"no outcome within {timeout} s"
        self._read += 1
        return self._outcomes[self._read - 1]

    def outcomes(self, timeout: float = PATIENCE) -> list[Outcome]:
        """How all its loads ended, once it has come to its end."""
        with suppress(EOFError):
            while self._next(timeout):
                if self.at:
                    self.go()
        self._process.join(timeout)
        return self._outcomes

    def ended(self) -> bool:
        """Take what it has to say by now; whether its load is over."""
        self._next(0)
        return self._read < len(self._outcomes)

    def so_far(self) -> list[Outcome]:
        """How those of its loads ended that it has told of by now, also one that is dead."""
        while self._next(0):
            pass
        return self._outcomes

    def is_blocked(self) -> bool:
        """Whether a statement of it waits for a lock in the server."""
        if self._watcher is None:
            self._watcher = psycopg.connect(self.job.uri, autocommit=True)
        row = self._watcher.execute(
            "SELECT count(*) FROM pg_stat_activity WHERE pid = ANY (%s) AND wait_event_type = 'Lock'", (self.backends,)
        ).fetchone()
        return row is not None and row[0] > 0

    def is_alive(self) -> bool:
        """Whether it is still there."""
        return self._process.is_alive()

    def family(self) -> list[int]:
        """The living processes of its process group."""
        found = []
        for process in psutil.process_iter():
            with suppress(ProcessLookupError, psutil.NoSuchProcess):
                if os.getpgid(process.pid) == self.pid and process.status() != psutil.STATUS_ZOMBIE:
                    found.append(process.pid)
        return found

    def signal(self, number: int) -> None:
        """Send it a signal."""
        os.kill(self.pid, number)

    def kill(self) -> None:
        """End it by SIGKILL: no handler, no last words."""
        self._process.kill()
        self._process.join(PATIENCE)
        assert not self._process.is_alive()
        if self._watcher is not None:
            self._watcher.close()

    def close(self) -> None:
        """End it, and forget it: one of hundreds must not hold its pipe open until the end of the test."""
        self.kill()
        with _starting:
            _alive.remove(self)
        self._pipe.close()
        self._process.close()

    def _next(self, timeout: float) -> bool:
        """Take its next message; False when there will be none."""
        if not self._pipe.poll(timeout):
            return False
        try:
            what, value = self._pipe.recv()
        except EOFError:
            return False
        if what == "at":
            self.at = value
        elif what == "backend":
            self.backends.append(value)
        else:
            self._outcomes.append(value)
        return True


def run_apart(job: Job) -> Outcome:
    """Run a job in a process of its own; how its first load ended."""
    child = Child(job)
    try:
        return child.outcome()
    finally:
        child.close()


def kill_the_living() -> None:
    """End whatever children there are: a test that fails leaves some."""
    while _alive:
        _alive.pop().kill()


def eventually(true: Callable[[], Any], timeout: float = 5.0) -> bool:
    """Ask again and again until it is true; False when it never was."""
    deadline = time.monotonic() + timeout
    while not true():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


def until_blocked(child: Child, timeout: float = PATIENCE) -> None:
    """Wait until the child's statement stands in the server, waiting for a lock."""

    def blocked() -> bool:
        assert not child.ended(), "over, though it should have been held"
        return child.is_blocked()

    assert eventually(blocked, timeout), "it never waited for a lock"


@contextmanager
def holding(uri: str, *statements: str) -> Iterator[None]:
    """Hold what the statements lock, in a transaction that is rolled back at the end."""
    with psycopg.connect(uri) as blocker:
        for statement in ("SET lock_timeout = '5s'", *statements):
            blocker.execute(statement.encode())
        yield
        blocker.rollback()


@contextmanager
def stopped(pid: int) -> Iterator[None]:
    """The server's process stands still: what is sent to it lies there until the end of the block."""
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


def history(db_rows: Callable[..., list[tuple[Any, ...]]], table: str, grace: float = 5.0) -> list[dict[str, Any]]:
    """The attempts on a table, oldest first, as the ledger tells them."""
    dialect = dialect_for("postgresql")
    text, values = dialect.compile(dialect.ledger.history.attempts(table, None, 10_000, grace), "")
    names = "attempt_id, partition_key, state, outcome, error_code, error_class, started_at, finished_at"
    rows = db_rows(f"SELECT to_json(h) FROM (SELECT {names} FROM ({text}) AS a) AS h", values)
    return [row[0] if isinstance(row[0], dict) else json.loads(row[0]) for row in rows]
