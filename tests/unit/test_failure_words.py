"""Words that look like a code: a row's value, a name, a statement say nothing of a failure's class."""

from __future__ import annotations

import time
from importlib import import_module
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
import sqlalchemy.exc
from airflow.providers.common.compat.sdk import AirflowException

from airflow_safe_ops.cli.explain_command import class_named
from airflow_safe_ops.failures.classify import classify
from airflow_safe_ops.failures.explain import explain
from tests.failures import of, raised

if TYPE_CHECKING:
    from airflow_safe_ops.failures.classify import Verdict

databricks: Any = import_module("databricks.sql.exc")


def told(text: str) -> Verdict:
    """What `explain` says of a text."""
    return explain(text, class_named)


def of_oracle(said: str) -> Exception:
    """By the shape of python-oracledb's errors, which is not installed."""
    error: Exception = type("DatabaseError", (Exception,), {"__module__": "oracledb.exceptions"})(said)
    return error


def server(said: str) -> Exception:
    """An error of the Databricks driver."""
    error: Exception = databricks.ServerOperationError(said, {"operation-id": "1"})
    return error


CAST = '[CAST_INVALID_INPUT] The value \'{}\' of the type "STRING" cannot be cast to "INT". SQLSTATE: 22018'
STATEMENT = "[PARSE_SYNTAX_ERROR] Syntax error at or near 'x'. SQLSTATE: 42601 (line 1, pos 9)\n\n== SQL ==\n{}\n---^^^"
PARAMETERS = sqlalchemy.exc.DatabaseError(
    "INSERT INTO t VALUES (:a, :b)", (1213, "abc"), of_oracle("ORA-12899: too long")
)
LOOKS = [
    (server(CAST.format("DELTA_CONCURRENT_APPEND")), "data", "databricks:CAST_INVALID_INPUT"),
    (server(CAST.format("SQLSTATE: 40001")), "data", "databricks:CAST_INVALID_INPUT"),
    (server(CAST.format("[DELTA_CONCURRENT_APPEND]")), "data", "databricks:CAST_INVALID_INPUT"),
    (server("[A_NEW_CONDITION] of 'SQLSTATE: 40001' SQLSTATE: 22018"), "data", "sqlstate:22018"),
    (
        server("[TABLE_OR_VIEW_NOT_FOUND] The table audit.DELTA_CONCURRENT_LOG cannot be found. SQLSTATE: 42P01"),
        "contract",
        "databricks:TABLE_OR_VIEW_NOT_FOUND",
    ),
    (server(STATEMENT.format("INSERT INTO t VALUES (1205, 'x')")), "contract", "databricks:PARSE_SYNTAX_ERROR"),
    (server(STATEMENT.format("SELECT 'x' -- SQLSTATE: 40001")), "contract", "databricks:PARSE_SYNTAX_ERROR"),
    (AirflowException("12 orders have status 404"), "unknown", ""),
    (AirflowException("EPERM is no valid employee code"), "unknown", ""),
    (AirflowException("order 17: 404:Not for sale"), "unknown", ""),
    (AirflowException("[PARSE_ORDERS] the file is empty"), "unknown", ""),
    (AirflowException("no rows in audit.DELTA_CONCURRENT_LOG"), "unknown", ""),
    (AirflowException("the note is 'ERROR 1213 (40001): x'"), "unknown", ""),
    (AirflowException("the code: DISABLED of order 4"), "unknown", ""),
    (ValueError("order status 500 is not allowed"), "unknown", ""),
    (ValueError("the note is 'SQLSTATE: 40001'"), "unknown", ""),
    (ValueError("SQLSTATE: 40001"), "unknown", ""),
    (KeyError("503 Server Error"), "unknown", ""),
    (PARAMETERS, "unknown", ""),
]


@pytest.mark.parametrize(("error", "failure", "code"), LOOKS, ids=[str(row[0])[:40] for row in LOOKS])
def test_a_value_that_looks_like_a_code(error: BaseException, failure: str, code: str) -> None:
    """Neither where it is raised, nor where the same line is pasted."""
    assert of(raised(error)) == (failure, code)
    cls = type(error)
    pasted = told(f"{cls.__module__}.{cls.__qualname__}: {error}")
    assert (pasted.failure, pasted.code) == (failure, code)


