"""A writer that is not ours, under the guard, in a process of its own: it commits its rows one by one."""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

import psycopg

from airflow_safe_ops.definition.guard import GuardedTarget, OnRepeat
from airflow_safe_ops.definition.identity import RunIdentity
from airflow_safe_ops.errors import SafeOpsError
from airflow_safe_ops.execution import held
from airflow_safe_ops.execution.guard import GuardedWrite, guarding
from airflow_safe_ops.ledger.claims import Patience
from airflow_safe_ops.sql.dialect import dialect_for
from tests.crash.harness import Child, Outcome, connector
from tests.crash.warehouse import COLUMNS, FIRST, Shop, day

if TYPE_CHECKING:
    from multiprocessing.connection import Connection as Pipe

# Where it stands still, if it is asked to: its claim is held; one row is committed; all are; the ledger is written.
POINTS = ("begun", "half", "written", "ended")


@dataclass(frozen=True)
class GuardJob:
    """
    One run of the writer over the first day of a shop.

    :param uri: by which the writer connects.
    :param claim_uri: by which the guard connects; the same unless a test stands between.
    :param every: how often the guard asks for its claim, in seconds.
    """

    uri: str
    source: str
    target: str
    on_repeat: str = "clean_up"
    claim_uri: str = ""
    driver: str = "psycopg"
    pauses: frozenset[str] = frozenset()
    every: float = 10.0
    lock_timeout: float = 60.0
    name: str = "guarded"


def writer(shop: Shop, *pauses: str, **more: object) -> Child:
    """Start it."""
    job = GuardJob(shop.db.uri, shop.source, shop.target, pauses=frozenset(pauses), **more)  # type: ignore[arg-type]
    return Child(job, run_guarded)


def run_guarded(job: GuardJob, pipe: Pipe) -> None:
    """The main function of the process."""
    logging.disable(logging.CRITICAL)
    held.EVERY = job.every

    def stand(point: str) -> None:
        if point in job.pauses:
            pipe.send(("at", point))
            pipe.recv()

    write = GuardedWrite(
        GuardedTarget(job.target, day(), cast("OnRepeat", job.on_repeat)),
        RunIdentity(dag_id="crash", task_id=job.name, run_id="test"),
        connector(job.claim_uri or job.uri, job.driver),
        dialect_for("postgresql"),
        Patience(job.lock_timeout, 1.0),
    )
    pipe.send(("backend", 0))
    began = time.monotonic()
    try:
        with guarding(write), psycopg.connect(job.uri, autocommit=True) as connection:
            stand("begun")
            rows = connection.execute(
                f"SELECT {COLUMNS} FROM {job.source} WHERE day = %s ORDER BY id", (FIRST,)
            ).fetchall()
            for number, row in enumerate(rows):
                connection.execute(f"INSERT INTO {job.target} ({COLUMNS}) VALUES (%s, %s, %s, %s)", row)
                if number == 0:
                    stand("half")
            stand("written")
        stand("ended")
        outcome = Outcome(seconds=time.monotonic() - began)
    except SafeOpsError as error:
        outcome = Outcome(code=error.code, error=str(error), seconds=time.monotonic() - began)
    except Exception as error:  # noqa: BLE001 - whatever it is, the test has to see it
        outcome = Outcome(code="-", error=f"{type(error).__name__}: {error}")
    pipe.send(("done", outcome))
