"""Writers that are not ours, under a real scheduler: killed, overlapped, repeated, mapped."""

from __future__ import annotations

import os
import signal
from datetime import timedelta

from tests.system.airflow_api import AirflowApi, wait_until
from tests.system.test_scheduler_kills import RUN_DATE, STATEMENT_SECONDS, run_again, task_process
from tests.system.warehouse import SPRING, Warehouse, events_of


def half_is_committed(warehouse: Warehouse, dag_id: str) -> bool:
    return len(warehouse.all_events(f"{dag_id}_events")) in (23, 24)


def test_killed_half_way_it_is_cleaned_up_and_written_again(api: AirflowApi, warehouse: Warehouse) -> None:
    """Killed after half of its rows were committed; then two more runs of the day at once, and one that is cleared."""
    dag_id, table = "guarded_clean", "guarded_clean_events"
    warehouse.set_pace(dag_id, STATEMENT_SECONDS)
    api.unpause(dag_id)
    run_id = api.trigger(dag_id, RUN_DATE)
    wait_until(lambda: half_is_committed(warehouse, dag_id), "half of the day", timeout=180, every=0.1)
    warehouse.set_pace(dag_id, 0.5)
    os.kill(task_process(api, dag_id, run_id), signal.SIGKILL)
    # The statement of a dead writer goes on in the server until that notices; this one would sleep for a minute.
    warehouse.rows(
        "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE query LIKE '%pg_sleep%guarded_clean%' "
        "AND pid <> pg_backend_pid()"
    )
    api.wait_run(dag_id, run_id)
    assert warehouse.all_events(table) == events_of(SPRING)
    assert warehouse.outcomes(table) == ["lost", "published"]

    at_once = [api.trigger(dag_id, RUN_DATE + timedelta(hours=hour)) for hour in (1, 2)]
    for each in at_once:
        api.wait_run(dag_id, each)
    assert warehouse.all_events(table) == events_of(SPRING)
    api.clear_run(dag_id, run_id)
    wait_until(lambda: len(warehouse.outcomes(table)) == 5, "the cleared run to write", timeout=60)
    api.wait_run(dag_id, run_id)
    assert warehouse.all_events(table) == events_of(SPRING)
    assert warehouse.outcomes(table) == ["lost", *["published"] * 4]
    assert warehouse.claims() == []


def test_a_repeat_is_refused_where_no_clean_up_is_declared(api: AirflowApi, warehouse: Warehouse) -> None:
    dag_id, table = "guarded_once", "guarded_once_events"
    warehouse.set_pace(dag_id, 0)
    api.unpause(dag_id)
    api.wait_run(dag_id, api.trigger(dag_id, RUN_DATE))
    api.wait_run(dag_id, run_again(api, dag_id), state="failed")
    assert warehouse.all_events(table) == events_of(SPRING)
    assert warehouse.outcomes(table) == ["published", "failed"]
    assert warehouse.partitions(table) == {"event_at=2013-03-10..2013-03-11@America/New_York": len(events_of(SPRING))}


def test_mapped_tasks_and_functions(api: AirflowApi, warehouse: Warehouse) -> None:
    """Each map index guards a partition of its own; cleared, all of them are refused."""
    api.unpause("guarded_others")
    run_id = api.trigger("guarded_others", RUN_DATE)
    api.wait_run("guarded_others", run_id)
    for _ in range(2):
        assert warehouse.all_events("guarded_regions_events") == warehouse.source_events()
        assert warehouse.all_events("guarded_function_events") == events_of(SPRING)
        assert set(warehouse.partitions("guarded_regions_events")) == {"region=EU", "region=US"}
        api.clear_run("guarded_others", run_id)
        wait_until(lambda: api.run("guarded_others", run_id)["state"] == "failed", "the refusals", timeout=90)
    assert set(warehouse.outcomes("guarded_regions_events")) == {"published", "failed"}
