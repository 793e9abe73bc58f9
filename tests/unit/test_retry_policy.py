"""SafeRetryPolicy: how often and how soon each class is tried again, and what a task says of it."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import psycopg
import pytest
from airflow.providers.common.compat.sdk import DAG

from airflow_safe_ops import IdempotentLoadOperator, Retries, SafeRetryPolicy, TimePartition
from airflow_safe_ops.errors import (
    ClaimTimeout,
    EmptySource,
    FailureClass,
    InvalidRetryPolicy,
    PostCheckFailed,
)
from airflow_safe_ops.failures.retries import DEFAULTS, NEVER_RETRIED, told

sdk: Any = pytest.importorskip("airflow.sdk.definitions.retry_policy", reason="Airflow has them since 3.3")
ExceptionRetryPolicy, RetryAction = sdk.ExceptionRetryPolicy, sdk.RetryAction
SECOND = timedelta(seconds=1)
RESET = ConnectionResetError(104, "reset")
DEADLOCK = psycopg.errors.DeadlockDetected("deadlock detected")
DENIED = psycopg.errors.InsufficientPrivilege("permission denied")


class Store(dict[str, Any]):
    """A task's state store: JSON only."""

    def set(self, key: str, value: Any) -> None:
        self[key] = json.loads(json.dumps(value))


class Run:
    """The tries of one task in one run, as the task runner asks the policy about them."""

    def __init__(self, policy: SafeRetryPolicy, retries: int = 9, *, store: Store | None = None) -> None:
        self.policy, self.retries, self.store = policy, retries, store
        self.try_number, self.max_tries, self.clears = 0, retries, 0
        self.began = datetime.now(UTC)

    def fails(self, error: BaseException, *, after: timedelta = timedelta()) -> Any:
        """The next try fails: what the policy says."""
        self.try_number += 1
        task = SimpleNamespace(retries=self.retries)
        facts = {"dag_id": "d", "task_id": "t", "run_id": "r", "map_index": -1}
        ti = SimpleNamespace(**facts, task=task, try_number=self.try_number, start_date=self.began - after)
        context: dict[str, Any] = {"ti": ti, "dag_run": SimpleNamespace(clear_number=self.clears)}
        if self.store is not None:
            context["task_state_store"] = self.store
        return self.policy.evaluate(error, self.try_number, self.max_tries, context)

    def dies(self) -> None:
        """The next try is killed: nobody asks the policy."""
        self.try_number += 1

    def is_cleared(self) -> None:
        """Somebody clears the task."""
        self.clears += 1
        self.max_tries = self.try_number + self.retries


def actions(run: Run, error: BaseException, tries: int) -> list[str]:
    return [run.fails(error).action.value for _ in range(tries)]


@pytest.mark.parametrize("failure", NEVER_RETRIED)
def test_what_a_person_has_to_heal_is_never_retried(failure: FailureClass) -> None:
    """apache/airflow#26761: a mismatch is not retried like a network fault."""
    error = {
        FailureClass.PERMISSION: DENIED,
        FailureClass.CONTRACT: psycopg.errors.UndefinedTable("x"),
        FailureClass.DATA: PostCheckFailed("counts differ"),
    }[failure]
    decision = Run(SafeRetryPolicy()).fails(error)
    assert decision.action is RetryAction.FAIL
    assert decision.retry_delay is None
    assert str(failure).capitalize() in decision.reason


def test_late_input_is_waited_for_not_tried_against() -> None:
    assert Run(SafeRetryPolicy()).fails(EmptySource("x")).action is RetryAction.FAIL
    patient = SafeRetryPolicy(late_input=Retries(tries=3, delay=SECOND))
    assert actions(Run(patient), EmptySource("x"), 3) == ["retry", "retry", "fail"]


