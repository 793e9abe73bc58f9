"""
The classification table: errors as they are really raised, and the class that each is of.

Files and SQLite are raised by the real thing. Databricks' errors are built from the driver's own classes, with
messages in the form of its documentation; MySQL's from stand-ins of the shape that PyMySQL, mysqlclient and MySQL
Connector document, since no MySQL driver is installed. Those of the network are in test_failures_network.py, those of
PostgreSQL in tests/contract/test_failures_postgres.py.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sqlite3
from importlib import import_module
from typing import TYPE_CHECKING, Any

import jinja2
import pytest
from airflow.providers.common.compat.sdk import (
    AirflowException,
    AirflowFailException,
    AirflowNotFoundException,
    AirflowSkipException,
    AirflowTaskTimeout,
)

from airflow_safe_ops.failures.classify import classify
from tests.failures import caught, of, raise_it, raised
from tests.unit.test_failures_network import STATUS

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

databricks: Any = import_module("databricks.sql.exc")


def of_airflow(name: str) -> Any:
    """An exception of Airflow, which moved to the SDK in 3.2."""
    homes = (import_module("airflow.sdk.exceptions"), import_module("airflow.exceptions"))
    return next(getattr(home, name) for home in homes if hasattr(home, name))


# --- SQLite -----------------------------------------------------------------------------------------------------


def busy(folder: Path) -> object:
    first, second = (sqlite3.connect(folder / "t.db", timeout=0) for _ in range(2))
    with contextlib.closing(first), contextlib.closing(second):
        first.execute("BEGIN IMMEDIATE")
        return second.execute("BEGIN IMMEDIATE")


def full(folder: Path) -> object:
    with contextlib.closing(sqlite3.connect(folder / "t.db")) as connection:
        connection.execute("PRAGMA max_page_count = 4")
        connection.execute("CREATE TABLE t (a)")
        return connection.execute("INSERT INTO t VALUES (zeroblob(1000000))")


def read_only(folder: Path) -> object:
    sqlite3.connect(folder / "t.db").close()
    with contextlib.closing(sqlite3.connect(f"file:{folder / 't.db'}?mode=ro", uri=True)) as connection:
        return connection.execute("CREATE TABLE t (a)")


def no_database(folder: Path) -> object:
    (folder / "t.db").write_bytes(b"not a database, though it is long enough" * 50)
    with contextlib.closing(sqlite3.connect(folder / "t.db")) as connection:
        return connection.execute("SELECT * FROM sqlite_master")


def in_memory(*statements: str) -> Callable[[Path], object]:
    def work(_: Path) -> object:
        with contextlib.closing(sqlite3.connect(":memory:")) as connection:
            for statement in statements:
                connection.execute(statement)
            return None

    return work


def interrupted(_: Path) -> object:
    with contextlib.closing(sqlite3.connect(":memory:")) as connection:
        connection.set_progress_handler(lambda: 1, 10)
        endless = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n"
        return connection.execute(endless).fetchall()


SQLITE: list[tuple[str, Callable[[Path], object], str]] = [
    ("busy", busy, "contention"),
    ("full", full, "resource"),
    ("read only", read_only, "permission"),
    ("no database", no_database, "data"),
    ("interrupted", interrupted, "cancelled"),
    ("no such table", in_memory("SELECT * FROM nowhere"), "contract"),
    ("syntax", in_memory("SELEC 1"), "contract"),
    ("cannot open", lambda folder: sqlite3.connect(folder / "no" / "t.db"), "contract"),
    ("unique", in_memory("CREATE TABLE t (a UNIQUE)", "INSERT INTO t VALUES (1), (1)"), "data"),
    ("not null", in_memory("CREATE TABLE t (a NOT NULL)", "INSERT INTO t VALUES (NULL)"), "data"),
    ("check", in_memory("CREATE TABLE t (a CHECK (a > 0))", "INSERT INTO t VALUES (0)"), "data"),
    ("type", in_memory("CREATE TABLE t (a INTEGER PRIMARY KEY)", "INSERT INTO t VALUES ('x')"), "data"),
]


@pytest.mark.parametrize(("work", "expected"), [row[1:] for row in SQLITE], ids=[row[0] for row in SQLITE])
def test_sqlite(tmp_path: Path, work: Callable[[Path], object], expected: str) -> None:
    verdict = classify(caught(lambda: work(tmp_path)))
    assert verdict.failure == expected
    assert verdict.code.startswith("sqlite:SQLITE_")


# --- the machine ------------------------------------------------------------------------------------------------


def write_to_full_disk(_: Path) -> None:
    with open("/dev/full", "w", buffering=1) as full_disk:  # noqa: PTH123 - what a task would write
        full_disk.write("x\n" * 10_000)


MACHINE: list[tuple[str, Callable[[Path], object], str, str]] = [
    ("disk full", write_to_full_disk, "resource", "errno:ENOSPC"),
    ("folder", lambda folder: folder.read_bytes(), "contract", "errno:EISDIR"),
    ("forbidden", lambda _: raise_it(PermissionError(13, "Permission denied")), "permission", "errno:EACCES"),
    ("files", lambda _: raise_it(OSError(24, "Too many open files")), "resource", "errno:EMFILE"),
    ("killed pipe", lambda _: write_to_closed_pipe(), "transient", "errno:EPIPE"),
    ("memory", lambda _: bytearray(1 << 62), "resource", ""),
    ("import", lambda _: __import__("no_such_module"), "contract", ""),
    ("type", lambda _: "1" + 1, "contract", ""),  # type: ignore[operator]
    ("name", lambda _: eval("nothing_of_that_name"), "contract", ""),  # noqa: S307 - raises
    ("attribute", lambda _: None.nothing, "contract", ""),  # type: ignore[attr-defined]
    ("bytes", lambda _: b"\xff".decode(), "data", ""),
    ("time-out", lambda _: asyncio.run(too_slow()), "transient", ""),
    ("interrupt", lambda _: raise_it(KeyboardInterrupt()), "cancelled", ""),
    ("exit", lambda _: raise_it(SystemExit(1)), "cancelled", ""),
    ("value", lambda _: int("x"), "unknown", ""),
    ("template", lambda _: strictly().render(), "contract", ""),
]  # fmt: skip


def write_to_closed_pipe() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    try:
        os.write(writing, b"x")
    finally:
        os.close(writing)


async def too_slow() -> None:
    async with asyncio.timeout(0.01):
        await asyncio.sleep(5)


def strictly() -> jinja2.Template:
    return jinja2.Environment(undefined=jinja2.StrictUndefined, autoescape=True).from_string("{{ nothing }}")


@pytest.mark.parametrize(("work", "expected", "code"), [row[1:] for row in MACHINE], ids=[row[0] for row in MACHINE])
def test_the_machine(tmp_path: Path, work: Callable[[Path], object], expected: str, code: str) -> None:
    assert of(caught(lambda: work(tmp_path))) == (expected, code)


# --- MySQL, by the shape that its drivers document ------------------------------------------------------------------


def mysql(number: int, said: str, module: str = "pymysql.err") -> BaseException:
    """``OperationalError(1213, 'Deadlock …')`` as PyMySQL and mysqlclient raise it; Connector has ``errno`` too."""
    error = type("OperationalError", (Exception,), {"__module__": module})(number, said)
    if module.startswith("mysql."):
        error.errno, error.sqlstate = number, "HY000"
    return raised(error)


MYSQL = [
    (1205, "contention"),
    (1213, "contention"),
    (3572, "contention"),
    (2002, "transient"),
    (2006, "transient"),
    (2013, "transient"),
    (1053, "transient"),
    (1040, "resource"),
    (1114, "resource"),
    (1044, "permission"),
    (1045, "permission"),
    (1142, "permission"),
    (1049, "contract"),
    (1054, "contract"),
    (1064, "contract"),
    (1146, "contract"),
    (1290, "contract"),
    (1062, "data"),
    (1048, "data"),
    (1452, "data"),
    (1366, "data"),
    (3024, "cancelled"),
    (1317, "cancelled"),
]


@pytest.mark.parametrize("module", ["pymysql.err", "MySQLdb._exceptions", "mysql.connector.errors"])
@pytest.mark.parametrize(("number", "expected"), MYSQL)
def test_mysql(number: int, expected: str, module: str) -> None:
    """apache/airflow#1978: a deadlock (1213) of two loads is contention: the whole unit is tried again."""
    assert of(mysql(number, "said", module)) == (expected, f"mysql:{number}")


