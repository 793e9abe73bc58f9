"""What stands in the way of a cluster policy; logged, never raised into Airflow, but for the start date."""

from __future__ import annotations

from airflow_safe_ops.errors.base import SafeOpsError
from airflow_safe_ops.errors.failure import FailureClass


class InvalidPolicySetting(SafeOpsError):
    """A setting of the cluster policy is misspelt or out of range."""

    code = "SO-711"
    failure = FailureClass.CONTRACT
    why = "A DAG is never refused for a setting: the default is used instead."
    fix = "Correct it in section [safe_ops] of Airflow's configuration; docs/policies.md has all settings."


class InvalidPolicyException(SafeOpsError):
    """An entry of policy_exceptions is not usable."""

    code = "SO-712"
    failure = FailureClass.CONTRACT
    why = "An exception that nobody can explain is a hole: the entry is left out, the others are used."
    fix = (
        "Write [safe_ops] policy_exceptions as JSON: "
        '[{"tag": "legacy", "rules": ["unsafe_backfill"], "reason": "moves to merge in March"}].'
    )


class MovingStartDate(SafeOpsError):
    """A start date is computed from the current time, so it is another one at each parse."""

    code = "SO-713"
    failure = FailureClass.CONTRACT
    why = "The scheduler never reaches a start that runs ahead of it, and each parse makes a new version of the DAG."
    fix = "Write the date down, for example start_date=pendulum.datetime(2026, 1, 1), and set catchup=False."


class PolicyFailed(SafeOpsError):
    """A rule of the cluster policy failed by itself."""

    code = "SO-714"
    failure = FailureClass.CONTRACT
    why = "That is a fault of this package, not of the DAG, which goes on as if the rule were off."
    fix = "Report it with the log's traceback; set the rule off until then."
