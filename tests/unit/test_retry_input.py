"""What a server, an event, a store or a setting says is input: none of it makes the policy raise."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from airflow_safe_ops import SafeRetryPolicy, register_rule
from airflow_safe_ops.errors import AuditFailed, FailedInTrigger
from airflow_safe_ops.failures.classify import classify
from airflow_safe_ops.failures.event import raise_event, to_event
from airflow_safe_ops.failures.evidence import seconds_of
from airflow_safe_ops.failures.registry import forget_rules
from airflow_safe_ops.failures.retries import told
from airflow_safe_ops.retry import classified, fails_at_once
from tests.failures import caught, needs_policy, raised

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

NOW = datetime(2026, 1, 1, tzinfo=UTC)
MONTH = 30 * 86400
RESET = ConnectionResetError(104, "reset")
ASKED: list[tuple[Any, float | None]] = [
    ("99999999999999999999", MONTH),
    ("1e30", MONTH),
    (10**400, MONTH),
    (1e30, MONTH),
    ("-5", 0),
    (-5, 0),
    ("7", 7),
    ("0.5", 0.5),
    ("inf", None),
    ("nan", None),
    (float("inf"), None),
    (float("nan"), None),
    ("²", None),
    ("soon", None),
    ("", None),
    (None, None),
    (True, None),
    ([7], None),
    ("Thu, 01 Jan 1970 00:00:00 GMT", 0),
    ("Fri, 31 Dec 9999 23:59:59 GMT", MONTH),
    ("Fri, 31 Dec 99999999999999999999 23:59:59 GMT", MONTH),
    ("Thu, 01 Jan 2026 00:01:00", 60),
]


@pytest.fixture(autouse=True)
def no_rules() -> Iterator[None]:
    forget_rules()
    yield
    forget_rules()


def decided(error: BaseException, store: dict[str, Any] | None = None, **options: Any) -> Any:
    """What the policy decides of a first try."""
    task = SimpleNamespace(retries=9)
    ti = SimpleNamespace(dag_id="d", task_id="t", run_id="r", map_index=-1, task=task, start_date=datetime.now(UTC))
    context: dict[str, Any] = {"ti": ti, "dag_run": SimpleNamespace(clear_number=0)}
    if store is not None:
        context["task_state_store"] = store
    return SafeRetryPolicy(**options).evaluate(error, 1, 9, context)


@pytest.mark.parametrize(("asked", "expected"), ASKED, ids=repr)
def test_a_wait_that_is_asked_for_is_finite(asked: Any, expected: float | None) -> None:
    assert seconds_of(asked, NOW) == expected


@needs_policy
@pytest.mark.parametrize("asked", [row[0] for row in ASKED], ids=repr)
def test_a_server_and_an_event_may_ask_for_anything(asked: Any) -> None:
    """Beyond `total` the task fails, as it is documented."""
    request = httpx.Request("GET", "http://x")
    response = httpx.Response(429, headers={b"Retry-After": str(asked).encode()}, request=request)
    event = {**to_event(httpx.ConnectError("x")), "retry_after": asked}
    with pytest.raises(FailedInTrigger) as failed:
        raise_event(event)
    for error in (httpx.HTTPStatusError("429", request=request, response=response), failed.value):
        wait = classify(error).retry_after
        decision = decided(error)
        assert decision.action.value == ("fail" if (wait or 0) > 6 * 3600 else "retry")
        if wait is not None and decision.retry_delay is not None:
            assert decision.retry_delay == timedelta(seconds=max(1.0, wait))


STORIES: list[Any] = [
    {"series": "0.1", "began": "2026-01-01T00:00:00+00:00"},
    {"series": "0.1", "counts": {"transient": 1}},
    {"series": "0.1", "began": "yesterday", "counts": {"transient": 1}},
    {"series": "0.1", "began": "2026-01-01T00:00:00", "counts": {"transient": 1}},
    {"series": "0.1", "began": 17, "counts": {"transient": 1}},
    {"series": "0.1", "began": "2026-01-01T00:00:00+00:00", "counts": {"transient": "many"}},
    {"series": "0.1", "began": "2026-01-01T00:00:00+00:00", "counts": {"fatal": 1}},
    {"series": "0.1", "began": "2026-01-01T00:00:00+00:00", "counts": {"transient": float("inf")}},
    {"series": "0.1", "began": "2026-01-01T00:00:00+00:00", "counts": [1]},
    {"series": ["0.1"]},
    ["0.1"],
    "0.1",
    7,
]


class Store(dict[str, Any]):
    """A task's state store."""

    def set(self, key: str, value: Any) -> None:
        self[key] = json.loads(json.dumps(value))


@needs_policy
@pytest.mark.parametrize("kept", STORIES, ids=repr)
def test_a_story_that_cannot_be_read_begins_anew(kept: Any) -> None:
    store = Store(safe_ops_retries=kept)
    assert decided(RESET, store).action.value == "retry"
    assert store["safe_ops_retries"]["counts"] == {"transient": 1}


@needs_policy
def test_a_start_without_a_zone_is_left_out() -> None:
    ti = SimpleNamespace(task=SimpleNamespace(retries=9), start_date=datetime(2026, 1, 1))
    assert SafeRetryPolicy().evaluate(RESET, 1, 9, {"ti": ti}).action.value == "retry"


