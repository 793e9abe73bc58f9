"""A plan in words and SQL: what the dry run prints is what the run executes."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from airflow_safe_ops.plan.model import Plan, Statement, Step

_INDENT = "        "


def plan_text(plans: Sequence[Plan]) -> str:
    """The plans of one load, a section a partition."""
    return "\n\n".join(_one(plan) for plan in plans)


def plan_data(plans: Sequence[Plan]) -> list[dict[str, Any]]:
    """The plans as plain data."""
    return [
        {
            "target": plan.task.table.identity,
            "partition": plan.task.scope.key,
            "strategy": plan.task.load.strategy,
            "notes": list(plan.notes),
            "steps": [_step_data(step) for step in plan.steps],
        }
        for plan in plans
    ]


def _one(plan: Plan) -> str:
    task = plan.task
    head = f"{task.table.identity}  {task.scope.key}  {task.load.strategy}"
    lines = [head, *(f"  note: {note}" for note in plan.notes)]
    lines.append("   1 claim: wait for loads that overlap, then hold the partition")
    for number, step in enumerate(plan.steps, 2):
        lines.append(f"{number:4d} {step.name}: {step.what}")
        if step.statement is not None:
            lines += [_INDENT + line for line in str(step.statement).splitlines()]
            lines += [f"{_INDENT}:{name} = {value}" for name, value in _values(step.statement).items()]
    return "\n".join(lines)


def _step_data(step: Step) -> dict[str, Any]:
    data: dict[str, Any] = {"name": step.name, "what": step.what}
    if step.statement is not None:
        data |= {"sql": str(step.statement), "binds": _values(step.statement)}
    return data


def _values(statement: Statement) -> dict[str, str]:
    """Values with their types, so that a date and its text can be told apart."""
    return {
        name: f"{json.dumps(value, default=str, ensure_ascii=False)} ({type(value).__name__})"
        for name, value in statement.used.items()
    }
