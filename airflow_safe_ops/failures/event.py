"""A trigger's failure as an event, so that the task it resumes fails with the class that the trigger saw."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NoReturn

from airflow_safe_ops.errors import FailedInTrigger, FailureClass, InvalidFailureEvent
from airflow_safe_ops.failures.classify import classify
from airflow_safe_ops.failures.evidence import words_of

_MARK = "safe_ops_failure"
_WORDS = 2000


def to_event(error: BaseException) -> dict[str, Any]:
    """
    What a trigger sends when it fails: ``yield TriggerEvent(to_event(error))``.

    An exception that leaves a trigger reaches the task as a bare TaskDeferralError: neither its class nor its code is
    there. The event is plain JSON.
    """
    verdict = classify(error)
    return {
        _MARK: 1,
        "class": str(verdict.failure),
        "reason": verdict.reason,
        "advice": verdict.advice,
        "code": verdict.code,
        "error": f"{type(error).__module__}.{type(error).__qualname__}",
        "message": words_of(error)[:_WORDS],
        "retry_after": verdict.retry_after,
    }


def is_failure(event: object) -> bool:
    """Whether an event tells of a failure."""
    return isinstance(event, Mapping) and _MARK in event


def raise_event(event: object) -> NoReturn:
    """
    Raise what the event tells of; called by the method that a task is resumed with.

    :raises FailedInTrigger: always, of the class that the trigger saw.
    :raises InvalidFailureEvent: the event tells of no failure.
    """
    if not isinstance(event, Mapping) or not is_failure(event):
        raise InvalidFailureEvent(f"The event {str(event)[:200]!r} tells of no failure.")
    try:
        failure = FailureClass(str(event.get("class")))
    except ValueError:
        raise InvalidFailureEvent(f"The event has the class {event.get('class')!r}.") from None
    error = FailedInTrigger(
        f"{event.get('error')}: {event.get('message')}",
        reason=str(event.get("reason") or ""),
        code=str(event.get("code") or ""),
        error=str(event.get("error") or ""),
        retry_after=event.get("retry_after"),
    )
    error.failure, error.terminal = failure, failure.is_terminal
    error.fix = str(event.get("advice") or error.fix)
    raise error