@pytest.mark.parametrize("store", [True, False], ids=["store", "no store"])
@pytest.mark.parametrize("error", [RESET, DEADLOCK, ClaimTimeout("x"), MemoryError()], ids=repr)
def test_what_may_heal_is_tried_as_often_as_its_class_says(error: BaseException, store: bool) -> None:
    """apache/airflow#1978: a deadlock repeats the whole unit."""
    run = Run(SafeRetryPolicy(), store=Store() if store else None)
    tries = DEFAULTS[FailureClass.TRANSIENT if error is RESET else run_class(error)].tries
    assert actions(run, error, tries) == ["retry"] * (tries - 1) + ["fail"]


def run_class(error: BaseException) -> FailureClass:
    return FailureClass.RESOURCE if isinstance(error, MemoryError) else FailureClass.CONTENTION


def test_delays_grow_up_to_the_longest() -> None:
    how = Retries(tries=9, delay=2 * SECOND, growth=3, longest=30 * SECOND, jitter=0)
    run = Run(SafeRetryPolicy(transient=how), store=Store())
    delays = [run.fails(RESET).retry_delay.total_seconds() for _ in range(5)]
    assert delays == [2, 6, 18, 30, 30]
    assert replace(how, tries=1000, growth=100.0).before(999, 0.5) == 30 * SECOND
    assert replace(how, jitter=0.9).before(9, 1.0) == 30 * SECOND


def test_jitter_is_the_same_for_one_try_and_another_for_the_next() -> None:
    how = Retries(tries=9, delay=100 * SECOND, growth=1, longest=200 * SECOND, jitter=0.2)
    first, again = (Run(SafeRetryPolicy(transient=how), store=Store()) for _ in range(2))
    delays = [first.fails(RESET).retry_delay.total_seconds() for _ in range(5)]
    assert delays == [again.fails(RESET).retry_delay.total_seconds() for _ in range(5)]
    assert len(set(delays)) == 5
    assert all(80 <= delay <= 120 for delay in delays)


def test_a_server_that_says_how_long_is_believed() -> None:
    request = httpx.Request("GET", "http://x")
    busy = httpx.Response(429, headers={"Retry-After": "7"}, request=request)
    error = httpx.HTTPStatusError("429", request=request, response=busy)
    decision = Run(SafeRetryPolicy()).fails(error)
    assert decision.retry_delay == 7 * SECOND
    assert "as the server asks" in decision.reason
    late = httpx.Response(429, headers={"Retry-After": "999999"}, request=request)
    error = httpx.HTTPStatusError("429", request=request, response=late)
    assert Run(SafeRetryPolicy()).fails(error).action is RetryAction.FAIL


@pytest.mark.parametrize("store", [True, False], ids=["store", "no store"])
def test_the_total_counts_from_the_first_try(store: bool) -> None:
    run = Run(SafeRetryPolicy(total=timedelta(hours=1)), store=Store() if store else None)
    assert run.fails(RESET, after=timedelta(minutes=58)).action is RetryAction.RETRY
    decision = run.fails(RESET, after=timedelta(0) if store else timedelta(minutes=60))
    assert decision.action is RetryAction.RETRY if store else RetryAction.FAIL
    if store:
        kept = run.store["safe_ops_retries"]  # type: ignore[index]
        kept["began"] = (datetime.now(UTC) - timedelta(minutes=61)).isoformat()
        decision = run.fails(RESET)
    assert decision.action is RetryAction.FAIL
    assert "in total" in decision.reason


def test_each_class_has_tries_of_its_own() -> None:
    run = Run(SafeRetryPolicy(transient=Retries(tries=2, delay=SECOND)), store=Store())
    assert run.fails(DEADLOCK).action is RetryAction.RETRY
    assert run.fails(RESET).action is RetryAction.RETRY
    assert run.fails(DEADLOCK).action is RetryAction.RETRY
    assert run.fails(RESET).action is RetryAction.FAIL


def test_a_death_that_nobody_saw_uses_up_no_try_of_a_class() -> None:
    """apache/airflow#42553, #31212: one death counted several times used all retries up."""
    run = Run(SafeRetryPolicy(transient=Retries(tries=3, delay=SECOND)), store=Store())
    for _ in range(4):
        run.dies()
    assert actions(run, RESET, 3) == ["retry", "retry", "fail"]