@needs_policy
@pytest.mark.parametrize("context", [{"ti": SimpleNamespace(task=SimpleNamespace(retries="nine"))}, 7], ids=repr)
def test_a_policy_that_cannot_decide_leaves_it_to_the_task(context: Any) -> None:
    assert SafeRetryPolicy().evaluate(RESET, 1, 9, context).action.value == "default"


SETTINGS = {
    "FAILURE_RULES": ["100% [", '[{"message": "100% sure", "class": "data"}]', "[" * 100_000, "7"],
    "LOCK_TIMEOUT": ["ten", "%"],
    "LOG_SAMPLES": ["perhaps"],
}
BAD = [(name, value) for name, values in SETTINGS.items() for value in values]


@pytest.mark.parametrize(("name", "value"), BAD, ids=[f"{name} {value[:20]}" for name, value in BAD])
def test_a_setting_that_is_wrong_hides_no_failure(monkeypatch: pytest.MonkeyPatch, name: str, value: str) -> None:
    from airflow.providers.common.compat.sdk import conf

    monkeypatch.setenv(f"AIRFLOW__SAFE_OPS__{name}", value)
    look_into_the_setting(conf, monkeypatch, name.lower(), value)
    assert classified(RESET).failure == "transient"
    with pytest.raises(ConnectionResetError), fails_at_once():
        raise RESET


def look_into_the_setting(conf: Any, monkeypatch: pytest.MonkeyPatch, option: str, value: str) -> None:
    """The same in the file, where a % is a reference to another option."""
    monkeypatch.delenv(f"AIRFLOW__SAFE_OPS__{option.upper()}")
    if not conf.has_section("safe_ops"):
        conf.add_section("safe_ops")
    monkeypatch.setitem(conf._sections["safe_ops"], option, value)


def test_a_rule_with_a_percent_sign_is_a_rule(monkeypatch: pytest.MonkeyPatch) -> None:
    from airflow.providers.common.compat.sdk import conf

    rule = '[{"message": "100% (sure|full)", "class": "resource"}]'
    monkeypatch.setenv("AIRFLOW__SAFE_OPS__FAILURE_RULES", "")
    look_into_the_setting(conf, monkeypatch, "failure_rules", rule)
    assert classified(ValueError("the disk is 100% full")).failure == "resource"


def no(error: BaseException) -> bool:
    """A rule's function with a fault."""
    return bool(error.args[7])


@needs_policy
def test_a_rule_s_function_that_raises_does_not_fit(caplog: pytest.LogCaptureFixture) -> None:
    register_rule("data", when=no)
    for _ in range(3):
        assert decided(RESET).action.value == "retry"
    assert len([record for record in caplog.records if "tests.unit.test_retry_input.no" in record.getMessage()]) == 1
    assert to_event(RESET)["class"] == "transient"
    with pytest.raises(ConnectionResetError), fails_at_once():
        raise RESET


class Bare(AuditFailed):
    """An error of ours whose subclass forgets to call its base."""

    def __init__(self) -> None:
        """Nothing."""


class Odd(Exception):
    """An error that cannot be looked at."""

    __slots__ = ()

    def __str__(self) -> str:
        raise ValueError

    def __eq__(self, other: object) -> bool:
        raise RuntimeError

    def __hash__(self) -> int:
        raise RuntimeError

    def __getattribute__(self, name: str) -> Any:
        if name != "__class__":
            raise RuntimeError(name)
        return Odd


class Text(str):
    """A text that cannot be cut."""

    __slots__ = ()

    def __getitem__(self, key: object) -> str:
        raise RuntimeError


class Worded(Exception):
    """An error with such a text."""

    def __str__(self) -> str:
        return Text("x")


ODD: dict[str, tuple[Callable[[], BaseException], str]] = {
    "no facts": (Bare, "data"),
    "no attributes": (Odd, "unknown"),
    "no words": (Worded, "unknown"),
    "together": (lambda: ExceptionGroup("x", [Odd(), Bare()]), "data"),
}


@pytest.mark.parametrize("name", ODD)
def test_an_error_that_cannot_be_read_raises_nothing(name: str) -> None:
    make, expected = ODD[name]
    assert classify(make()).failure == expected
    assert json.loads(json.dumps(to_event(make())))["class"] == expected
    came = type(caught(lambda: fails(make()))).__name__
    assert came == ("AirflowFailException" if expected == "data" else make().__class__.__name__)


def fails(error: BaseException) -> None:
    """In the context manager that any task may use."""
    with fails_at_once():
        raise error


def test_members_that_lead_back_to_their_group_are_looked_at_once() -> None:
    members = [ValueError(n) for n in range(300)]
    group = ExceptionGroup("all", [*members, PermissionError(13, "no")])
    for member in members:
        member.__cause__ = group
    began = datetime.now(UTC)
    assert classify(raised(group)).failure == "permission"
    assert datetime.now(UTC) - began < timedelta(seconds=2)


def test_spans_are_told_without_powers_of_ten() -> None:
    told_of = [told(timedelta(seconds=n)) for n in (0.04, 9.96, 99.4, 99.7, 119, 5970, 71.9 * 3600, 1e9)]
    assert told_of == ["0.04 s", "10 s", "99 s", "1.7 min", "2 min", "1.7 h", "3 days", "11,574 days"]
