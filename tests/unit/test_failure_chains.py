"""Which error of a chain decides: a wrapper never hides what a rule knows."""

from __future__ import annotations

import httpx
import psycopg
import pytest
import requests
import sqlalchemy.exc
import tenacity
from airflow.providers.common.compat.sdk import AirflowException, AirflowFailException

from airflow_safe_ops.errors import AuditFailed, ClaimTimeout, FailureClass, StatementFailed
from airflow_safe_ops.failures.classify import classify
from tests.failures import behind, caught, meanwhile, of, raise_it, raised

DEADLOCK = psycopg.errors.DeadlockDetected("deadlock detected")


@pytest.mark.parametrize("outer", [AirflowException, AirflowFailException, RuntimeError])
def test_a_wrapper_never_hides_a_cause_that_a_rule_knows(outer: type[Exception]) -> None:
    assert of(behind(outer("x"), DEADLOCK)) == ("contention", "sqlstate:40P01")
    assert of(meanwhile(outer("x"), psycopg.errors.InsufficientPrivilege("x"))) == ("permission", "sqlstate:42501")


def test_an_error_that_hides_what_was_handled_says_so() -> None:
    def work() -> None:
        try:
            raise_it(DEADLOCK)
        except psycopg.Error:
            raise RuntimeError("ours") from None

    assert of(caught(work)) == ("unknown", "")


def test_a_slip_while_an_error_was_handled_does_not_decide() -> None:
    assert of(meanwhile(RuntimeError("x"), TypeError("slip"))) == ("unknown", "")
    assert of(behind(RuntimeError("x"), TypeError("slip"))) == ("contract", "")
    assert of(meanwhile(requests.Timeout("x"), KeyError("cache"))) == ("transient", "")


def test_an_own_error_decides_wherever_it_is() -> None:
    assert of(behind(AirflowFailException("x"), AuditFailed("x"))) == ("data", "so:SO-109")
    assert of(behind(ClaimTimeout("x"), psycopg.errors.InsufficientPrivilege("x"))) == ("contention", "so:SO-401")


def test_a_failed_statement_is_of_the_class_of_what_the_database_said() -> None:
    failed = StatementFailed("connect: FATAL.", step="connect")
    refused = psycopg.OperationalError('FATAL:  password authentication failed for user "u"')
    assert of(behind(failed, refused)) == ("permission", "")
    assert of(behind(StatementFailed("x"), psycopg.errors.DiskFull("x"))) == ("resource", "sqlstate:53100")
    assert of(StatementFailed("x", sqlstate="40P01")) == ("contention", "sqlstate:40P01")
    assert of(StatementFailed("The connection was lost.")) == ("transient", "so:SO-601")


def test_errors_that_hold_others() -> None:
    of_alchemy = sqlalchemy.exc.OperationalError("SELECT 1", {}, DEADLOCK)
    assert of(of_alchemy) == ("contention", "sqlstate:40P01")
    assert of(RuntimeError("x", ConnectionResetError(104, "reset"))) == ("transient", "errno:ECONNRESET")
    again = tenacity.Retrying(stop=tenacity.stop_after_attempt(2), wait=tenacity.wait_none())
    assert of(caught(lambda: again(raise_it, DEADLOCK))) == ("contention", "sqlstate:40P01")


def test_of_a_group_the_most_serious_counts() -> None:
    """A retry helps only where it helps against each of them."""
    both = ExceptionGroup("both", [httpx.ConnectError("x"), psycopg.errors.InsufficientPrivilege("x")])
    assert of(raised(both)) == ("permission", "sqlstate:42501")
    nested = ExceptionGroup("outer", [ExceptionGroup("inner", [DEADLOCK]), TimeoutError()])
    assert of(raised(nested)) == ("contention", "sqlstate:40P01")
    deep: Exception = ValueError("x")
    for _ in range(100):
        deep = ExceptionGroup("x", [deep])
    assert of(deep) == ("unknown", "")


def test_a_circle_and_a_long_chain_end() -> None:
    first, second = RuntimeError("1"), RuntimeError("2")
    first.__cause__, second.__cause__ = second, first
    assert of(first) == ("unknown", "")
    error: BaseException = DEADLOCK
    for _ in range(5000):
        error = behind(RuntimeError("x"), error)
    assert of(error) == ("unknown", "")


def test_an_error_that_cannot_be_read_is_unknown() -> None:
    class Odd(Exception):
        def __str__(self) -> str:
            raise ValueError

        @property
        def response(self) -> object:
            raise RuntimeError

    assert of(Odd()) == ("unknown", "")
    verdict = classify(Odd())
    assert verdict.failure is FailureClass.UNKNOWN
    assert verdict.reason
    assert verdict.advice
