"""Each rule of the cluster policy on real DAGs, as Airflow's plugin manager asks for it."""

from __future__ import annotations

from typing import Any

import pytest
from airflow.providers.standard.operators.empty import EmptyOperator
from airflow.providers.standard.operators.python import PythonOperator
from airflow.sdk import DAG, Asset
from airflow.utils.types import DagRunType

from airflow_safe_ops import SafeRetryPolicy
from airflow_safe_ops.compat import ALLOWED_RUN_TYPES, RETRY_POLICY, airflow_version, missing
from airflow_safe_ops.policies import review
from airflow_safe_ops.policies.rules import RULES, UnsafeBackfill
from airflow_safe_ops.settings import POLICY_RULES
from tests.unit.policy_world import (
    APPEND,
    START,
    appending,
    apply,
    as_the_scheduler_has_it,
    dag,
    load,
    needs_retry_policy,
    needs_run_types,
    notes,
    only,
    run_types,
    serialized,
    settings,
    sql_task,
    work,
)

EVERY_TYPE = {kind.value for kind in DagRunType}


def test_a_rule_is_a_setting_with_its_reasons() -> None:
    assert {rule.name for rule in RULES} == set(POLICY_RULES)
    assert all(rule.fix.endswith(".") and type(rule).__doc__ for rule in RULES)


@pytest.mark.parametrize("rule", POLICY_RULES)
@pytest.mark.parametrize("mode", ["off", "warn"])
def test_what_does_not_enforce_changes_no_dag(rule: str, mode: str) -> None:
    with dag(catchup=True, max_active_runs=500, start_date=START.replace(microsecond=5)) as made:
        sql_task("DELETE FROM mart.orders", "delete")
        sql_task(APPEND)
        EmptyOperator(task_id="nothing")
        PythonOperator(task_id="work", python_callable=work)
    before = serialized(made)
    with only(rule, mode):
        said = apply(made)
    assert {remark.rule for remark in said} == (set() if mode == "off" else {rule})
    assert all(remark.done == "" for remark in said)
    assert serialized(made) == before


# --- a DAG that is not safe to repeat cannot be backfilled


@needs_run_types
def test_a_dag_that_appends_cannot_be_backfilled() -> None:
    made = appending()
    with only("unsafe_backfill", "enforce"):
        (remark,) = apply(made)
    assert run_types(made) == EVERY_TYPE - {"backfill"}
    assert remark.tasks == ("load",)
    assert "INSERT mart.orders" in remark.what
    assert run_types(as_the_scheduler_has_it(made)) == EVERY_TYPE - {"backfill"}


@needs_run_types
def test_what_the_author_excluded_stays_excluded() -> None:
    made = appending(allowed_run_types=[DagRunType.SCHEDULED, DagRunType.BACKFILL_JOB])
    with only("unsafe_backfill", "enforce"):
        assert len(apply(made)) == 1
        assert run_types(made) == {"scheduled"}
        assert apply(made) == []


@pytest.mark.parametrize(
    "arguments",
    [
        {"schedule": None},
        {"schedule": "@once"},
        {"schedule": [Asset("a")]},
        {"schedule": "@continuous", "max_active_runs": 1},
        {"tags": ["x", "safe_ops:repeatable"]},
        pytest.param({"allowed_run_types": [DagRunType.SCHEDULED, DagRunType.MANUAL]}, marks=needs_run_types),
    ],
    ids=str,
)
def test_what_cannot_be_backfilled_anyway_or_is_declared_repeatable(arguments: dict[str, Any]) -> None:
    made = appending(**arguments)
    before = run_types(made)
    with only("unsafe_backfill", "enforce"):
        assert apply(made) == []
    assert run_types(made) == before


# --- caps


@pytest.mark.parametrize(("given", "kept"), [(17, 5), (6, 5), (5, 5), (1, 1), (0, 0)])
def test_a_dag_has_no_more_runs_than_the_cap(given: int, kept: int) -> None:
    with dag(max_active_runs=given) as made:
        EmptyOperator(task_id="nothing")
    with only("max_active_runs", "enforce", max_active_runs_cap="5"):
        said = apply(made)
    assert made.max_active_runs == kept
    assert [remark.done for remark in said] == ([] if given <= 5 else ["max_active_runs is 5"])


def test_airflows_own_default_is_within_the_cap() -> None:
    with only("max_active_runs", "warn"):
        assert apply(dag()) == []