def test_a_clear_begins_again() -> None:
    run = Run(SafeRetryPolicy(transient=Retries(tries=2, delay=SECOND)), store=Store())
    assert actions(run, RESET, 2) == ["retry", "fail"]
    run.is_cleared()
    assert actions(run, RESET, 2) == ["retry", "fail"]
    bare = Run(SafeRetryPolicy(transient=Retries(tries=2, delay=SECOND)))
    assert actions(bare, RESET, 2) == ["retry", "fail"]
    bare.is_cleared()
    assert actions(bare, RESET, 2) == ["retry", "fail"]


def test_what_was_stopped_is_tried_once_more_as_the_task_says() -> None:
    run = Run(SafeRetryPolicy(), store=Store())
    stopped = psycopg.errors.QueryCanceled("canceling statement due to statement timeout")
    first = run.fails(stopped)
    assert (first.action, first.retry_delay) == (RetryAction.RETRY, None)
    assert run.fails(stopped).action is RetryAction.FAIL


def test_what_no_rule_knows_is_retried_as_the_task_says() -> None:
    decision = Run(SafeRetryPolicy()).fails(ValueError("?"))
    assert decision.action is RetryAction.DEFAULT
    assert "no rule" in decision.reason


def test_too_few_retries_of_the_task_are_said_once(caplog: pytest.LogCaptureFixture) -> None:
    run = Run(SafeRetryPolicy(), retries=2, store=Store())
    assert actions(run, RESET, 2) == ["retry", "retry"]
    assert [record.args for record in caplog.records] == [(2, 4, "transient")]
    last = run.fails(RESET)
    assert last.action is RetryAction.DEFAULT
    assert "retries are used up" in last.reason
    caplog.clear()
    assert "retries are used up" in Run(SafeRetryPolicy(), retries=0).fails(RESET).reason
    Run(SafeRetryPolicy(), retries=4, store=Store()).fails(RESET)
    assert caplog.records == []


def test_a_store_that_does_not_answer_costs_the_count_alone() -> None:
    class Broken(Store):
        def get(self, *_: object) -> Any:
            raise RuntimeError("no answer")

        def set(self, *_: object) -> None:
            raise RuntimeError("no answer")

    assert actions(Run(SafeRetryPolicy(), store=Broken()), RESET, 2) == ["retry", "retry"]
    odd = Store(safe_ops_retries="what another task left")
    assert actions(Run(SafeRetryPolicy(), store=odd), RESET, 2) == ["retry", "retry"]


def test_without_a_context() -> None:
    assert SafeRetryPolicy().evaluate(RESET, 1, 3).action is RetryAction.RETRY
    assert SafeRetryPolicy().evaluate(RESET, 5, 9).action is RetryAction.FAIL


@pytest.mark.parametrize(
    "policy",
    [
        SafeRetryPolicy(),
        SafeRetryPolicy(total=timedelta(minutes=5)),
        SafeRetryPolicy(transient=Retries(tries=3, delay=5 * SECOND), cancelled=Retries(tries=1)),
    ],
    ids=repr,
)
def test_a_policy_is_plain_data(policy: SafeRetryPolicy) -> None:
    text = json.dumps(policy.serialize(), sort_keys=True)
    again = SafeRetryPolicy.deserialize(json.loads(text))
    assert again == policy
    assert hash(again) == hash(policy)
    assert repr(again) == repr(policy)
    assert " at 0x" not in repr(policy)
    assert again != SafeRetryPolicy(total=timedelta(days=2))
    names = {"SafeRetryPolicy": SafeRetryPolicy, "Retries": Retries, "datetime": __import__("datetime")}
    assert eval(repr(policy), names) == policy  # noqa: S307 - what it says is what it is


