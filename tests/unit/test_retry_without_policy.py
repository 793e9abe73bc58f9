"""What there is where no retry policy is asked: Airflow before 3.3, and code of any task."""

from __future__ import annotations

import subprocess
import sys
from types import SimpleNamespace

import psycopg
import pytest
from airflow.providers.common.compat.sdk import AirflowFailException

from airflow_safe_ops.errors import AuditFailed, StatementFailed
from airflow_safe_ops.retry import fail_if_terminal, fails_at_once, hand_over

RESET = ConnectionResetError(104, "reset")
DENIED = psycopg.errors.InsufficientPrivilege("permission denied")


def test_without_a_policy_terminal_failures_fail_at_once() -> None:
    """What Airflow before 3.3 has: no policy, so the operator raises AirflowFailException."""
    for error in (AuditFailed("x"), DENIED):
        with pytest.raises(AirflowFailException) as failed:
            fail_if_terminal(error)
        assert failed.value.__cause__ is error
    fail_if_terminal(RESET)
    fail_if_terminal(StatementFailed("The connection was lost."))


@pytest.mark.parametrize("error", [AuditFailed("x"), StatementFailed("The connection was lost.")], ids=repr)
def test_who_hands_an_error_to_airflow(error: Exception) -> None:
    """A policy sees the error itself; without one, or where no retry is wanted, the task fails at once."""
    hand_over(SimpleNamespace(retry_on_failure=True, retry_policy=object()), error)
    with pytest.raises(AirflowFailException, match=r"SO-\d+ "):
        hand_over(SimpleNamespace(retry_on_failure=False, retry_policy=object()), error)
    old = SimpleNamespace(retry_on_failure=True)
    if isinstance(error, AuditFailed):
        with pytest.raises(AirflowFailException, match="SO-109 "):
            hand_over(old, error)
    else:
        hand_over(old, error)


def test_any_code_can_fail_at_once() -> None:
    with pytest.raises(AirflowFailException), fails_at_once():
        raise DENIED
    with pytest.raises(ConnectionResetError), fails_at_once():
        raise RESET


def test_importing_it_imports_no_driver_and_nothing_of_airflow_before_it_is_there() -> None:
    script = (
        "import sys; sys.modules['airflow.sdk.definitions.retry_policy'] = None; "
        "from airflow_safe_ops import SafeRetryPolicy, Retries; import airflow_safe_ops.retry as retry; "
        "assert not retry.HAS_RETRY_POLICY; assert SafeRetryPolicy(transient=Retries(tries=2)).serialize(); "
        "task = type('Old', (), {})(); retry.give_policy(task); assert not vars(task); "
        "print([name for name in ('psycopg', 'psycopg2', 'httpx', 'requests') if name in sys.modules])"
    )
    ran = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True)
    assert ran.stdout.strip() == "[]"
