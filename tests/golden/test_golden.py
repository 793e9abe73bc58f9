"""The SQL of each strategy and of each option, on each dialect, as files that people can read and compare."""

from __future__ import annotations

from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from airflow_safe_ops.definition.checks import NoDuplicates, NullShare, RowCount, SqlCheck, Sum
from airflow_safe_ops.definition.scope import TimeScope
from airflow_safe_ops.definition.target import Column
from airflow_safe_ops.plan.load import load_plan
from airflow_safe_ops.plan.model import Recorded
from airflow_safe_ops.sql.postgres import Postgres
from tests.load_tasks import (
    DAY,
    EVERYTHING,
    ODD,
    REFERENCE,
    REGION,
    REGION_AND_NULL,
    WALL_CLOCK,
    WEEK,
    load_task,
)

if TYPE_CHECKING:
    from airflow_safe_ops.definition.scope import Scope
    from airflow_safe_ops.plan.model import LoadTask, Plan, Statement, Step

FILES = Path(__file__).parent
DIALECTS = {"postgresql": Postgres()}

KEY: dict[str, Any] = {"unique_key": ("order_id", "line_no")}
LATEST: dict[str, Any] = {**KEY, "on_duplicates": "keep_latest", "sequence_by": "loaded_at"}
CHECKS: dict[str, Any] = {
    "audits": (RowCount(min=1, max=10), Sum("amount", min=0, where="amount <> 1"), NullShare("amount", max=0.1)),
    "post_checks": (
        NoDuplicates("order_id", "line_no"),
        SqlCheck("SELECT count(*) < :most FROM {relation} WHERE note LIKE '100%'", label="few notes"),
    ),
    "parameters": {"most": 100},
}
BOUND = "SELECT * FROM raw.orders WHERE d >= :partition_start AND d < :partition_end AND kind LIKE 'a%' -- all"
ODD_DAY = TimeScope("Tag der Bestellung", "date", date(2026, 1, 1), date(2026, 1, 2))
WITH_SOURCE = ("order_id", "line_no", "order_date", "loaded_at", "seen_at", "region", "source", "note", "raw")


def delete_insert() -> dict[str, LoadTask]:
    """Each case of delete_insert by its name."""
    new = (Column("colour", "text"),)
    return {
        "day": load_task(sql=BOUND),
        "week_of_instants": load_task(WEEK, sql=BOUND),
        "wall_clock": load_task(WALL_CLOCK),
        "value": load_task(REGION, sql="SELECT order_id, line_no, order_date, amount, :region AS region FROM raw"),
        "value_and_null": load_task(REGION_AND_NULL),
        "whole_table": load_task(EVERYTHING, names=WITH_SOURCE),
        "unique_key": load_task(**KEY),
        "key_with_partition_column": load_task(unique_key=("order_date", "order_id")),
        "keep_latest": load_task(names=WITH_SOURCE, **LATEST),
        "key_moved": load_task(WEEK, on_key_moved="move", **KEY),
        "checks": load_task(**CHECKS),
        "checks_of_a_value": load_task(REGION, **CHECKS),
        "exclusive": load_task(exclusive=True),
        "append_new_columns": load_task(new_columns=new, on_schema_change="append_new_columns"),
        "ignore_columns": load_task(sql=BOUND, drops_columns=True, on_schema_change="ignore"),
        "checksum_off": load_task(checksum="off"),
        "checksum_of_key": load_task(checksum="key", **KEY),
        "checksum_by_bytes": load_task(names=WITH_SOURCE, checksum="full"),
        "nothing_refused": load_task(on_empty="replace", on_unledgered="replace"),
        "deferrable_reference": load_task(foreign_keys=(REFERENCE,)),
        "odd_names": load_task(ODD_DAY, table=ODD, names=('or"der', "100%"), sql="TABLE raw"),
    }


