"""Real processes that publish once: the same as a worker does with one task, without Airflow."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection as Pipe
from typing import Any

from airflow_safe_ops.definition.identity import RunIdentity
from airflow_safe_ops.definition.publication import Publication
from airflow_safe_ops.errors import SafeOpsError
from airflow_safe_ops.execution.courier import Courier
from airflow_safe_ops.execution.publish import Publisher
from airflow_safe_ops.ledger.claims import Patience
from airflow_safe_ops.publish.http import HttpReceiver
from airflow_safe_ops.sql.dialect import dialect_for
from tests.crash.harness import EVERYWHERE, Outcome, connector

KEY = "orders/2026-01-01"
INTENT = {"day": "2026-01-01", "rows": 3}
POINTS = (
    "publish.intent:before",
    "publish.intent:after",
    "publish.ask:before",
    "publish.ask:after",
    "publish.begin:before",
    "publish.begin:after",
    "publish.send:before",
    "publish.send:after",
    "publish.outcome:before",
    "publish.outcome:after",
)


@dataclass(frozen=True)
class PublishJob:
    """
    What one process does.

    :param url: where it posts.
    :param asks: it looks up, too.
    :param takes_keys: it relies on the Idempotency-Key.
    :param settle: seconds before "not there" is believed.
    :param pauses: the points at which it stands still until it is told to go on.
    """

    uri: str
    url: str
    asks: bool = True
    takes_keys: bool = False
    settle: float = 0.0
    grace: float = 0.3
    lock_timeout: float = 80.0
    name: str = "publisher"
    driver: str = "psycopg"
    pauses: frozenset[str] = frozenset()


def publish(job: PublishJob, pipe: Pipe) -> None:
    """The main function of a child."""
    logging.disable(logging.CRITICAL)

    def stand(point: str) -> None:
        pipe.send(("at", point))
        pipe.recv()

    pipe.send(("done", publish_here(job, lambda backend: pipe.send(("backend", backend)), stand)))


def publish_here(
    job: PublishJob,
    tell: Callable[[int], None] = lambda _backend: None,
    stand: Callable[[str], None] = lambda _point: None,
) -> Outcome:
    """Publish in this process."""
    opening = connector(job.uri, job.driver)

    def connect() -> Any:
        connection = opening()
        tell(connection.info.backend_pid)
        return connection

    points: list[str] = []

    def observe(step: str, when: str) -> None:
        points.append(f"{step}:{when}")
        if job.pauses & {points[-1], EVERYWHERE}:
            stand(points[-1])

    to = HttpReceiver(job.url + "/{key}", job.url + "/{key}" if job.asks else None, idempotent=job.takes_keys)
    publication = Publication(KEY, INTENT, idempotent=job.takes_keys, settle=job.settle)
    publisher = Publisher(
        Courier(publication, to.lookup, to.send),
        RunIdentity(dag_id="crash", task_id=job.name, run_id="test"),
        connect,
        dialect_for("postgresql"),
        Patience(job.lock_timeout, job.grace),
        observe=observe,
    )
    try:
        return Outcome([publisher.execute().as_dict()], points=tuple(points))
    except SafeOpsError as error:
        return Outcome(code=error.code, error=str(error), terminal=error.terminal, points=tuple(points))
    except Exception as error:  # noqa: BLE001 - whatever it is, the test has to see it
        return Outcome(code="-", error=f"{type(error).__name__}: {error}", points=tuple(points))
