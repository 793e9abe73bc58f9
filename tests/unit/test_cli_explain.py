"""`airflow safe-ops explain`: what a person pastes, and what is told of it."""

from __future__ import annotations

import io
import json
import traceback
from typing import TYPE_CHECKING

import psycopg
import pytest

from airflow_safe_ops import FailureClass
from airflow_safe_ops.cli.__main__ import safe_ops_parser
from airflow_safe_ops.failures.registry import forget_rules
from airflow_safe_ops.retry import SafeRetryPolicy
from tests.failures import behind, needs_policy

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Explain = Callable[..., tuple[int, str, str]]


@pytest.fixture
def explain(capfd: pytest.CaptureFixture[str]) -> Iterator[Explain]:
    def called(*argv: str) -> tuple[int, str, str]:
        capfd.readouterr()
        args, code = safe_ops_parser().parse_args(["explain", *argv]), 0
        try:
            args.func(args)
        except SystemExit as ended:
            code = int(ended.code or 0)
        return code, *capfd.readouterr()

    yield called
    forget_rules()


PASTED = {
    "psycopg.errors.DeadlockDetected: deadlock detected": "contention",
    "psycopg2.errors.InsufficientPrivilege: permission denied for table t": "permission",
    "psycopg.OperationalError: connection failed: FATAL:  password authentication failed": "permission",
    "sqlalchemy.exc.OperationalError: (psycopg2.errors.LockNotAvailable) canceling statement": "contention",
    "ERROR:  relation missing (SQLSTATE 42P01)": "contract",
    "ERROR 1213 (40001): Deadlock found when trying to get lock": "contention",
    "pymysql.err.OperationalError: (2013, 'Lost connection to MySQL server during query')": "transient",
    "sqlite3.OperationalError: database is locked, SQLITE_BUSY": "contention",
    "requests.exceptions.HTTPError: 503 Server Error: Service Unavailable for url: http://x/": "transient",
    "httpx.HTTPStatusError: Client error '403 Forbidden' for url 'http://x/'": "permission",
    "airflow.exceptions.AirflowException: 429:Too Many Requests": "resource",
    "requests.exceptions.ConnectTimeout: HTTPSConnectionPool(host='x', port=443)": "transient",
    "[DELTA_CONCURRENT_APPEND] Transaction conflict detected.": "contention",
    "the run ended with termination_code: CLOUD_FAILURE": "transient",
    "SO-104 37 of 12,004 staged rows lie outside": "data",
    "SO-601 connect: too many (SQLSTATE 53300).": "resource",
    "SO-601 connect: lost.": "transient",
    "OSError: [Errno 28] No space left on device": "resource",
    "socket.gaierror: [Errno -2] Name or service not known": "contract",
    "ECONNREFUSED": "transient",
    "ConnectionResetError": "transient",
    "ModuleNotFoundError: No module named 'x'": "contract",
    "airflow.exceptions.AirflowSensorTimeout: Sensor has timed out": "late_input",
}


@pytest.mark.parametrize(("text", "expected"), PASTED.items())
def test_what_is_pasted_is_known(explain: Explain, text: str, expected: str) -> None:
    code, out, _ = explain(text, "--output", "json")
    (told,) = json.loads(out)
    assert (code, told["class"]) == (0, expected)
    assert told["means"] == FailureClass(expected).means
    assert told["retried"] is (expected not in ("permission", "contract", "data", "late_input"))
    assert told["what_to_do"]


def test_of_a_traceback_the_cause_is_found(explain: Explain) -> None:
    error = behind(RuntimeError("the load failed"), psycopg.errors.SerializationFailure("could not serialize"))
    told = json.loads(explain("".join(traceback.format_exception(error)), "-o", "json")[1])
    assert (told[0]["class"], told[0]["code"]) == ("contention", "sqlstate:40001")


@needs_policy
def test_what_it_says_will_happen_is_what_the_policy_does(explain: Explain) -> None:
    told = json.loads(explain("ConnectionResetError", "-o", "json")[1])[0]
    policy, delays = SafeRetryPolicy(), []
    for n in range(1, 10):
        decision = policy.evaluate(ConnectionResetError(), n, 99)
        if decision.retry_delay is None:
            break
        delays.append(decision.retry_delay.total_seconds())
    assert len(delays) == len(told["delays"])
    assert all(abs(real - said) <= 0.2 * said for real, said in zip(delays, told["delays"], strict=True))


def test_for_people(explain: Explain) -> None:
    code, out, _ = explain("psycopg.errors.InsufficientPrivilege: permission denied")
    assert code == 0
    assert [line.split()[0] for line in out.splitlines()] == ["class", "why", "then", "to"]
    assert "fails at once" in out


def test_nothing_is_known_of_it(explain: Explain) -> None:
    code, out, _ = explain("it does not work")
    assert code == 1
    assert "failure_rules" in out


def test_from_standard_input(explain: Explain, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("psycopg.errors.DiskFull: could not extend file"))
    assert "resource" in explain("-")[1]


@pytest.mark.parametrize(
    "argv",
    [[], [""], ["x", "--run", "d", "r", "t"], ["--run", "d", "r", "t"]],
    ids=["nothing", "empty", "both", "conn"],
)
def test_what_cannot_be_explained_is_refused(explain: Explain, argv: list[str]) -> None:
    code, out, err = explain(*argv)
    assert (code, out, err[:7]) == (1, "", "SO-201 ")


def test_a_pasted_name_imports_nothing_else(explain: Explain) -> None:
    import sys

    assert explain("antigravity.SomeError: x")[0] == 1
    assert "antigravity" not in sys.modules


def test_rules_of_the_installation(explain: Explain, monkeypatch: pytest.MonkeyPatch) -> None:
    rule = '[{"exception": "acme.Busy", "class": "contention", "reason": "the warehouse is busy"}]'
    monkeypatch.setenv("AIRFLOW__SAFE_OPS__FAILURE_RULES", rule)
    assert "the warehouse is busy" in explain("acme.client.Busy: come back")[1]
    monkeypatch.setenv("AIRFLOW__SAFE_OPS__FAILURE_RULES", '[{"class": "fatal", "message": "x"}]')
    code, _, err = explain("ECONNREFUSED")
    assert (code, err[:7]) == (1, "SO-701 ")
