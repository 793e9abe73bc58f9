"""A task with its templates rendered for a run that need not exist; nothing is written, not even by Airflow."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import islice
from typing import TYPE_CHECKING, Any

from airflow_safe_ops.errors import InvalidArgument, SafeOpsError

if TYPE_CHECKING:
    from airflow_safe_ops.operators.load import IdempotentLoadOperator

_CONF_EXAMPLE = """Write for example --conf '{"region": "EU"}'."""


@dataclass(frozen=True)
class PlannedRun:
    """
    The run that a plan is made for.

    :param facts: the run as Airflow's task context has it.
    :param exists: whether Airflow knows it already.
    """

    facts: Mapping[str, Any]
    exists: bool

    def __str__(self) -> str:
        name = f"{self.facts['run_id']} ({'exists' if self.exists else 'does not exist yet'})"
        start, end = self.facts["data_interval_start"], self.facts["data_interval_end"]
        return name if start is None else f"{name}\ninterval   {start.isoformat()} .. {end.isoformat()}"


def find_dag(dag_id: str, bundle_names: Sequence[str] | None) -> Any:
    """
    Parse the bundles for one DAG, as ``airflow tasks render`` does, but register nothing.

    :raises InvalidArgument: it is not there, or its file does not parse.
    """
    broken: dict[str, str] = {}
    for bag in parsed_bundles(dag_id, bundle_names):
        if dag_id in bag.dags:
            return bag.dags[dag_id]
        broken |= bag.import_errors
    files = "; ".join(f"{file}: {error.strip().rpartition(chr(10))[2]}" for file, error in broken.items())
    raise InvalidArgument(
        f"There is no Dag {dag_id!r}.",
        why=f"These files do not parse: {files}." if files else "",
        fix="`airflow dags list` shows those that are there.",
    )


def parsed_bundles(dag_id: str | None, bundle_names: Sequence[str] | None) -> Iterator[Any]:
    """
    Parse the bundles, one after the other.

    :param dag_id: the DAG that is wanted, for files that look at the parsing context; None: all.
    :param bundle_names: only these; none: all.
    """
    from airflow.dag_processing.bundles.manager import DagBundlesManager
    from airflow.sdk.definitions._internal.dag_parsing_context import _airflow_parsing_context_manager

    dag_bag = _bundle_dag_bag()
    for bundle in DagBundlesManager().get_all_dag_bundles():
        if bundle_names and bundle.name not in bundle_names:
            continue
        bundle.initialize()
        with _airflow_parsing_context_manager(dag_id=dag_id):
            bag = dag_bag(dag_folder=bundle.path, bundle_path=bundle.path)
        yield bag


def _bundle_dag_bag() -> Any:
    """The class that parses a bundle, where this Airflow has it."""
    try:
        from airflow.dag_processing.dagbag import BundleDagBag
    except ImportError:  # Airflow 3.1
        from airflow.models import dagbag

        return getattr(dagbag, "BundleDagBag", None) or dagbag.DagBag
    return BundleDagBag


def find_load(dag: Any, task_id: str) -> Any:
    """
    The task, which has to be an IdempotentLoadOperator, mapped or not.

    :raises InvalidArgument: it is not there, or another operator.
    """
    from airflow_safe_ops.operators.load import IdempotentLoadOperator

    loads = [t.task_id for t in dag.tasks if issubclass(_class_of(t), IdempotentLoadOperator)]
    others = f"Load tasks of {dag.dag_id}: {', '.join(loads) or 'none'}."
    if task_id not in dag.task_ids:
        raise InvalidArgument(f"Dag {dag.dag_id!r} has no task {task_id!r}.", why=others, fix="Name one of these.")
    task = dag.get_task(task_id)
    if task_id not in loads:
        kind = _class_of(task).__name__
        raise InvalidArgument(
            f"Task {task_id!r} is of {kind}, not of IdempotentLoadOperator.", why=others, fix="Name one of these."
        )
    return task


def planned_run(dag: Any, logical_date: datetime | None, conf: str | None) -> PlannedRun:
    """
    The run of that date: the one that exists, else the scheduled one, else a manual one.

    :param conf: the run's conf as JSON, instead of its own.
    """
    given = _conf(conf)
    found = _existing(dag.dag_id, logical_date) if logical_date else None
    facts = found or _imagined(dag, logical_date)
    return PlannedRun(facts if conf is None else {**facts, "conf": given}, found is not None)


def rendered(task: Any, run: PlannedRun, map_index: int) -> tuple[IdempotentLoadOperator, Any]:
    """
    The operator with its templates rendered, and its context.

    :raises InvalidArgument: a template needs what only a real run has, or the map index does not fit.
    """
    is_mapped = _is_mapped(task)
    if is_mapped and map_index < 0:
        raise InvalidArgument(f"Task {task.task_id!r} is mapped.", fix="Name one of its instances: --map-index 0.")
    if not is_mapped and map_index >= 0:
        raise InvalidArgument(f"Task {task.task_id!r} is not mapped.", fix="Leave --map-index out.")
    try:
        context = _context(task, run, map_index)
        task.render_template_fields(context)
    except SafeOpsError:
        raise
    except Exception as error:
        raise InvalidArgument(
            f"The templates of {task.task_id!r} cannot be rendered: {type(error).__name__}: {error}.",
            why="A plan knows what the Dag's file, --logical-date and --conf give; XComs belong to a run.",
            fix="Declare dry_run=True on the task: a real run then logs its plan and writes nothing.",
        ) from error
    return context["task"], context


def _is_mapped(task: Any) -> bool:
    from airflow.sdk.definitions.mappedoperator import MappedOperator

    return isinstance(task, MappedOperator)


def _class_of(task: Any) -> type:
    found = task.operator_class if _is_mapped(task) else type(task)
    return found if isinstance(found, type) else type(task)


def _conf(text: str | None) -> dict[str, Any]:
    try:
        conf = json.loads(text or "{}")
    except ValueError as error:
        raise InvalidArgument(f"--conf is no JSON: {error}.", fix=_CONF_EXAMPLE) from error
    if not isinstance(conf, dict):
        raise InvalidArgument("--conf is no JSON object.", fix=_CONF_EXAMPLE)
    return conf


def _existing(dag_id: str, logical_date: datetime) -> dict[str, Any] | None:
    """The run as Airflow's database has it; None where there is no such run, or no such database."""
    from airflow.models.dagrun import DagRun
    from airflow.sdk.api.datamodels._generated import DagRun as RunFacts
    from airflow.utils.session import create_session
    from sqlalchemy import select
    from sqlalchemy.exc import DBAPIError

    try:
        with create_session() as session:
            query = select(DagRun).where(DagRun.dag_id == dag_id, DagRun.logical_date == logical_date)
            found = session.scalars(query).one_or_none()
            names = set(RunFacts.model_fields) - {"consumed_asset_events", "note", "team_name"}
            return None if found is None else {n: getattr(found, n) for n in names if hasattr(found, n)}
    except DBAPIError:
        return None