def merge() -> dict[str, LoadTask]:
    """Each case of merge by its name."""
    key: dict[str, Any] = {"strategy": "merge", **KEY}
    only_key: dict[str, Any] = {"strategy": "merge", "unique_key": ("order_id", "order_date")}
    odd: dict[str, Any] = {"strategy": "merge", "unique_key": ('or"der',), "not_matched_by_source": "delete"}
    return {
        "keep": load_task(sql=BOUND, **key),
        "delete": load_task(not_matched_by_source="delete", **key),
        "week_of_instants": load_task(WEEK, **key),
        "value_and_null": load_task(REGION_AND_NULL, not_matched_by_source="delete", **key),
        "whole_table": load_task(EVERYTHING, not_matched_by_source="delete", **key),
        "only_key_columns": load_task(names=("order_id", "order_date"), **only_key),
        "keep_latest": load_task(names=WITH_SOURCE, strategy="merge", **LATEST),
        "key_moved": load_task(REGION, on_key_moved="move", **key),
        "checks": load_task(**key, **CHECKS),
        "odd_names": load_task(ODD_DAY, table=ODD, names=('or"der', "100%"), sql="TABLE raw", **odd),
    }


def append_once() -> dict[str, LoadTask]:
    """Each case of append_once by its name."""
    once: dict[str, Any] = {"strategy": "append_once"}
    by_key: dict[str, Any] = {**once, **KEY, "source_slice": "eu/0001.csv"}
    by_column: dict[str, Any] = {**once, "source_slice": "eu/0001.csv", "source_slice_column": "source"}
    return {
        "day": load_task(sql=BOUND, **once),
        "again": load_task(sql=BOUND, **once),
        "keep_first": load_task(on_changed="skip", **once),
        "adopt": load_task(on_unledgered="adopt", **once),
        "unique_key": load_task(**once, **KEY),
        "slice_by_key": load_task(WEEK, **by_key),
        "slice_by_column": load_task(**by_column),
        "slice_by_column_and_key": load_task(EVERYTHING, **by_column, **KEY, **CHECKS),
        "types_without_hash": load_task(names=WITH_SOURCE, **once),
    }


KNOWN: dict[str, list[Scope]] = {
    "again": [DAY],
    "keep_first": [DAY],
    "unique_key": [DAY],
    "week_of_instants": [
        TimeScope(WEEK.column, WEEK.kind, WEEK.start, WEEK.start.replace(day=4), WEEK.timezone),
        TimeScope(WEEK.column, WEEK.kind, WEEK.start.replace(day=5), WEEK.end, WEEK.timezone),
    ],
}
TASKS = {"delete_insert": delete_insert(), "merge": merge(), "append_once": append_once()}
CASES = [
    (dialect, f"{strategy}__{case}") for dialect in DIALECTS for strategy, cases in TASKS.items() for case in cases
]


@pytest.mark.parametrize(("dialect", "name"), CASES, ids=[f"{dialect}-{name}" for dialect, name in CASES])
def test_golden(dialect: str, name: str, update_golden: bool) -> None:
    strategy, _, case = name.partition("__")
    known = [Recorded(scope.key, scope, row_count=100) for scope in KNOWN.get(case, [])]
    plan = load_plan(TASKS[strategy][case], DIALECTS[dialect].load, known)
    file = FILES / dialect / f"{name}.sql"
    if update_golden:
        file.parent.mkdir(exist_ok=True)
        file.write_text(as_sql(plan), encoding="utf-8")
    assert as_sql(plan) == file.read_text(encoding="utf-8")


@pytest.mark.parametrize("dialect", DIALECTS)
def test_no_golden_file_is_left_over(dialect: str) -> None:
    assert {file.stem for file in (FILES / dialect).iterdir()} == {name for of, name in CASES if of == dialect}


def as_sql(plan: Plan) -> str:
    """Every statement of a plan under its step's name, with its values."""
    task = plan.task
    lines = [f"-- {task.load.strategy} into {task.table.identity}, {task.scope.key}"]
    lines += [f"-- note: {note}" for note in plan.notes]
    for step in plan.steps:
        lines += ["", f"-- {step.name}: {step.what}", *_shown(step)]
        for ask in step.asks:
            lines += [f"-- where a unique index refuses it, {ask.name}: {ask.what}", *_shown(ask)]
    return "\n".join(lines) + "\n"


def _shown(step: Step) -> list[str]:
    lines = [] if step.statement is None else _lines(step.statement)
    return lines if step.sample is None else [*lines, "-- sample:", *_lines(step.sample)]


def _lines(statement: Statement) -> list[str]:
    values = [f"-- :{name} = {value!r}" for name, value in statement.used.items()]
    return [f"{statement};", *values]
