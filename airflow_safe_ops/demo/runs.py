"""
DAG runs, made and executed by Airflow itself, without its daemons.

A run is created, or cleared, by the functions that Airflow's scheduler, its trigger API and its UI call. Each try of
a task is then a process of its own under Airflow's supervisor, which parses the DAG file and talks to Airflow's
execution API; only that API is served in process, and this module takes the scheduler's place.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow_safe_ops.demo.folder import BUNDLE, dags_folder
from airflow_safe_ops.demo.story import APPEND_DAG, DAGS, Job

if TYPE_CHECKING:
    from collections.abc import Sequence

FILES = {dag: f"incidents/{dag}.py" if dag == APPEND_DAG else f"{dag}.py" for dag in DAGS}
_GLANCE = 0.05
_dags: dict[str, Any] = {}
_client: Any = None


@dataclass(frozen=True)
class Outcome:
    """
    How a run ended.

    :param state: the state of the DAG run.
    :param tries: how many processes it took.
    :param log: the last try's log.
    """

    job: Job
    run_id: str
    state: str
    tries: int
    log: str


def parse_dags() -> None:
    """Parse the two files and write them to Airflow's metadata, as its DAG processor does."""
    from airflow.dag_processing.bundles.manager import DagBundlesManager
    from airflow.dag_processing.dagbag import BundleDagBag, sync_bag_to_db

    DagBundlesManager().sync_bundles_to_db()
    folder = dags_folder()
    for file in FILES.values():
        bag = BundleDagBag(dag_folder=str(folder / file), bundle_path=folder, bundle_name=BUNDLE)
        if bag.import_errors:
            raise RuntimeError(f"{file} does not import:\n{next(iter(bag.import_errors.values()))}")
        sync_bag_to_db(bag, BUNDLE, None)


def preload() -> None:
    """Import once what every task would import for itself; processes are forked from here."""
    import importlib

    for module in (
        "airflow.dag_processing.bundles.local",
        "airflow.providers.postgres.hooks.postgres",
        "airflow.providers.standard.operators.python",
        "airflow.sdk.execution_time.task_runner",
        "airflow_safe_ops.execution.runner",
        "airflow_safe_ops.operators.load",
        "airflow_safe_ops.sql.postgres",
        "psycopg",
        "psycopg2",
    ):
        importlib.import_module(module)
    asyncio.run(_warm_up())


async def _warm_up() -> None:
    """The execution API builds itself at its first request, for seconds."""
    import httpx
    from airflow.sdk.execution_time import supervisor

    transport = httpx.ASGITransport(app=supervisor.in_process_api_server().app)
    async with httpx.AsyncClient(transport=transport, base_url="http://in-process.invalid") as client:
        await client.get("/health")


def open_worker() -> None:
    """Make this forked process ready: database connections and an execution API of its own, the DAGs as stored."""
    import gc

    from airflow import settings
    from airflow.models.serialized_dag import SerializedDagModel
    from airflow.sdk.execution_time import supervisor
    from airflow.utils.session import create_session

    global _client  # noqa: PLW0603
    settings.reconfigure_orm()
    _watch_closely(supervisor.ActivitySubprocess)
    _client = supervisor.InProcessTestSupervisor._api_client()  # noqa: SLF001
    with create_session() as session:
        for dag in DAGS:
            stored = session.scalar(SerializedDagModel.latest_item_select_object(dag))
            _dags[dag] = stored.dag
    gc.collect()
    gc.freeze()  # tasks are forked from here: what they share stays shared


def _watch_closely(supervisor: Any) -> None:
    """
    Notice a finished task at once.

    A task's sockets close a moment before its process ends; the supervisor then sleeps until its next heartbeat,
    five seconds later. Airflow's workers can afford that; hundreds of short tasks one after another cannot.
    """
    patient = supervisor._service_subprocess  # noqa: SLF001

    def service(self: Any, max_wait_time: float, **kwargs: Any) -> Any:
        return patient(self, min(max_wait_time, _GLANCE), **kwargs)

    supervisor._service_subprocess = service  # noqa: SLF001


