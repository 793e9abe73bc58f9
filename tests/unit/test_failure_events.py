"""A trigger hands the class of its failure over, and the task that is resumed fails with it."""

from __future__ import annotations

import json

import httpx
import psycopg
import pytest

from airflow_safe_ops import SafeRetryPolicy, register_rule
from airflow_safe_ops.errors import AuditFailed, FailedInTrigger, InvalidFailureEvent
from airflow_safe_ops.failures.classify import classify
from airflow_safe_ops.failures.event import is_failure, raise_event, to_event
from airflow_safe_ops.failures.registry import forget_rules
from airflow_safe_ops.retry import HAS_RETRY_POLICY

REQUEST = httpx.Request("GET", "http://x")
BUSY = httpx.HTTPStatusError(
    "429", request=REQUEST, response=httpx.Response(429, headers={"Retry-After": "7"}, request=REQUEST)
)
ERRORS = [
    (psycopg.errors.InsufficientPrivilege("permission denied"), "permission", "fail"),
    (psycopg.errors.DeadlockDetected("deadlock detected"), "contention", "retry"),
    (ConnectionResetError(104, "reset"), "transient", "retry"),
    (AuditFailed("counts differ"), "data", "fail"),
    (BUSY, "resource", "retry"),
    (ValueError("?"), "unknown", "default"),
]


@pytest.mark.parametrize(("error", "failure", "action"), ERRORS, ids=lambda value: type(value).__name__)
def test_the_class_survives_the_trigger(error: BaseException, failure: str, action: str) -> None:
    event = json.loads(json.dumps(to_event(error)))
    assert is_failure(event)
    assert event["class"] == failure
    with pytest.raises(FailedInTrigger) as told:
        raise_event(event)
    before, after = classify(error), classify(told.value)
    assert after.failure == before.failure == failure
    assert told.value.terminal is before.failure.is_terminal
    if failure != "unknown":
        assert (after.reason, after.code, after.advice) == (before.reason, before.code, before.advice)
    assert after.retry_after == before.retry_after
    if HAS_RETRY_POLICY:
        assert SafeRetryPolicy().evaluate(told.value, 1, 9).action.value == action
    assert type(error).__name__ in str(told.value)


class Busy(Exception):
    """An error that only the worker has a rule for."""


def test_a_rule_that_the_triggerer_does_not_know_still_counts() -> None:
    event = to_event(Busy("come back"))
    assert event["class"] == "unknown"
    register_rule("contention", exception="Busy")
    try:
        with pytest.raises(FailedInTrigger) as told:
            raise_event(event)
        assert classify(told.value).failure == "contention"
    finally:
        forget_rules()


@pytest.mark.parametrize("event", [None, "x", {}, {"status": "success"}, {"safe_ops_failure": 1, "class": "fatal"}])
def test_an_event_that_tells_of_no_failure_is_refused(event: object) -> None:
    with pytest.raises(InvalidFailureEvent) as refused:
        raise_event(event)
    assert refused.value.code == "SO-704"


def test_an_event_of_success_is_no_failure() -> None:
    assert not is_failure({"status": "success"})
    assert not is_failure(None)
