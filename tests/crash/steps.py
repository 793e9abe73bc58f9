"""The names of all steps that a plan can have, so that none is added which no process was killed at."""

from __future__ import annotations

import ast
import importlib
import inspect
import pkgutil
from contextlib import suppress
from itertools import product
from types import ModuleType
from typing import Any

import airflow_safe_ops.plan
from airflow_safe_ops.definition.checks import RowCount, SqlCheck
from airflow_safe_ops.definition.load import CHOICES
from airflow_safe_ops.definition.target import Column
from airflow_safe_ops.errors import InvalidArgument
from airflow_safe_ops.plan.load import load_plan
from airflow_safe_ops.sql.postgres import PostgresLoadSql
from tests.load_tasks import DAY, EVERYTHING, ORDERS, REFERENCE, load_task

_CHECKS = (RowCount(), SqlCheck("SELECT true"))
_TABLES: list[dict[str, Any]] = [
    {},
    {"names": ("order_id", "order_date", "amount"), "unique_key": ("order_id",)},  # no index keeps it unique
    {"foreign_keys": (REFERENCE,), "new_columns": (Column("colour", "text"),)},
]
# Taken only to say why another step was refused: nothing is written any more.
_AFTER_A_REFUSAL = {"target.copies"}
# What these choose has no step of its own: guards, counts and columns.
_NO_STEPS = ("on_empty", "on_unledgered", "checksum", "on_schema_change")
_PARTS = {"phase": "audit", "n": 0}


def every_step() -> set[str]:
    """
    The names of the steps of all plans, over every choice that an author has.

    Each place in the code that makes a step has to be met, or the plans were not all.
    """
    found = _steps_of_plans()
    for step in _steps_in_the_code() - _AFTER_A_REFUSAL:
        assert step in found, f"no plan here has the step {step}"
    return found


def _steps_of_plans() -> set[str]:
    choices = {name: values for name, values in CHOICES.items() if name not in _NO_STEPS}
    found: set[str] = set()
    parts: list[Any] = [*choices.values(), (False, True), ((), _CHECKS), _TABLES, (DAY, EVERYTHING)]
    for chosen in product(*parts):
        words, (exclusive, checks, table, scope) = chosen[:-4], chosen[-4:]
        declared: dict[str, Any] = {
            "table": ORDERS,
            "unique_key": ("order_id", "line_no"),
            "sequence_by": "amount",
            "audits": checks,
            "post_checks": checks,
            "exclusive": exclusive,
            **dict(zip(choices, words, strict=True)),
            **table,
        }
        with suppress(InvalidArgument):
            found |= {step.name for step in load_plan(load_task(scope, **declared), PostgresLoadSql(), ()).steps}
    return found


def _steps_in_the_code() -> set[str]:
    """What each ``Step(...)`` in the room of plans is called."""
    found = set()
    for room in pkgutil.iter_modules(airflow_safe_ops.plan.__path__):
        module = importlib.import_module(f"airflow_safe_ops.plan.{room.name}")
        for node in ast.walk(ast.parse(inspect.getsource(module))):
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "Step":
                found.add(_name(node.args[0], module))
    return found


def _name(given: ast.expr, module: ModuleType) -> str:
    """A text, a constant's name, or a text with parts of which examples are known."""
    return str(eval(ast.unparse(given), {**vars(module), **_PARTS}))  # noqa: S307 - our own source
