"""The order of a plan: whatever can refuse comes before whatever writes, and data and ledger commit last."""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING, Any

import pytest

from airflow_safe_ops.definition.checks import RowCount, SqlCheck
from airflow_safe_ops.definition.scope import TableScope, ValueScope
from airflow_safe_ops.definition.target import Column, ForeignKey
from airflow_safe_ops.errors import CascadeForeignKey
from airflow_safe_ops.plan.load import can_move, load_plan, unknown_parts
from airflow_safe_ops.plan.model import Recorded, Statement, bind
from airflow_safe_ops.sql.postgres import PostgresLoadSql
from tests.load_tasks import DAY, EVERYTHING, REFERENCE, REGION, WEEK, load_task

if TYPE_CHECKING:
    from airflow_safe_ops.definition.scope import Scope
    from airflow_safe_ops.plan.model import LoadTask, Plan

WRITES = ("target.delete_moved", "target.delete", "target.update", "target.insert")
AFTER = ("target.count", "post_check.", "target.constraints", "ledger.publish", "commit")
CHECKS: dict[str, Any] = {"audits": (RowCount(), SqlCheck("SELECT true")), "post_checks": (RowCount(),)}
KEY: dict[str, Any] = {"unique_key": ("order_id", "line_no")}
LATEST: dict[str, Any] = {**KEY, "on_duplicates": "keep_latest", "sequence_by": "amount"}
STRATEGIES: list[dict[str, Any]] = [
    {"strategy": "delete_insert"},
    {"strategy": "delete_insert", **KEY, "on_key_moved": "move"},
    {"strategy": "delete_insert", **LATEST},
    {"strategy": "merge", **KEY},
    {"strategy": "merge", **KEY, "not_matched_by_source": "delete", "on_key_moved": "move"},
    {"strategy": "merge", **LATEST},
]
SCOPES = [DAY, WEEK, REGION, EVERYTHING]
EXTRAS: list[dict[str, Any]] = [
    {},
    CHECKS,
    {**CHECKS, "exclusive": True, "foreign_keys": (REFERENCE,)},
    {"new_columns": (Column("colour", "text"),)},
]


ALL = list(product(SCOPES, STRATEGIES, EXTRAS))


def plan(task: LoadTask, known: tuple[Scope, ...] = ()) -> Plan:
    return load_plan(task, PostgresLoadSql(), [Recorded(scope.key, scope) for scope in known])


def names(made: Plan) -> list[str]:
    return [step.name for step in made.steps]


@pytest.mark.parametrize(("scope", "strategy", "extra"), ALL)
def test_nothing_is_written_before_everything_was_looked_at(
    scope: Scope, strategy: dict[str, Any], extra: dict[str, Any]
) -> None:
    made = plan(load_task(scope, **strategy, **extra))
    found = names(made)
    assert len(set(found)) == len(found)
    first, last = (found.index(next(n for n in order if n in WRITES)) for order in (found, found[::-1]))
    assert all(name in WRITES for name in found[first : last + 1])
    assert [n for n in found[last + 1 :] if not n.startswith(AFTER)] == []
    refusing = [step.name for step in made.steps[first:] if step.refusals]
    assert [name for name in refusing if not name.startswith(AFTER)] == []
    assert found[-2:] == ["ledger.publish", "commit"]


@pytest.mark.parametrize(("scope", "strategy", "extra"), ALL)
def test_only_the_writing_steps_name_the_target_as_what_they_write(
    scope: Scope, strategy: dict[str, Any], extra: dict[str, Any]
) -> None:
    made = plan(load_task(scope, **strategy, **extra))
    verbs = ("DELETE FROM", "INSERT INTO", "UPDATE", "TRUNCATE", "ALTER TABLE", "MERGE INTO")
    writing = {s.name for s in made.steps if s.statement and s.statement.text.startswith(verbs)}
    on_target = {n for n in writing if any(f'{verb} "mart"' in str(statement(made, n)) for verb in verbs)}
    assert on_target - {"target.add_column"} == set(WRITES) & set(names(made))
    assert all(s.statement is None or s.statement.used.keys() <= s.statement.binds.keys() for s in made.steps)


def statement(made: Plan, name: str) -> Statement:
    found = next(step.statement for step in made.steps if step.name == name)
    assert found is not None
    return found


def test_the_order_of_a_whole_load() -> None:
    merge = {"strategy": "merge", **LATEST, "on_key_moved": "move", "not_matched_by_source": "delete"}
    task = load_task(WEEK, **merge, **EXTRAS[2], new_columns=EXTRAS[3]["new_columns"])
    assert names(plan(task)) == [
        "claim.hold",
        "target.lock",
        "target.defer",
        "target.add_column",
        "stage.create",
        "stage.fill",
        "stage.ties",
        "stage.keep_latest",
        "stage.look",
        "target.look",
        "stage.unique",
        "stage.analyze",
        "target.moved",
        "audit.0",
        "audit.1",
        "audit.judge",
        "target.delete_moved",
        "target.delete",
        "target.update",
        "target.insert",
        "target.constraints",
        "target.count",
        "post_check.0",
        "post_check.judge",
        "ledger.publish",
        "commit",
    ]


