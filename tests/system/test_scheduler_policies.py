"""The cluster policy under a real scheduler: who may be backfilled, by REST and by the command line."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

import httpx
import psycopg
import pytest

from tests.system.airflow_api import wait_until
from tests.system.airflow_stack import USER

if TYPE_CHECKING:
    from tests.system.airflow_api import AirflowApi
    from tests.system.airflow_stack import AirflowStack
    from tests.system.warehouse import Warehouse

FROM, TO = datetime(2013, 3, 10, tzinfo=UTC), datetime(2013, 3, 12, tzinfo=UTC)
ALLOWED = ("policy_repeatable", "policy_exempt")
EVERY_TYPE = {"asset_materialization", "asset_triggered", "backfill", "manual", "operator_triggered", "scheduled"}


def backfills(stack: AirflowStack, dag_id: str) -> int:
    """Count the backfills that Airflow has recorded of a DAG."""
    with psycopg.connect(stack.dsn("airflow")) as connection:
        found = connection.execute("SELECT count(*) FROM backfill WHERE dag_id = %s", (dag_id,)).fetchone()
        assert found is not None
        return int(found[0])


def ask(stack: AirflowStack, dag_id: str, path: str = "backfills") -> httpx.Response:
    """Ask for a backfill by REST, whatever the answer is."""
    token = httpx.post(f"{stack.url}/auth/token", json={"username": USER, "password": stack.password}, timeout=30)
    body = {"dag_id": dag_id, "from_date": FROM.isoformat(), "to_date": TO.isoformat(), "reprocess_behavior": "none"}
    headers = {"Authorization": f"Bearer {token.json()['access_token']}"}
    return httpx.post(f"{stack.url}/api/v2/{path}", json={**body, "max_active_runs": 2}, headers=headers, timeout=30)


def test_one_file_keeps_all_but_the_dag_whose_start_moves(api: AirflowApi) -> None:
    """The neighbours of a refused DAG are there, and the file has no import error."""
    assert api.dag_ids() >= {"policy_append", "policy_crowd", *ALLOWED}
    assert "policy_moving" not in api.dag_ids()
    assert api.import_errors() == []


@pytest.mark.parametrize("path", ["backfills", "backfills/dry_run"])
def test_rest_refuses_a_backfill_of_a_dag_that_appends(stack: AirflowStack, api: AirflowApi, path: str) -> None:
    answer = ask(stack, "policy_append", path)
    assert answer.status_code == 400, answer.text
    assert "does not allow backfill" in answer.text
    assert backfills(stack, "policy_append") == 0


def test_the_command_line_refuses_it_too(stack: AirflowStack, api: AirflowApi) -> None:
    command = ("backfill", "create", "--dag-id", "policy_append", "--from-date", FROM.isoformat())
    with pytest.raises(RuntimeError, match="does not allow backfill"):
        stack.run(*command, "--to-date", TO.isoformat())
    assert backfills(stack, "policy_append") == 0


def test_its_other_runs_go_on(api: AirflowApi, warehouse: Warehouse) -> None:
    """Only the backfill is taken away: a run by hand writes its row, and the schedule stays allowed."""
    before = len(warehouse.all_days("policy_append_days"))
    api.unpause("policy_append")
    api.wait_run("policy_append", api.trigger("policy_append", FROM))
    assert len(warehouse.all_days("policy_append_days")) > before
    assert set(api.dag("policy_append")["allowed_run_types"]) == EVERY_TYPE - {"backfill"}


@pytest.mark.parametrize("dag_id", ALLOWED)
def test_what_is_declared_or_exempt_may_be_backfilled(stack: AirflowStack, api: AirflowApi, dag_id: str) -> None:
    answer = ask(stack, dag_id, "backfills/dry_run")
    assert answer.status_code == 200, answer.text
    assert len(answer.json()["backfills"]) == 3


def test_a_backfill_of_what_is_declared_repeatable_runs(api: AirflowApi, warehouse: Warehouse) -> None:
    def appended() -> int:
        return sum(FROM.date() <= day <= TO.date() for day, _, _ in warehouse.all_days("policy_repeatable_days"))

    api.unpause("policy_repeatable")
    before = appended()
    api.backfill("policy_repeatable", FROM, TO, reprocess="completed")
    wait_until(lambda: appended() == before + 3, "three days to be appended", timeout=180)
    api.wait_backfill("policy_repeatable")


def test_the_cap_holds_for_the_scheduler(api: AirflowApi) -> None:
    assert api.dag("policy_crowd")["max_active_runs"] == 16
    assert api.dag("policy_append")["max_active_runs"] == 16
