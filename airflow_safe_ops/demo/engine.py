"""
The demo's Airflow, in a process of its own: ``python -m airflow_safe_ops.demo.engine``.

It tells what it does as lines of JSON on a file descriptor; everything that Airflow prints goes to the demo's log.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ProcessPoolExecutor, as_completed, wait
from datetime import date
from typing import Any

from airflow_safe_ops.demo import runs
from airflow_safe_ops.demo.flights import APPEND, SAFE
from airflow_safe_ops.demo.folder import DemoError
from airflow_safe_ops.demo.gate import Gate
from airflow_safe_ops.demo.story import (
    APPEND_DAG,
    DAGS,
    SAFE_DAG,
    Job,
    Story,
    catch_up,
    clears,
    history,
    kill,
    overlap,
    tell,
)

TARGETS = {APPEND_DAG: APPEND, SAFE_DAG: SAFE}
LANES = 2
_FORK = multiprocessing.get_context("fork")
_PATIENCE = 60.0
_PID = "SELECT pid FROM task_instance WHERE dag_id = %s AND run_id = %s AND state = 'running' AND pid IS NOT NULL"


class Engine:
    """
    Plays a story.

    :param tell: where each event goes.
    :param warehouse: URI of the warehouse.
    :param metadata: URI of Airflow's metadata database.
    """

    def __init__(self, tell: Callable[..., None], warehouse: str, metadata: str) -> None:
        self._tell = tell
        self._warehouse = warehouse
        self._metadata = metadata

    def prepare(self) -> None:
        """Make Airflow's tables and parse the DAGs."""
        from airflow import settings

        self._tell(event="step", what="imported")
        migration = _FORK.Process(target=_migrate)
        migration.start()
        runs.preload()
        migration.join()
        if migration.exitcode:
            raise DemoError("Airflow's metadata tables could not be made.")
        self._tell(event="step", what="migrated")
        runs.parse_dags()
        settings.dispose_orm()
        self._tell(event="step", what="parsed")

    def play(self, story: Story) -> None:
        """All phases, one after another, each on both DAGs."""
        self._pool = ProcessPoolExecutor(LANES, mp_context=_FORK, initializer=runs.open_worker)
        try:
            for phase in (history, catch_up, clears):
                self._all(phase(story))
            for dag in DAGS:
                self._kill(kill(story, dag), story.killed)
            for dag in DAGS:
                self._overlap(overlap(story, dag))
        finally:
            self._pool.shutdown(cancel_futures=True)

    def _all(self, jobs: Sequence[Job]) -> None:
        for done in as_completed([self._pool.submit(runs.perform, job) for job in jobs]):
            self._report(done.result())

    def _kill(self, job: Job, day: date) -> None:
        table = TARGETS[job.dag_id]
        with Gate(self._warehouse) as gate:
            gate.set_trap(table, day)
            running = self._pool.submit(runs.perform, job)
            self._unless_over([running], lambda: gate.wait_for_catch(table))
            os.kill(self._pid_of(job), signal.SIGKILL)
            gate.open()
            self._report(running.result(), may_fail=job.dag_id == APPEND_DAG)

    def _overlap(self, jobs: tuple[Job, Job]) -> None:
        with Gate(self._warehouse) as gate:
            gate.close(TARGETS[jobs[0].dag_id])
            running = [self._pool.submit(runs.perform, job) for job in jobs]
            self._unless_over(running, lambda: gate.wait_for_writers(len(jobs)))
            gate.open()
            for each in running:
                self._report(each.result())

    def _unless_over(self, running: Iterable[Future[runs.Outcome]], waiting: Callable[[], None]) -> None:
        """Wait for something in the warehouse; a run that ended instead says more than a time-out."""
        try:
            waiting()
        except DemoError:
            done, _ = wait(running, timeout=1, return_when=FIRST_EXCEPTION)
            for each in done:
                self._report(each.result())
            raise

    def _pid_of(self, job: Job) -> int:
        """The process of the running task, as its supervisor reported it to Airflow."""
        import psycopg

        until = time.monotonic() + _PATIENCE
        with psycopg.connect(self._metadata, autocommit=True) as metadata:
            while time.monotonic() < until:
                row = metadata.execute(_PID, (job.dag_id, runs.run_id_of(job))).fetchone()
                if row:
                    return int(row[0])
                time.sleep(0.01)
        raise DemoError(f"No process runs {job.dag_id} {runs.run_id_of(job)}.")

    def _report(self, outcome: runs.Outcome, *, may_fail: bool = False) -> None:
        job = outcome.job
        if outcome.state != "success" and not may_fail:
            raise DemoError(f"{job.dag_id} {outcome.run_id} ended as {outcome.state}. Its log: {outcome.log}")
        self._tell(event="run", phase=job.phase, dag=job.dag_id, state=outcome.state, tries=outcome.tries)


def _migrate() -> None:
    from airflow.utils.db import initdb

    initdb()


def main(argv: Sequence[str] | None = None) -> int:
    """Prepare, wait for the word that the warehouse is loaded, play."""
    parser = argparse.ArgumentParser()
    for name in ("--days", "--seed", "--events-fd"):
        parser.add_argument(name, type=int, required=True)
    for name in ("--warehouse", "--metadata"):
        parser.add_argument(name, required=True)
    args = parser.parse_args(argv)
    with os.fdopen(args.events_fd, "w", buffering=1) as events:
        os.set_inheritable(args.events_fd, False)

        def say(**event: Any) -> None:
            events.write(json.dumps(event) + "\n")

        try:
            engine = Engine(say, args.warehouse, args.metadata)
            engine.prepare()
            if not sys.stdin.readline():
                return 1
            engine.play(tell(args.days, args.seed))
        except Exception as error:  # noqa: BLE001 whatever it is, the demo has to hear of it
            traceback.print_exc()
            say(event="failed", why=str(error) or type(error).__name__)
            return 1
        say(event="end")
    return 0


if __name__ == "__main__":
    sys.exit(main())
