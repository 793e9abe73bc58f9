"""The operator in a process of its own, driven as Airflow's task runner drives it."""

from __future__ import annotations

import os
import signal
import time
from dataclasses import dataclass
from datetime import timedelta
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from airflow.providers.postgres.hooks import postgres
from airflow.sdk.exceptions import AirflowTaskTimeout
from airflow.sdk.execution_time.timeout import timeout

from airflow_safe_ops.definition.load import Load
from airflow_safe_ops.operators.load import IdempotentLoadOperator
from tests.crash.harness import Outcome

if TYPE_CHECKING:
    from multiprocessing.connection import Connection as Pipe

DAG = "crash"


@dataclass(frozen=True)
class TaskJob:
    """
    One try of one task.

    :param airflow_uri: the connection as Airflow takes it.
    :param seconds: its execution_timeout.
    :param name: its task_id, by which the server's processes are told apart.
    """

    airflow_uri: str
    load: Load
    driver: str
    seconds: float | None = None
    name: str = "killed"


def run_task(job: TaskJob, pipe: Pipe) -> None:
    """
    The main function of a child, in a process group of its own as Airflow starts it.

    SIGUSR1 makes it fork, as code of a user's may: the new process holds whatever this one has open.
    """
    os.setpgid(0, 0)
    signal.signal(signal.SIGUSR1, _fork)
    os.environ["AIRFLOW_CONN_DWH"] = job.airflow_uri
    postgres.USE_PSYCOPG3 = job.driver == "psycopg"
    operator = IdempotentLoadOperator(
        task_id=job.name,
        conn_id="dwh",
        execution_timeout=None if job.seconds is None else timedelta(seconds=job.seconds),
        **vars(job.load),
    )
    signal.signal(signal.SIGTERM, lambda _number, _frame: operator.on_kill())
    began = time.monotonic()
    try:
        _execute(operator, job.name)
        outcome = Outcome(began=began)
    except BaseException as error:  # noqa: BLE001 - a time-out is no Exception
        code = str(getattr(error, "code", getattr(error.__cause__, "code", "")))
        outcome = Outcome(code=code, error=f"{type(error).__name__}: {error}", seconds=time.monotonic() - began)
    pipe.send(("done", outcome))


def _fork(_number: int, _frame: Any) -> None:
    if os.fork() == 0:
        signal.pause()


def _execute(operator: IdempotentLoadOperator, name: str) -> None:
    """What the task runner does with a task that has an execution timeout, or none."""
    if operator.execution_timeout is None:
        operator.execute(_context(name))
        return
    try:
        with timeout(operator.execution_timeout.total_seconds()):
            operator.execute(_context(name))
    except AirflowTaskTimeout:
        operator.on_kill()
        raise


def _context(name: str) -> dict[str, Any]:
    run = SimpleNamespace(
        run_id="manual",
        run_type="manual",
        clear_number=0,
        logical_date=None,
        data_interval_start=None,
        data_interval_end=None,
        triggering_user_name=None,
    )
    ti = SimpleNamespace(dag_id=DAG, task_id=name, map_index=-1, try_number=1)
    return {"ti": ti, "dag_run": run, "run_id": "manual"}
