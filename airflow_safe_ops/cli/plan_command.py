"""``airflow safe-ops plan``."""

from __future__ import annotations

import json
from argparse import Namespace
from typing import Any

from airflow.utils.cli import suppress_logs_and_warning

from airflow_safe_ops.cli.planned_run import PlannedRun, find_dag, find_load, planned_run, rendered
from airflow_safe_ops.cli.shell import fail, speaks
from airflow_safe_ops.errors import SafeOpsError
from airflow_safe_ops.report.plan import error_data, plan_data, plan_text


@suppress_logs_and_warning
@speaks
def plan(args: Namespace) -> None:
    """Print what a run of the task would do now; with nothing written."""
    dag = find_dag(args.dag_id, args.bundle_name)
    task = find_load(dag, args.task_id)
    run = planned_run(dag, args.logical_date, args.conf)
    operator, context = rendered(task, run, args.map_index)
    if args.output == "text":
        print(_head(args, run, operator))
    try:
        plans = operator.plans(context)
    except SafeOpsError as error:
        if args.output == "json":
            print(
                json.dumps({**_facts(args, run, operator), "refused": error_data(error)}, indent=2, ensure_ascii=False)
            )
        fail(f"Refused: {error}")
    if args.output == "json":
        print(json.dumps({**_facts(args, run, operator), "plans": plan_data(plans)}, indent=2, ensure_ascii=False))
    else:
        print(plan_text(plans))


def _head(args: Namespace, run: PlannedRun, operator: Any) -> str:
    index = f"[{args.map_index}]" if args.map_index >= 0 else ""
    return (
        f"Plan of {args.dag_id}.{args.task_id}{index}; nothing is written.\n\n"
        f"run        {run}\nconnection {operator.conn_id}\n"
    )


def _facts(args: Namespace, run: PlannedRun, operator: Any) -> dict[str, Any]:
    dates = ("logical_date", "data_interval_start", "data_interval_end")
    return {
        "dag_id": args.dag_id,
        "task_id": args.task_id,
        "map_index": args.map_index,
        "run_id": run.facts["run_id"],
        "run_exists": run.exists,
        **{name: None if run.facts[name] is None else run.facts[name].isoformat() for name in dates},
        "conn_id": operator.conn_id,
    }