def _imagined(dag: Any, logical_date: datetime | None) -> dict[str, Any]:
    """The run that the scheduler makes for this date, else the one that a trigger makes."""
    interval, run_after, run_type = None, logical_date or datetime.now(UTC), "manual"
    if logical_date is not None:
        scheduler_dag = _serialized(dag)
        infos = islice(scheduler_dag.iter_dagrun_infos_between(logical_date, logical_date), 3)
        scheduled = next((info for info in infos if info.logical_date == logical_date), None)
        if scheduled is not None:
            interval, run_after, run_type = scheduled.data_interval, scheduled.run_after, "scheduled"
        else:
            interval = _manual_interval(scheduler_dag, logical_date)
    return {
        "dag_id": dag.dag_id,
        "run_id": f"{run_type}__{(logical_date or run_after).isoformat()}",
        "logical_date": logical_date,
        "data_interval_start": interval and interval.start,
        "data_interval_end": interval and interval.end,
        "run_after": run_after,
        "run_type": run_type,
    }


def _manual_interval(scheduler_dag: Any, logical_date: datetime) -> Any:
    import pendulum

    try:
        return scheduler_dag.timetable.infer_manual_data_interval(run_after=pendulum.instance(logical_date))
    except NotImplementedError:
        return None


def _serialized(dag: Any) -> Any:
    """The DAG as the scheduler has it: with timetables that can compute."""
    try:
        from airflow.serialization.serialized_objects import DagSerialization
    except ImportError:  # Airflow 3.1
        from airflow.serialization.serialized_objects import SerializedDAG  # type: ignore[attr-defined]

        return SerializedDAG.from_dict(SerializedDAG.to_dict(dag))  # type: ignore[attr-defined]
    return DagSerialization.from_dict(DagSerialization.to_dict(dag))


def _context(task: Any, run: PlannedRun, map_index: int) -> Any:
    """The context that the task runner would build, from a run that is here alone."""
    from airflow.sdk.api.datamodels._generated import DagRun, TIRunContext
    from airflow.sdk.execution_time.task_runner import RuntimeTaskInstance

    blank = dict.fromkeys(DagRun.model_fields) | {"consumed_asset_events": [], "clear_number": 0}
    facts = {**blank, "start_date": datetime.now(UTC), "state": "running", **run.facts}
    facts["start_date"] = facts["start_date"] or datetime.now(UTC)
    ti = RuntimeTaskInstance.model_construct(
        id=uuid.uuid4(),
        task_id=task.task_id,
        dag_id=task.dag_id,
        run_id=run.facts["run_id"],
        try_number=1,
        map_index=map_index,
        dag_version_id=uuid.uuid4(),
        max_tries=task.retries,
        start_date=datetime.now(UTC),
        task=task,
        _ti_context_from_server=TIRunContext(dag_run=DagRun.model_validate(facts), max_tries=task.retries),
    )
    return ti.get_template_context()
