"""What the tests ask of Airflow, by its public REST API alone."""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import httpx

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from datetime import datetime

FINAL = frozenset({"success", "failed"})
JsonObject = dict[str, Any]


class AirflowApi:
    """A client with a token; every method answers with the decoded JSON."""

    def __init__(self, url: str, username: str, password: str) -> None:
        token = httpx.post(f"{url}/auth/token", json={"username": username, "password": password}, timeout=30)
        token.raise_for_status()
        headers = {"Authorization": f"Bearer {token.json()['access_token']}"}
        self._client = httpx.Client(base_url=f"{url}/api/v2", headers=headers, timeout=30)

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def call(self, method: str, path: str, **kwargs: Any) -> JsonObject:
        """Send one request; an answer that is no success is an error with the server's words."""
        answer = self._client.request(method, path, **kwargs)
        if answer.is_error:
            raise RuntimeError(f"{method} {path}: {answer.status_code} {answer.text}")
        decoded: JsonObject = answer.json() if answer.content else {}
        return decoded or {}

    def dag(self, dag_id: str) -> JsonObject:
        """Read one DAG."""
        return self.call("GET", f"/dags/{dag_id}/details")

    def dag_ids(self) -> set[str]:
        """List the DAGs that are parsed."""
        return {dag["dag_id"] for dag in self.call("GET", "/dags", params={"limit": 100})["dags"]}

    def import_errors(self) -> list[JsonObject]:
        """List the files that do not parse."""
        errors: list[JsonObject] = self.call("GET", "/importErrors")["import_errors"]
        return errors

    def unpause(self, *dag_ids: str) -> None:
        """Let the scheduler run these DAGs."""
        for dag_id in dag_ids:
            self.call("PATCH", f"/dags/{dag_id}", json={"is_paused": False})

    def trigger(self, dag_id: str, logical_date: datetime | None) -> str:
        """Start a manual run at a logical date (None: without a date) and return its id."""
        body = {"logical_date": logical_date.isoformat() if logical_date else None}
        run_id: str = self.call("POST", f"/dags/{dag_id}/dagRuns", json=body)["dag_run_id"]
        return run_id

    def runs(self, dag_id: str, run_type: str | None = None) -> list[JsonObject]:
        """List the runs of a DAG by logical date."""
        params: JsonObject = {"limit": 100, "order_by": "logical_date"}
        if run_type:
            params["run_type"] = run_type
        runs: list[JsonObject] = self.call("GET", f"/dags/{dag_id}/dagRuns", params=params)["dag_runs"]
        return runs

    def run(self, dag_id: str, run_id: str) -> JsonObject:
        """Read one run."""
        return self.call("GET", f"/dags/{dag_id}/dagRuns/{quote(run_id)}")

    def clear_run(self, dag_id: str, run_id: str) -> None:
        """Clear all tasks of a run, as the button in the UI does."""
        body = {"dry_run": False, "only_failed": False}
        self.call("POST", f"/dags/{dag_id}/dagRuns/{quote(run_id)}/clear", json=body)

    def task(self, dag_id: str, run_id: str, task_id: str) -> JsonObject:
        """Read one task instance; `pid` is the process that runs the operator."""
        return self.call("GET", f"/dags/{dag_id}/dagRuns/{quote(run_id)}/taskInstances/{task_id}")

    def mark_failed(self, dag_id: str, run_id: str, task_id: str) -> None:
        """Mark a running task failed, as a user does."""
        path = f"/dags/{dag_id}/dagRuns/{quote(run_id)}/taskInstances/{task_id}"
        self.call("PATCH", path, json={"new_state": "failed"})

    def backfill(self, dag_id: str, from_date: datetime, to_date: datetime, reprocess: str = "none") -> int:
        """Create a backfill and return its id."""
        body = {
            "dag_id": dag_id,
            "from_date": from_date.isoformat(),
            "to_date": to_date.isoformat(),
            "reprocess_behavior": reprocess,
            "max_active_runs": 4,
        }
        backfill_id: int = self.call("POST", "/backfills", json=body)["id"]
        return backfill_id

    def wait_backfill(self, dag_id: str, timeout: float = 180.0) -> None:
        """Wait until no backfill of the DAG is active, so that another one may be created."""

        def done() -> bool:
            backfills = self.call("GET", "/backfills", params={"dag_id": dag_id})["backfills"]
            return all(backfill["completed_at"] for backfill in backfills)

        wait_until(done, f"the backfills of {dag_id} to complete", timeout)

    def wait_run(self, dag_id: str, run_id: str, state: str = "success", timeout: float = 180.0) -> None:
        """Wait until a run is over and require how it ended."""
        wait_until(lambda: self.run(dag_id, run_id)["state"] in FINAL, f"{dag_id} {run_id} to end", timeout)
        seen = self.run(dag_id, run_id)["state"]
        assert seen == state, f"{dag_id} {run_id} ended {seen}, expected {state}"

    def wait_runs(self, dag_ids: Iterable[str], count: int, run_type: str, timeout: float = 300.0) -> None:
        """Wait until each DAG has `count` runs of a type, all of them over and successful."""
        for dag_id in dag_ids:
            wait_until(partial(self._over, dag_id, count, run_type), f"{count} runs of {dag_id}", timeout)
            states = {run["dag_run_id"]: run["state"] for run in self.runs(dag_id, run_type)}
            assert set(states.values()) == {"success"}, f"{dag_id}: {states}"

    def _over(self, dag_id: str, count: int, run_type: str) -> bool:
        states = [run["state"] for run in self.runs(dag_id, run_type)]
        return len(states) >= count and set(states) <= FINAL


def wait_until(condition: Callable[[], object], what: str, timeout: float, every: float = 0.3) -> float:
    """Poll until the condition is true and return the seconds it took; time-outs name what was waited for."""
    start = time.monotonic()
    while time.monotonic() - start < timeout:
        if condition():
            return time.monotonic() - start
        time.sleep(every)
    raise TimeoutError(f"waited {timeout} s for {what}")
