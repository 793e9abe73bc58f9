"""A real scheduler asks the policy: what fails at once, and what is tried again after the stated delay."""

from __future__ import annotations

import json
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, LiteralString

import psycopg
import pytest

from tests.system.airflow_api import AirflowApi, JsonObject, wait_until
from tests.system.conftest import RETRIES
from tests.system.warehouse import SPRING, Warehouse, events_of, instant

if TYPE_CHECKING:
    from tests.system.airflow_stack import AirflowStack

RUN_DATE = instant(SPRING + timedelta(days=1))
DELAY = 4.0
"""The delay that the DAGs' policy states."""
SLACK = 20.0
"""How much later a scheduler with other things to do may start the next try."""
FAILURES: LiteralString = """
    SELECT a.state, a.error_code, a.failure_class FROM safe_ops.safe_ops_attempt AS a
    JOIN safe_ops.safe_ops_target AS t USING (target_id)
    WHERE replace(t.identity, '"', '') = %s ORDER BY a.started_at
"""


@pytest.fixture(scope="module")
def runs(api: AirflowApi, warehouse: Warehouse) -> dict[str, str]:
    """Start a run of each DAG, all at once: they have nothing to do with each other."""
    warehouse.rows("CREATE ROLE clerk LOGIN")
    warehouse.rows("GRANT USAGE ON SCHEMA mart, raw TO clerk")
    warehouse.rows("GRANT ALL ON mart.denied_events TO clerk")
    warehouse.set_pace("ended_backend", 60.0)
    api.unpause(*RETRIES)
    return {dag_id: api.trigger(dag_id, RUN_DATE) for dag_id in RETRIES}


def fails_at_try_1(api: AirflowApi, dag_id: str, run_id: str, *task_ids: str) -> None:
    """Require that a task with three retries was not tried again."""
    api.wait_run(dag_id, run_id, state="failed")
    for task_id in task_ids:
        task = api.task(dag_id, run_id, task_id)
        assert (task["state"], task["try_number"], task["max_tries"]) == ("failed", 1, 3), task_id


def waited(api: AirflowApi, dag_id: str, run_id: str, task_id: str) -> float:
    """Return the seconds between the end of the first try and the start of the second."""
    path = f"/dags/{dag_id}/dagRuns/{run_id}/taskInstances/{task_id}/tries"
    tries: list[JsonObject] = sorted(
        api.call("GET", path)["task_instances"], key=lambda one: int(str(one["try_number"]))
    )
    assert len(tries) == 2
    end, start = (datetime.fromisoformat(tries[n][name]) for n, name in ((0, "end_date"), (1, "start_date")))
    return (start - end).total_seconds()


def reasons(stack: AirflowStack, dag_id: str) -> list[str]:
    """Return why Airflow tried again, as it keeps it."""
    with psycopg.connect(stack.dsn("airflow")) as connection:
        query = "SELECT retry_reason FROM task_instance_history WHERE dag_id = %s AND retry_reason IS NOT NULL"
        return [row[0] for row in connection.execute(query, (dag_id,))]


def counted(stack: AirflowStack, dag_id: str) -> list[dict[str, int]]:
    """Return how many tries failed in which class, as the policy keeps it in Airflow's task state store."""
    with psycopg.connect(stack.dsn("airflow")) as connection:
        query = "SELECT value FROM task_state_store WHERE dag_id = %s AND key = 'safe_ops_retries'"
        return [json.loads(row[0])["counts"] for row in connection.execute(query, (dag_id,))]


def test_a_killed_backend_is_retried_after_the_stated_delay(
    api: AirflowApi, warehouse: Warehouse, stack: AirflowStack, runs: dict[str, str]
) -> None:
    """The load's session is ended by an administrator: the retry, as late as the policy says, loads the day once."""
    run_id = runs["ended_backend"]

    def end_it() -> bool:
        """End its session once the slow statement runs."""
        query = (
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name LIKE 'safe_ops%%' "
            "AND state = 'active' AND query LIKE '%%pg_sleep%%' AND query LIKE '%%ended_backend%%' AND pid <> %s"
        )
        return bool(warehouse.rows(query, -1))

    wait_until(end_it, "the statement of ended_backend", timeout=120, every=0.1)
    warehouse.set_pace("ended_backend", 0)
    api.wait_run("ended_backend", run_id)
    assert DELAY <= waited(api, "ended_backend", run_id, "load") <= DELAY + SLACK
    assert warehouse.all_events("ended_backend_events") == events_of(SPRING)
    told = warehouse.rows(FAILURES, "mart.ended_backend_events")
    assert [(state, failure) for state, _, failure in told] == [("failed", "transient"), ("published", None)]
    (reason,) = reasons(stack, "ended_backend")
    assert counted(stack, "ended_backend") == [{"transient": 1}]
    assert "Transient failure" in reason
    assert "Try 2 of 3" in reason


def test_permission_denied_fails_at_the_first_try(api: AirflowApi, warehouse: Warehouse, runs: dict[str, str]) -> None:
    """A load of ours, and any other task that has the policy."""
    fails_at_try_1(api, "denied", runs["denied"], "load", "query")
    assert warehouse.all_events("denied_events") == []


def test_a_mismatch_is_not_retried(
    api: AirflowApi, warehouse: Warehouse, stack: AirflowStack, runs: dict[str, str]
) -> None:
    """apache/airflow#26761 (#26712): counts that differ are not retried like a network fault."""
    fails_at_try_1(api, "mismatch", runs["mismatch"], "load")
    assert warehouse.rows(FAILURES, "mart.mismatch_events") == [("failed", "SO-110", "data")]
    assert warehouse.all_events("mismatch_events") == []
    assert counted(stack, "mismatch") == [{"data": 1}]


def test_a_deferred_task_keeps_the_class_of_its_failure(
    api: AirflowApi, stack: AirflowStack, runs: dict[str, str]
) -> None:
    """apache/airflow#36734, #33718: what fails in a trigger ends the task by its class, not as a bare error."""
    denied, reset = runs["deferred_denied"], runs["deferred_reset"]
    fails_at_try_1(api, "deferred_denied", denied, "wait")
    api.wait_run("deferred_reset", reset)
    assert api.task("deferred_reset", reset, "wait")["try_number"] == 2
    assert DELAY <= waited(api, "deferred_reset", reset, "wait") <= DELAY + SLACK
    (reason,) = reasons(stack, "deferred_reset")
    assert "errno ECONNREFUSED" in reason
