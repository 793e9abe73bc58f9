"""What says how failures are classed and tried again is not usable; and a failure that was told by a trigger."""

from __future__ import annotations

from airflow_safe_ops.errors.base import SafeOpsError
from airflow_safe_ops.errors.failure import FailureClass


class InvalidFailureRule(SafeOpsError):
    """A rule that names the class of a failure is not usable."""

    code = "SO-701"
    failure = FailureClass.CONTRACT
    why = "A rule that is wrong, or never asked, would be trusted and do nothing."
    fix = "Correct the rule in [safe_ops] failure_rules or register_rule(…); docs/retries.md says what it takes."


class InvalidRetryPolicy(SafeOpsError):
    """A value of a retry policy is out of range."""

    code = "SO-702"
    failure = FailureClass.CONTRACT
    fix = "Correct the value; the docstrings of SafeRetryPolicy and Retries say what they take."


class FailedInTrigger(SafeOpsError):
    """What a deferred task waited for failed; the class of failure is the one that the trigger saw."""

    code = "SO-703"
    failure = FailureClass.UNKNOWN
    why = "The error itself stays in the triggerer; its class, its code and its words came with the event."
    fix = "Look at the triggerer's log of this task for the whole of it."


class InvalidFailureEvent(SafeOpsError):
    """An event of a trigger is not one that tells of a failure."""

    code = "SO-704"
    failure = FailureClass.CONTRACT
    why = "Who resumes a task must know whether its trigger failed."
    fix = "Send to_event(error) from the trigger, and hand raise_event only events for which is_failure says yes."


class UnknownFailure(SafeOpsError):
    """No last failed attempt of this task and run is in the ledger."""

    code = "SO-705"
    failure = FailureClass.CONTRACT
    why = "The names may be wrong, the task may have failed before its claim, or it publishes (publications list)."
    fix = 'Give the error\'s text instead: airflow safe-ops explain "…".'