@pytest.mark.parametrize(
    "make",
    [
        lambda: Retries(tries=0),
        lambda: Retries(tries=-1),
        lambda: Retries(tries=2.5),  # type: ignore[arg-type]
        lambda: Retries(tries=True),
        lambda: Retries(tries=10**9),
        lambda: Retries(delay=-SECOND),
        lambda: Retries(delay=timedelta()),
        lambda: Retries(delay=30),  # type: ignore[arg-type]
        lambda: Retries(delay=timedelta(days=99), longest=timedelta(days=99)),
        lambda: Retries(delay=timedelta(hours=1), longest=timedelta(minutes=1)),
        lambda: Retries(growth=0.5),
        lambda: Retries(growth=float("nan")),
        lambda: Retries(jitter=1.5),
        lambda: Retries(jitter="0.1"),  # type: ignore[arg-type]
        lambda: SafeRetryPolicy(total=timedelta()),
        lambda: SafeRetryPolicy(total=60),  # type: ignore[arg-type]
        lambda: SafeRetryPolicy(transient=3),  # type: ignore[arg-type]
        lambda: SafeRetryPolicy.deserialize({"__type": "SafeRetryPolicy"}),
        lambda: SafeRetryPolicy.deserialize({"retries": {"data": {}}, "total": 1}),
    ],
)
def test_values_out_of_range_are_refused(make: Any) -> None:
    with pytest.raises(InvalidRetryPolicy) as refused:
        make()
    assert refused.value.code == "SO-702"


def test_spans_are_told_in_words() -> None:
    assert [told(timedelta(seconds=n)) for n in (0.5, 7, 45, 120, 5400, 6 * 3600, 5 * 86400)] == [
        "0.5 s",
        "7 s",
        "45 s",
        "2 min",
        "90 min",
        "6 h",
        "5 days",
    ]


def test_the_guide_says_what_the_defaults_are() -> None:
    """docs/retries.md has the table of the classes."""
    page = (Path(__file__).parents[2] / "docs" / "retries.md").read_text(encoding="utf-8")
    rows = {cells[1].strip(" `"): cells for cells in (row.split("|") for row in page.splitlines()) if len(cells) == 8}
    assert set(FailureClass) <= set(rows)
    for failure, how in DEFAULTS.items():
        _, _, _, tries, delay, longest, jitter, _ = map(str.strip, rows[failure])
        assert tries == str(how.tries), failure
        if how.delay is not None:
            assert delay.startswith(f"{told(how.delay)}, {'tripled' if how.growth == 3 else 'doubled'}"), failure
            assert (longest, jitter) == (told(how.longest), f"{how.jitter:.0%}"), failure


# --- tasks ----------------------------------------------------------------------------------------------------------


def load(**options: Any) -> IdempotentLoadOperator:
    day = TimePartition("day", grain="day")
    return IdempotentLoadOperator(task_id="load", conn_id="c", table="t", sql="SELECT 1", partition=day, **options)


def test_the_operator_has_the_policy_unless_somebody_gives_another() -> None:
    own = ExceptionRetryPolicy(rules=[])
    assert load().retry_policy == SafeRetryPolicy()
    assert load(retry_policy=own).retry_policy is own
    with DAG("d", schedule=None, default_args={"retry_policy": own}):
        assert load().retry_policy is own


def test_a_mapped_load_has_it_too() -> None:
    day = TimePartition("day", grain="day")
    with DAG("d", schedule=None):
        mapped = IdempotentLoadOperator.partial(task_id="load", conn_id="c", sql="SELECT 1", partition=day, retries=4)
        one = mapped.expand(table=["a", "b"]).unmap({"table": "a"})
    assert one.retry_policy == SafeRetryPolicy()
    assert one.retries == 4


def test_two_parses_make_one_version_of_a_dag() -> None:
    from airflow.serialization.serialized_objects import DagSerialization

    def parsed() -> str:
        with DAG("d", schedule=None) as dag:
            load(retries=4)
        return json.dumps(DagSerialization.to_dict(dag), sort_keys=True, default=str)

    assert parsed() == parsed()
    assert '"has_retry_policy": true' in parsed()
