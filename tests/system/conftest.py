"""Fixtures of the system tests: one real Airflow and one warehouse for the whole session."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.system.airflow_api import AirflowApi, wait_until
from tests.system.airflow_stack import USER, AirflowStack, airflow_stack
from tests.system.warehouse import Warehouse

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType

DAGS = Path(__file__).parent / "dags"
KINDS = ("trigger", "interval")
CATCH_UPS = ("spring", "autumn", "utc", "two_am")
TWINS = (*CATCH_UPS, "manual", "cleared", "dateless", "replay_spring", "replay_autumn")
GUARDS = ("guarded_clean", "guarded_once", "guarded_others")
KILLS = ("killed", "lost_worker", "marked_failed", "out_of_time")
POLICIES = ("policy_append", "policy_repeatable", "policy_exempt", "policy_crowd")
PUBLICATIONS = ("published", "published_blindly")
RETRIES = ("denied", "ended_backend", "mismatch", "deferred_denied", "deferred_reset")
DAG_IDS = (
    *(f"{kind}_{name}" for kind in KINDS for name in TWINS),
    *KILLS,
    *GUARDS,
    *POLICIES,
    *PUBLICATIONS,
    *RETRIES,
    *("mapped", "unstable"),
)
TARGETS = (
    *(f"{kind}_{name}_{what}" for kind in KINDS for name in TWINS for what in ("events", "days")),
    *(f"{name}_events" for name in KILLS),
    *("mapped_zones_events", "mapped_regions_events"),
    *(f"{name}_days" for name in POLICIES),
    *("denied_events", "ended_backend_events", "mismatch_events"),
    *("guarded_clean_events", "guarded_once_events", "guarded_regions_events", "guarded_function_events"),
)


@pytest.fixture(scope="session")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AirflowStack]:
    """Run api-server, scheduler, dag-processor and triggerer in a folder of the session's own."""
    before = signal.signal(signal.SIGTERM, _end_session)
    with airflow_stack(tmp_path_factory.mktemp("airflow"), DAGS) as running:
        yield running
    signal.signal(signal.SIGTERM, before)


def _end_session(number: int, frame: FrameType | None) -> None:
    """Let a session that is told to end tear its fixtures down, or Airflow would outlive it."""
    pytest.exit(f"signal {number}", returncode=128 + number)


@pytest.fixture(scope="session")
def warehouse(stack: AirflowStack) -> Iterator[Warehouse]:
    """Connect to the warehouse, its source filled and its targets empty."""
    connected = Warehouse(stack.dsn("warehouse"))
    connected.create()
    for target in TARGETS:
        connected.create_target(target)
    yield connected
    connected.close()


@pytest.fixture(scope="session")
def api(stack: AirflowStack, warehouse: Warehouse) -> Iterator[AirflowApi]:
    """Return the REST client, once every DAG is parsed and the warehouse is there."""
    client = AirflowApi(stack.url, USER, stack.password)

    def parsed() -> bool:
        errors = client.import_errors()
        assert not errors, "\n".join(error["stack_trace"] for error in errors)
        return client.dag_ids() >= set(DAG_IDS)

    wait_until(parsed, "the DAGs to be parsed", timeout=180)
    yield client
    client.close()