def test_without_a_key_nothing_is_asked_about_keys() -> None:
    assert not {"stage.unique", "target.moved", "stage.ties"} & set(names(plan(load_task())))


def test_the_authors_sql_runs_read_only() -> None:
    made = plan(load_task(**CHECKS))
    assert {s.name for s in made.steps if s.reads_only} == {"stage.fill", "audit.0", "audit.1", "post_check.0"}


def test_what_is_declared_away_is_not_refused() -> None:
    guarded = {s.name: len(s.refusals) for s in plan(load_task()).steps}
    free = {s.name: len(s.refusals) for s in plan(load_task(on_empty="replace", on_unledgered="replace")).steps}
    assert (guarded["target.look"], free["target.look"]) == (2, 0)
    moved = plan(load_task(WEEK, **KEY, on_key_moved="move"))
    assert next(s for s in moved.steps if s.name == "target.moved").refusals == ()


@pytest.mark.parametrize("rule", ["CASCADE", "SET NULL", "SET DEFAULT"])
def test_a_foreign_key_that_would_take_children_refuses_a_delete(rule: str) -> None:
    reference = (ForeignKey("fk", '"lines"', rule, deferrable=True),)
    with pytest.raises(
        CascadeForeignKey, match=r'^SO-305 "lines" points at "mart"\."orders" with ON DELETE'
    ) as refused:
        plan(load_task(foreign_keys=reference))
    assert refused.value.facts == {"child": '"lines"', "constraint": "fk"}
    assert plan(load_task(strategy="merge", **KEY, foreign_keys=reference)).steps
    deletes: list[dict[str, Any]] = [{"not_matched_by_source": "delete"}, {"on_key_moved": "move"}]
    for deleting in deletes:
        with pytest.raises(CascadeForeignKey):
            plan(load_task(strategy="merge", **KEY, **deleting, foreign_keys=reference))


def test_a_merge_of_keys_alone_updates_nothing() -> None:
    task = load_task(DAY, names=("order_id",), strategy="merge", unique_key=("order_id", "order_date"))
    assert "target.update" not in names(plan(task))


@pytest.mark.parametrize(
    ("scope", "key", "expected"),
    [
        (DAY, ("order_id",), True),
        (DAY, ("order_id", "order_date"), False),
        (EVERYTHING, ("order_id",), False),
        (REGION, ("order_id",), True),
        (REGION, ("region", "order_id"), False),
    ],
)
def test_whether_a_key_can_stand_in_two_partitions(scope: Scope, key: tuple[str, ...], expected: bool) -> None:
    assert can_move(load_task(scope, unique_key=key)) is expected


def test_unknown_parts() -> None:
    half = WEEK.__class__(WEEK.column, WEEK.kind, WEEK.start, WEEK.start.replace(day=5), WEEK.timezone)
    rest = WEEK.__class__(WEEK.column, WEEK.kind, half.end, WEEK.end, WEEK.timezone)
    assert unknown_parts(WEEK, []) == [WEEK]
    assert unknown_parts(WEEK, [half]) == [rest]
    assert unknown_parts(WEEK, [rest, half]) == []
    assert unknown_parts(WEEK, [WEEK]) == []
    assert unknown_parts(WEEK, [TableScope()]) == []
    assert unknown_parts(WEEK, [REGION]) == [WEEK]
    assert unknown_parts(REGION, [REGION]) == []
    assert unknown_parts(REGION, [ValueScope((("region", "EU"), ("source", "shop")))]) == [REGION]
    assert unknown_parts(EVERYTHING, [WEEK, REGION]) == [EVERYTHING]


def test_a_known_partition_is_not_asked_for_foreign_rows() -> None:
    asked = statement(plan(load_task(DAY), (DAY,)), "target.look")
    assert str(asked).endswith("FALSE AS unledgered")
    assert "part0_start" in statement(plan(load_task(DAY)), "target.look").used


def test_notes_say_what_the_plan_cannot_promise() -> None:
    assert any("no unique index on (order_id)" in note for note in plan(load_task(unique_key=("order_id",))).notes)
    assert plan(load_task(**KEY)).notes == ()
    assert any("no hash: raw" in note for note in plan(load_task(names=("order_id", "raw"))).notes)
    assert plan(load_task(names=("order_id", "raw"), checksum="off")).notes == ()


def test_a_statement_knows_the_values_it_uses() -> None:
    made = Statement(f"SELECT {bind('a')}, {bind('b')} + {bind('a')} -- :c", {"a": 1, "b": 2, "c": 3})
    assert made.used == {"a": 1, "b": 2}
    assert str(made) == "SELECT :a, :b + :a -- :c"
    assert list(Statement("SELECT 1").pieces()) == [("SELECT 1", None)]
    with pytest.raises(KeyError):
        _ = Statement(bind("missing")).used