WRITTEN = [
    (AirflowException('Response: {"error": "\'Status Code: 404\'"}, Status Code: 503'), "http:503"),
    (AirflowException("HTTP Error 503: Service Unavailable"), "http:503"),
    (AirflowException("Error running SQL statement: SELECT 1. x SQLSTATE: 40001"), "sqlstate:40001"),
    (AirflowException("mysql said\nERROR 1213 (40001): Deadlock found"), "mysql:1213"),
    (of_oracle("bridge: [SQLSTATE 08006] gone"), "sqlstate:08006"),
    (server("Error running query: [DELTA_CONCURRENT_APPEND.ROW] x"), "databricks:DELTA_CONCURRENT_APPEND"),
]


@pytest.mark.parametrize(("error", "code"), WRITTEN, ids=[row[1] + str(n) for n, row in enumerate(WRITTEN)])
def test_what_a_driver_or_a_wrapper_writes_is_read(error: BaseException, code: str) -> None:
    assert of(error)[1] == code


def test_an_error_s_own_state_comes_before_its_words() -> None:
    said = 'invalid input syntax for type integer: "DELTA_CONCURRENT_APPEND"'
    assert of(psycopg.errors.InvalidTextRepresentation(said)) == ("data", "sqlstate:22P02")
    pasted = told(f"psycopg.errors.InvalidTextRepresentation: {said}")
    assert (pasted.failure, pasted.code) == ("data", "sqlstate:22P02")
    bare = told("psycopg.errors.InvalidTextRepresentation: invalid input for SQLSTATE 40001, [DELTA_CONCURRENT_APPEND]")
    assert bare.failure == "data"


def test_a_pasted_order_number_is_no_error_of_ours() -> None:
    order = told('psycopg.errors.InvalidTextRepresentation: invalid input syntax for type integer: "SO-104"')
    assert (order.failure, order.code) == ("data", "sqlstate:22P02")
    assert told("AirflowException: order (SO-104) is missing").failure == "unknown"
    assert told("[2026-01-01] ERROR - SO-104 37 rows lie outside").code == "so:SO-104"


def test_a_quoted_name_names_no_error() -> None:
    assert told("ValueError: 'psycopg.errors.DeadlockDetected' is no customer").failure == "unknown"


LONG = ["a.", "A", "a.a.A ", '"a ', "'", "[SQL:", "DETAIL:", "[Errno ", "[A_A", "x: ", "a.B: x\n", "E", "9", "\n"]


@pytest.mark.parametrize("part", LONG, ids=repr)
def test_a_long_text_is_explained_in_time(part: str) -> None:
    began = time.monotonic()
    told(part * (100_000 // len(part)))
    classify(AirflowException(part * (100_000 // len(part))))
    assert time.monotonic() - began < 4


def test_of_a_long_log_the_end_counts() -> None:
    assert told("x\n" * 100_000 + "psycopg.errors.DeadlockDetected: deadlock detected").failure == "contention"


@pytest.mark.parametrize(
    ("line", "failure", "code"),
    [
        ("ERROR:  deadlock detected", "contention", "sqlstate:40P01"),
        ('FATAL:  password authentication failed for user "etl"', "permission", "sqlstate:28P01"),
        ("2026-01-01 06:00:00 UTC [71] FATAL:  sorry, too many clients already", "resource", "sqlstate:53300"),
        ("ERROR:  canceling statement due to statement timeout", "cancelled", "sqlstate:57014"),
        ('ERROR:  could not extend file "base/1/2": No space left on device', "resource", "sqlstate:53100"),
        ("FATAL:  terminating connection due to administrator command", "transient", "sqlstate:57P01"),
        (
            "  Database Error in model orders\n  ERROR:  permission denied for table orders",
            "permission",
            "sqlstate:42501",
        ),
        ('ERROR:  relation "mart.orders" does not exist', "contract", "sqlstate:42P01"),
        ('ERROR:  duplicate key value violates unique constraint "orders_pkey"', "data", "sqlstate:23505"),
        ('ERROR:  column "deadlock detected" does not exist', "contract", "sqlstate:42703"),
        (
            "snowflake.connector.errors.ProgrammingError: 000625 (57014): Statement reached its time limit.",
            "cancelled",
            "sqlstate:57014",
        ),
    ],
)
def test_a_servers_own_line_is_known(line: str, failure: str, code: str) -> None:
    """What psql, dbt and the server's log print carries no code; what it quotes is still passed over."""
    verdict = told(line)
    assert (str(verdict.failure), verdict.code) == (failure, code)


def test_such_words_in_an_exception_of_ones_own_decide_nothing() -> None:
    assert str(classify(ValueError("ERROR:  deadlock detected")).failure) != "contention"
