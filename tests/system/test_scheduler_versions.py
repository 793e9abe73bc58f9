"""Parsing a DAG again and again, also by a new dag-processor, makes no new version of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import psycopg

from tests.system.airflow_api import AirflowApi, wait_until
from tests.system.warehouse import SPRING, Warehouse, instant

if TYPE_CHECKING:
    from tests.system.airflow_stack import AirflowStack

PARSES = 10
# One DAG of each file; a version counts only when a run has used it, so each of them runs once.
DAG_IDS = ("trigger_manual", "interval_manual", "mapped")
CONTROL = "unstable"


def versions(stack: AirflowStack) -> dict[str, int]:
    """Count the versions of every DAG in Airflow's metadata."""
    with psycopg.connect(stack.dsn("airflow")) as connection:
        return dict(connection.execute("SELECT dag_id, count(*) FROM dag_version GROUP BY dag_id").fetchall())


def parse_again(api: AirflowApi) -> None:
    """Have the files of the DAGs parsed once more, and wait for it."""
    before = {dag_id: api.dag(dag_id) for dag_id in (*DAG_IDS, CONTROL)}
    for token in {dag["file_token"] for dag in before.values()}:
        api.call("PUT", f"/parseDagFile/{token}")

    def parsed() -> bool:
        now = {dag_id: api.dag(dag_id)["last_parsed_time"] for dag_id in before}
        return all(now[dag_id] > dag["last_parsed_time"] for dag_id, dag in before.items())

    wait_until(parsed, "the files to be parsed again", timeout=180)


def test_ten_parses_make_one_version(stack: AirflowStack, api: AirflowApi, warehouse: Warehouse) -> None:
    """Ten parses by two dag-processors leave one version of a DAG; one that changes each time has two."""
    api.unpause(*DAG_IDS, CONTROL)
    runs = {dag_id: api.trigger(dag_id, instant(SPRING, 12)) for dag_id in (*DAG_IDS, CONTROL)}
    for dag_id, run_id in runs.items():
        api.wait_run(dag_id, run_id)
    for number in range(PARSES):
        if number == PARSES // 2:
            stack.restart("dag-processor")
            stack.wait_healthy()
        parse_again(api)
    counted = versions(stack)
    assert counted.pop(CONTROL) > 1
    assert set(counted.values()) == {1}, counted