@pytest.mark.parametrize(
    ("arguments", "kept", "is_said"),
    [
        ({"catchup": True}, 3, True),
        ({"catchup": True, "max_active_runs": 2}, 2, False),
        ({"catchup": True, "max_active_runs": 3}, 3, False),
        ({"catchup": False}, 16, False),
        ({"catchup": True, "schedule": None}, 16, False),
    ],
    ids=str,
)
def test_who_catches_up_has_a_cap(arguments: dict[str, Any], kept: int, is_said: bool) -> None:
    made = dag(**arguments)
    with only("catchup", "enforce"):
        said = apply(made)
    assert (made.max_active_runs, bool(said)) == (kept, is_said)


# --- retries


def retried(made: DAG) -> dict[str, tuple[int | None, bool]]:
    return {one.task_id: (one.retries, isinstance(one.retry_policy, SafeRetryPolicy)) for one in made.tasks}


@needs_retry_policy
def test_tasks_without_retries_get_them_and_the_policy() -> None:
    with dag() as made:
        PythonOperator(task_id="plain", python_callable=work)
        PythonOperator(task_id="some", python_callable=work, retries=5)
        PythonOperator.partial(task_id="mapped", python_callable=work).expand(op_kwargs=[{"a": 1}])
        load()
        EmptyOperator(task_id="nothing")
    with only("retries", "enforce", default_retries="4"):
        (remark,) = apply(made)
    assert set(remark.tasks) == {"plain", "mapped", "ours"}
    assert retried(made)["plain"] == (4, True)
    assert retried(made)["mapped"] == (4, True)
    assert retried(made)["ours"][0] == 4
    assert retried(made)["some"] == (5, False)
    assert retried(made)["nothing"] == (0, False)


@needs_retry_policy
def test_the_policy_reaches_each_instance_of_a_mapped_task() -> None:
    with dag() as made:
        PythonOperator.partial(task_id="mapped", python_callable=work).expand(op_kwargs=[{"a": 1}])
    with only("retries", "enforce"):
        apply(made)
    instance: Any = made.get_task("mapped").unmap({"op_kwargs": {"a": 1}})
    assert instance.retries == 5
    assert isinstance(instance.retry_policy, SafeRetryPolicy)


@needs_retry_policy
def test_what_is_left_alone_is_said() -> None:
    from airflow.sdk.definitions.retry_policy import ExceptionRetryPolicy

    own = ExceptionRetryPolicy(rules=[])
    with dag(default_args={"owner": "x"}) as made:
        PythonOperator(task_id="own", python_callable=work, retry_policy=own)
        PythonOperator(task_id="none", python_callable=work, retries=0)
        sql_task(APPEND)
    with only("retries", "enforce"):
        assert apply(made) == []
        said = {note.tasks: note.what for note in notes(made)}
    assert made.get_task("own").retry_policy is own
    assert [one.retries for one in made.tasks] == [0, 0, 0]
    assert set(said) == {("own",), ("none",), ("load",)}
    assert "retries=0" in said["none",]
    assert "may write twice" in said["load",]


@pytest.mark.parametrize(
    "sql",
    [
        "CALL append_orders('{{ ds }}')",
        "EXEC dbo.append_orders",
        "{{ ti.xcom_pull('make') }}",
        "no_such_file.sql",
        {"sql": "SELECT 1"},
        lambda: "SELECT 1",
        [["SELECT 1"]],
    ],
    ids=str,
)
def test_what_may_write_is_not_retried_by_a_policy(sql: Any) -> None:
    with dag() as made:
        sql_task(sql)
        sql_task(sql, "guarded", pre_execute=marked)
    with only("retries", "enforce"):
        (remark,) = apply(made)
        (note,) = notes(made)
    assert (made.get_task("load").retries, note.tasks) == (0, ("load",))
    assert "may write, which cannot be told" in note.what
    assert remark.tasks == ("guarded",)


def marked(_: Any) -> None: ...


marked.__safe_ops_guard__ = True  # type: ignore[attr-defined]


def test_retries_0_in_default_args_counts_as_said() -> None:
    with dag(default_args={"retries": 0}) as made:
        PythonOperator(task_id="plain", python_callable=work)
        PythonOperator.partial(task_id="mapped", python_callable=work).expand(op_kwargs=[{"a": 1}])
    with only("retries", "enforce"):
        assert apply(made) == []
    assert [one.retries for one in made.tasks] == [0, 0]


# --- exceptions, and what goes wrong


def test_what_is_enforced_is_the_same_at_each_parse() -> None:
    """Else each parse would make a version of the DAG."""

    def parsed() -> dict[str, Any]:
        with appending(max_active_runs=50, catchup=True) as made:
            PythonOperator(task_id="plain", python_callable=work)
            PythonOperator.partial(task_id="mapped", python_callable=work).expand(op_kwargs=[{"a": 1}])
        with settings(**{f"policy_{rule}": "enforce" for rule in POLICY_RULES}):
            assert {remark.rule for remark in apply(made)} >= {"unsafe_backfill", "catchup", "retries"}
        return serialized(made)

    assert parsed() == parsed()


