"""Killed, lost, marked failed, out of time: the next try finds a free partition and loads it once."""

from __future__ import annotations

import os
import signal
from datetime import timedelta

from tests.system.airflow_api import AirflowApi, JsonObject, wait_until
from tests.system.airflow_stack import parent_of
from tests.system.warehouse import SPRING, Warehouse, events_of, instant

RUN_DATE = instant(SPRING + timedelta(days=1))
STATEMENT_SECONDS = 60.0
TIME_OUT = 10.0
"""The execution_timeout of the DAG `out_of_time`."""
CLEAN_SECONDS = 5.0
"""How soon after the end of a task its statement must be gone from the server."""
AT_ONCE_SECONDS = 10.0
"""How long a try may take that finds the partition free, its process and imports included."""


def allowed(seconds: float) -> float:
    """Stretch a time that holds on an idle machine by what this one has to do besides."""
    return seconds * max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))


def start_slow_load(api: AirflowApi, warehouse: Warehouse, dag_id: str) -> str:
    """Start a run whose statement lasts a minute, and wait until it runs; later statements are fast."""
    warehouse.set_pace(dag_id, STATEMENT_SECONDS)
    api.unpause(dag_id)
    run_id = api.trigger(dag_id, RUN_DATE)
    wait_until(lambda: sleeping(warehouse, dag_id), f"the statement of {dag_id}", timeout=180, every=0.1)
    warehouse.set_pace(dag_id, 0)
    return run_id


def sleeping(warehouse: Warehouse, dag_id: str) -> bool:
    """Tell whether one of the package's own connections executes the slow statement of this DAG."""
    statements = [query for _, state, query in warehouse.backends() if state == "active"]
    return any("pg_sleep" in query and f"'{dag_id}'" in query for query in statements)


def task_process(api: AirflowApi, dag_id: str, run_id: str) -> int:
    """Return the process that runs the operator; its parent is a worker of the LocalExecutor."""
    pid: int = api.task(dag_id, run_id, "load")["pid"]
    return pid


def assert_loaded_at_once(api: AirflowApi, warehouse: Warehouse, dag_id: str, run_id: str) -> None:
    """Require that the last try of a run loaded the day, once, and did not wait for what was left behind."""
    api.wait_run(dag_id, run_id)
    task: JsonObject = api.task(dag_id, run_id, "load")
    assert task["duration"] < allowed(AT_ONCE_SECONDS)
    assert warehouse.all_events(f"{dag_id}_events") == events_of(SPRING)
    assert warehouse.claims() == []


def run_again(api: AirflowApi, dag_id: str) -> str:
    """Start another run that owns the same day."""
    return api.trigger(dag_id, RUN_DATE + timedelta(hours=1))


def test_task_process_is_killed(api: AirflowApi, warehouse: Warehouse) -> None:
    """SIGKILL of the process that loads: the retry loads the day, once, soon after."""
    run_id = start_slow_load(api, warehouse, "killed")
    os.kill(task_process(api, "killed", run_id), signal.SIGKILL)
    assert_loaded_at_once(api, warehouse, "killed", run_id)
    assert api.task("killed", run_id, "load")["try_number"] == 2
    assert warehouse.outcomes("killed_events") == ["lost", "published"]
    assert warehouse.backends() == []


def test_worker_is_lost(api: AirflowApi, warehouse: Warehouse) -> None:
    """SIGKILL of supervisor and task, as when a machine goes: the retry loads the day once."""
    run_id = start_slow_load(api, warehouse, "lost_worker")
    task = task_process(api, "lost_worker", run_id)
    for process in (parent_of(task), task):
        os.kill(process, signal.SIGKILL)
    assert_loaded_at_once(api, warehouse, "lost_worker", run_id)
    assert warehouse.outcomes("lost_worker_events") == ["lost", "published"]


def test_task_is_marked_failed(api: AirflowApi, warehouse: Warehouse) -> None:
    """A user marks the task failed: its statement is gone within seconds and its claim blocks nobody."""
    run_id = start_slow_load(api, warehouse, "marked_failed")
    api.mark_failed("marked_failed", run_id, "load")
    wait_until(lambda: not warehouse.backends(), "its statement to end", allowed(CLEAN_SECONDS), every=0.1)
    assert_loaded_at_once(api, warehouse, "marked_failed", run_again(api, "marked_failed"))
    assert warehouse.outcomes("marked_failed_events")[-1] == "published"


def test_task_runs_out_of_time(api: AirflowApi, warehouse: Warehouse) -> None:
    """The execution_timeout ends: the task fails, its statement is gone, its claim blocks nobody."""
    run_id = start_slow_load(api, warehouse, "out_of_time")
    limit = TIME_OUT + allowed(CLEAN_SECONDS)
    took = wait_until(lambda: not warehouse.backends(), "its statement to end", limit, every=0.1)
    assert took > 1, "the statement ended before the time-out"
    api.wait_run("out_of_time", run_id, state="failed")
    assert warehouse.all_events("out_of_time_events") == []
    assert_loaded_at_once(api, warehouse, "out_of_time", run_again(api, "out_of_time"))
    assert warehouse.outcomes("out_of_time_events") == ["failed", "published"]