# --- Databricks, by the driver's own classes ------------------------------------------------------------------------

CONFLICT = (
    "[DELTA_CONCURRENT_APPEND.WITH_PARTITION_HINT] Transaction conflict detected. A concurrent WRITE added data to "
    "table main.mart.t committed at version 7. SQLSTATE: 2D521"
)
DATABRICKS = [
    (CONFLICT, "contention"),
    ("[DELTA_CONCURRENT_DELETE_READ] A concurrent operation deleted data. SQLSTATE: 2D521", "contention"),
    ("[DELTA_METADATA_CHANGED] The metadata was changed by a concurrent update. SQLSTATE: 2D521", "contention"),
    ("[DELTA_PROTOCOL_CHANGED] The protocol was changed. SQLSTATE: 2D521", "contention"),
    ("[DELTA_REPLACE_WHERE_MISMATCH] Written data does not conform. SQLSTATE: 44000", "data"),
    ("[DELTA_MULTIPLE_SOURCE_ROW_MATCHING_TARGET_ROW_IN_MERGE] Cannot perform Merge. SQLSTATE: 21506", "data"),
    ("[DELTA_VIOLATE_CONSTRAINT_WITH_VALUES] CHECK constraint violated. SQLSTATE: 23001", "data"),
    ("[CAST_INVALID_INPUT] The value 'x' cannot be cast. SQLSTATE: 22018", "data"),
    ("[DIVIDE_BY_ZERO] Division by zero. SQLSTATE: 22012", "data"),
    ("[INSUFFICIENT_PERMISSIONS] Insufficient privileges: SQLSTATE: 42501", "permission"),
    ("PERMISSION_DENIED: User does not have MODIFY. [PERMISSION_DENIED]", "permission"),
    ("[TABLE_OR_VIEW_NOT_FOUND] The table or view `t` cannot be found. SQLSTATE: 42P01; line 1 pos 14", "contract"),
    ("[UNRESOLVED_COLUMN.WITH_SUGGESTION] A column cannot be resolved. SQLSTATE: 42703", "contract"),
    ("[PARSE_SYNTAX_ERROR] Syntax error at or near 'SELEC'. SQLSTATE: 42601", "contract"),
    ("no code at all", "unknown"),
]