@needs_run_types
def test_an_exception_by_tag_leaves_a_dag_out_with_its_reason() -> None:
    exceptions = '[{"tag": "legacy", "rules": ["unsafe_backfill"], "reason": "50 % done, merges in March"}]'
    legacy, other = appending("legacy", tags=["legacy"], max_active_runs=50), appending("other", tags=["new"])
    with settings(policy_unsafe_backfill="enforce", policy_max_active_runs="enforce", policy_exceptions=exceptions):
        said = apply(legacy)
        (note,) = [note for note in notes(legacy) if note.rule == "unsafe_backfill"]
        assert any(remark.rule == "unsafe_backfill" for remark in apply(other))
    assert (run_types(legacy), legacy.max_active_runs) == (None, 16)
    assert {remark.rule for remark in said} == {"max_active_runs"}
    assert "50 % done, merges in March" in note.what
    assert run_types(other) == EVERY_TYPE - {"backfill"}


@pytest.mark.parametrize("version", [(3, 1), pytest.param((3, 2), marks=needs_run_types)])
def test_what_an_older_airflow_cannot_enforce_is_warned_of(
    version: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("airflow_safe_ops.compat.airflow_version", lambda: version)
    made = appending(max_active_runs=50)
    with made:
        PythonOperator(task_id="plain", python_callable=work)
    with settings(**{f"policy_{rule}": "enforce" for rule in POLICY_RULES}):
        said = {remark.rule: remark for remark in apply(made)}
    assert made.max_active_runs == 16
    assert made.get_task("plain").retries == 0
    assert "Only warned of" in said["retries"].fix
    assert (run_types(made) is None) is (version == (3, 1))
    assert ("Only warned of" in said["unsafe_backfill"].fix) is (version == (3, 1))


def test_what_is_missing_is_in_one_place() -> None:
    assert airflow_version() >= (3, 1)
    assert missing() == tuple(f for f in (ALLOWED_RUN_TYPES, RETRY_POLICY) if airflow_version() < f.since)


def test_a_rule_that_fails_leaves_the_others_and_the_dag(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any) -> Any:
        raise RuntimeError("a fault of ours")

    monkeypatch.setattr(UnsafeBackfill, "look", broken)
    made = appending(max_active_runs=50)
    with settings(policy_unsafe_backfill="enforce", policy_max_active_runs="enforce"):
        said = apply(made)
    assert run_types(made) is None
    assert made.max_active_runs == 16
    assert "max_active_runs" in {remark.rule for remark in said}
    (failed,) = [remark for remark in said if remark.rule == "unsafe_backfill"]
    assert "RuntimeError: a fault of ours" in failed.what


@pytest.mark.parametrize("odd", [None, object(), "a DAG", type("Odd", (), {"tasks": [object()], "dag_id": "odd"})()])
def test_an_object_that_is_no_dag_goes_through(odd: object) -> None:
    with settings(**{f"policy_{rule}": "enforce" for rule in POLICY_RULES}):
        assert [remark for remark in apply(odd) if remark.done] == []


def test_settings_that_cannot_be_read_let_the_dag_through(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(review, "policy_settings", lambda: 1 / 0)
    made = appending()
    assert apply(made) == []
    assert run_types(made) is None


def test_a_tasks_own_process_keeps_its_log_free_of_it(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    from airflow.sdk import get_parsing_context
    from airflow.settings import dag_policy

    monkeypatch.setenv("_AIRFLOW_PARSING_CONTEXT_TASK_ID", "load")
    assert get_parsing_context().task_id == "load"
    with settings(policy_unsafe_backfill="warn", policy_max_active_runs="no"):
        dag_policy(appending("quiet"))
    assert [record for record in caplog.records if record.levelname in ("WARNING", "ERROR")] == []


def test_a_warning_is_said_once_in_a_process(caplog: pytest.LogCaptureFixture) -> None:
    from airflow.settings import dag_policy

    with only("unsafe_backfill", "warn"):
        for _ in range(3):
            dag_policy(appending("once"))
            dag_policy(appending("twice"))
    lines = [record.getMessage() for record in caplog.records if record.name == review.__name__]
    assert len(lines) == 2
    assert all("\n" not in line for line in lines)
    assert all(words in lines[0] for words in ("unsafe_backfill", "DAG once", "tasks load", "IdempotentLoadOperator"))