def perform(job: Job) -> Outcome:
    """Make or clear the job's run and see it through; in a worker process."""
    from airflow.utils.session import create_session

    dag = _dags[job.dag_id]
    with create_session() as session:
        run = _clear(session, dag, job) if job.how == "cleared" else _create(session, dag, job)
        run.dag = dag
        session.commit()
        tries, log = 0, ""
        while run.state == "running":
            due = _due(session, run)
            if not due:
                break
            for ti in due:
                tries += 1
                log = _try(session, ti)
                _bury(session, dag, ti)
            session.expire_all()
        return Outcome(job, run.run_id, str(run.state), tries, log)


def run_id_of(job: Job) -> str:
    """The run that a job makes, or clears, as Airflow names it."""
    from airflow.utils.types import DagRunType

    kind = DagRunType.SCHEDULED if job.how in ("scheduled", "cleared") else DagRunType.MANUAL
    return str(kind.generate_run_id(suffix=job.logical_date.isoformat()))


def _create(session: Any, dag: Any, job: Job) -> Any:
    import pendulum
    from airflow.utils.state import DagRunState
    from airflow.utils.types import DagRunTriggeredByType, DagRunType

    scheduled = job.how == "scheduled"
    moment = pendulum.instance(job.logical_date)
    return dag.create_dagrun(
        run_id=run_id_of(job),
        logical_date=moment,
        data_interval=dag.timetable.infer_manual_data_interval(run_after=moment),
        run_after=moment,
        run_type=DagRunType.SCHEDULED if scheduled else DagRunType.MANUAL,
        triggered_by=DagRunTriggeredByType.TIMETABLE if scheduled else DagRunTriggeredByType.REST_API,
        triggering_user_name=None if scheduled else "demo",
        state=DagRunState.RUNNING,
        session=session,
    )


def _clear(session: Any, dag: Any, job: Job) -> Any:
    from airflow.models.dagrun import DagRun
    from airflow.utils.state import DagRunState
    from sqlalchemy import select

    run_id = run_id_of(job)
    dag.clear(run_id=run_id, dag_run_state=DagRunState.RUNNING, session=session)
    session.commit()
    return session.scalars(select(DagRun).where(DagRun.dag_id == dag.dag_id, DagRun.run_id == run_id)).one()


def _due(session: Any, run: Any) -> Sequence[Any]:
    """What the scheduler would queue now. A retry is due at once: nobody wants to wait for its delay here."""
    from airflow.utils.state import TaskInstanceState

    ready, _ = run.update_state(session=session)
    retries = [
        ti
        for ti in run.get_task_instances(session=session)
        if ti.state == TaskInstanceState.UP_FOR_RETRY and ti not in ready
    ]
    due = [*ready, *retries]
    for ti in due:
        ti.try_number += 1
        ti.state = TaskInstanceState.QUEUED
    session.commit()
    return due


def _try(session: Any, ti: Any) -> str:
    """One try of a task in a process of its own; its log."""
    from airflow.configuration import conf
    from airflow.executors import workloads
    from airflow.sdk.execution_time import supervisor

    work = workloads.ExecuteTask.make(
        ti,
        dag_rel_path=Path(FILES[ti.dag_id]),
        bundle_info=workloads.BundleInfo(name=BUNDLE, version=None),
    )
    session.commit()
    supervise = getattr(supervisor, "supervise_task", None) or supervisor.supervise
    supervise(
        ti=work.ti,
        bundle_info=work.bundle_info,
        dag_rel_path=work.dag_rel_path,
        token="",
        client=_client,
        log_path=work.log_path,
    )
    return str(Path(conf.get("logging", "base_log_folder")) / str(work.log_path))


def _bury(session: Any, dag: Any, ti: Any) -> None:
    """A process that ended without a word: the scheduler then decides whether the task is retried or has failed."""
    from airflow.utils.state import TaskInstanceState

    session.expire_all()
    if ti.state == TaskInstanceState.RUNNING:
        ti.task = dag.get_task(ti.task_id)
        ti.handle_failure("The task's process was killed.", session=session)
        session.commit()