@pytest.mark.parametrize(("said", "expected"), DATABRICKS, ids=[said.split("]")[0][1:] for said, _ in DATABRICKS])
def test_databricks(said: str, expected: str) -> None:
    """delta-io/delta#761, nrccua/aioradio#120: writers that conflict at commit try the whole unit again."""
    assert classify(raised(databricks.ServerOperationError(said, {"operation-id": "1"}))).failure == expected
    wrapped = raised(AirflowException(f"Error running SQL statement: {said}"))
    assert classify(wrapped).failure == expected


def test_databricks_behind_http() -> None:
    refused = databricks.RequestError("Error during request to server", {"http-code": 403})
    assert of(refused) == ("permission", "http:403")
    assert of(databricks.RequestError("Error during request to server", {"http-code": 503})) == (
        "transient",
        "http:503",
    )
    assert of(databricks.SessionAlreadyClosedError("gone", {})) == ("transient", "")
    reset = databricks.RequestError("x", {"original-exception": ConnectionResetError(104, "reset")})
    assert of(reset) == ("transient", "errno:ECONNRESET")


RUNS = {
    "CLOUD_FAILURE": "transient",
    "CLUSTER_ERROR": "transient",
    "DRIVER_ERROR": "transient",
    "INTERNAL_ERROR": "transient",
    "CLUSTER_REQUEST_LIMIT_EXCEEDED": "resource",
    "MAX_CONCURRENT_RUNS_EXCEEDED": "resource",
    "WORKSPACE_RUN_LIMIT_EXCEEDED": "resource",
    "UNAUTHORIZED_ERROR": "permission",
    "INVALID_RUN_CONFIGURATION": "contract",
    "RESOURCE_NOT_FOUND": "contract",
    "USER_CANCELED": "cancelled",
    "TIMEDOUT": "cancelled",
    "RUN_EXECUTION_ERROR": "unknown",
}


@pytest.mark.parametrize(("code", "expected"), RUNS.items())
def test_a_run_of_databricks_that_ended(code: str, expected: str) -> None:
    """The words of Airflow's DatabricksRunNowOperator, which prints the run's state."""
    said = (
        f"failed with terminal state: {{'life_cycle_state': 'TERMINATED', 'result_state': '{code}'}} and with the error"
    )
    assert classify(raised(AirflowException(f"DatabricksRunNowOperator {said}"))).failure == expected


# --- Airflow ------------------------------------------------------------------------------------------------------

AIRFLOW = [
    (AirflowFailException("no"), "contract"),
    (of_airflow("AirflowSensorTimeout")("late"), "late_input"),
    (of_airflow("TaskDeferralTimeout")("late"), "late_input"),
    (of_airflow("TaskDeferralError")("Trigger failure"), "unknown"),
    (AirflowTaskTimeout("too long"), "cancelled"),
    (AirflowSkipException("not today"), "cancelled"),
    (AirflowNotFoundException("The conn_id `x` isn't defined"), "contract"),
    (AirflowException("?"), "unknown"),
]


@pytest.mark.parametrize(("error", "expected"), AIRFLOW, ids=lambda value: type(value).__name__)
def test_airflow(error: BaseException, expected: str) -> None:
    """apache/airflow#36734, #33718, #43948, #19754: a sensor's time-out is late input, and is told from a skip."""
    assert of(raised(error)) == (expected, "")


def test_the_table_has_enough_rows() -> None:
    rows = 2 * len(STATUS) + len(SQLITE) + len(MACHINE) + len(MYSQL) + len(DATABRICKS) + len(RUNS) + len(AIRFLOW)
    assert rows >= 80
