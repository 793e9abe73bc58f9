"""PostgreSQL's failures, raised by the server itself, by both drivers: the class that each is of."""

from __future__ import annotations

import threading
import time
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
import psycopg2
import pytest

from airflow_safe_ops.failures.classify import classify
from tests.failures import caught, of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.conftest import Database

DRIVERS: dict[str, Any] = {"psycopg": psycopg, "psycopg2": psycopg2}
TABLES = """
    CREATE TABLE parent (id integer PRIMARY KEY);
    CREATE TABLE child (
        id integer PRIMARY KEY, parent integer REFERENCES parent, amount integer NOT NULL CHECK (amount > 0),
        code varchar(3), span int4range, EXCLUDE USING gist (span WITH &&));
    INSERT INTO parent VALUES (1), (2);
    CREATE VIEW evens AS SELECT id FROM parent WHERE id % 2 = 0 WITH CHECK OPTION;
    CREATE FUNCTION refuse() RETURNS void LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'not like this'; END $$;
    CREATE FUNCTION strict() RETURNS void LANGUAGE plpgsql AS
        $$ DECLARE n integer; BEGIN SELECT id INTO STRICT n FROM parent WHERE id < 0; END $$;
"""


SORT = "SELECT g FROM generate_series(1, 99999) g ORDER BY g"


class Connect:
    """Opens connections by one driver; all are closed at the end."""

    def __init__(self, driver: Any, uri: str) -> None:
        self.driver, self.uri = driver, uri
        self.opened: list[Any] = []

    def __call__(self, uri: str | None = None, *, user: str = "") -> Any:
        connection = self.driver.connect(uri or self.uri, **({"user": user} if user else {}))
        self.opened.append(connection)
        return connection


def run(connection: Any, *statements: str) -> None:
    with closing(connection.cursor()) as cursor:
        for statement in statements:
            cursor.execute(statement)


def one(*statements: str) -> Callable[[Connect], object]:
    return lambda connect: run(connect(), *statements)


@pytest.fixture(params=DRIVERS)
def connect(request: pytest.FixtureRequest, db: Database) -> Iterator[Connect]:
    db.execute(TABLES)
    opener = Connect(DRIVERS[request.param], db.direct_uri)
    yield opener
    for connection in opener.opened:
        connection.close()


def deadlock(connect: Connect) -> None:
    """Two sessions that each hold what the other wants."""
    first, second = connect(), connect()
    run(first, "SET deadlock_timeout = '10s'", "UPDATE parent SET id = id WHERE id = 1")
    run(second, "SET deadlock_timeout = '50ms'", "UPDATE parent SET id = id WHERE id = 2")
    other = threading.Thread(target=run, args=(first, "UPDATE parent SET id = id WHERE id = 2"))
    other.start()
    try:
        time.sleep(0.2)
        run(second, "UPDATE parent SET id = id WHERE id = 1")
    finally:
        second.rollback()
        other.join()


def serialization(connect: Connect) -> None:
    first, second = connect(), connect()
    run(first, "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ", "SELECT * FROM parent")
    run(second, "DELETE FROM parent WHERE id = 1")
    second.commit()
    run(first, "UPDATE parent SET id = 7 WHERE id = 1")


def locked(how: str) -> Callable[[Connect], object]:
    def work(connect: Connect) -> None:
        run(connect(), "LOCK TABLE parent")
        run(connect(), "SET lock_timeout = '50ms'", how)

    return work


def terminated(connect: Connect) -> None:
    victim, admin = connect(), connect()
    with closing(victim.cursor()) as cursor:
        cursor.execute("SELECT pg_backend_pid()")
        pid = cursor.fetchone()[0]
    run(admin, f"SELECT pg_terminate_backend({pid}, 5000)")
    run(victim, "SELECT 1")


def cancelled(connect: Connect) -> None:
    victim = connect()
    timer = threading.Timer(0.2, victim.cancel)
    timer.start()
    try:
        run(victim, "SELECT pg_sleep(10)")
    finally:
        timer.join()


def idle_too_long(connect: Connect) -> None:
    connection = connect()
    run(connection, "SET idle_in_transaction_session_timeout = '50ms'")
    time.sleep(0.3)
    run(connection, "SELECT 1")


@contextmanager
def role(connect: Connect, options: str) -> Iterator[str]:
    """A login that may do less than its maker."""
    admin = connect()
    name = f"safe_ops_{abs(hash(options)) % 10_000}_{admin.info.dbname}"
    run(admin, f"CREATE ROLE {name} LOGIN {options}")
    admin.commit()
    try:
        yield name
    finally:
        for connection in connect.opened:
            if connection is not admin:
                connection.close()
        admin.rollback()
        run(admin, f"DROP ROLE {name}")
        admin.commit()


def denied(connect: Connect) -> None:
    with role(connect, "NOSUPERUSER") as name:
        run(connect(user=name), "DELETE FROM parent")


def too_many(connect: Connect) -> None:
    with role(connect, "NOSUPERUSER CONNECTION LIMIT 1") as name:
        connect(user=name)
        connect(user=name)


def full_database(connect: Connect) -> None:
    with role(connect, "NOSUPERUSER") as name:
        admin = connect()
        admin.autocommit = True
        run(admin, f"ALTER DATABASE {admin.info.dbname} CONNECTION LIMIT 0")
        connect(user=name)


def wrong_password(connect: Connect) -> None:
    """One line of the server's own pg_hba.conf, taken back at once."""
    with role(connect, "PASSWORD 'right'") as name:
        admin = connect()
        admin.autocommit = True
        with closing(admin.cursor()) as cursor:
            cursor.execute("SHOW hba_file")
            file = Path(cursor.fetchone()[0])
        before = file.read_text()
        try:
            file.write_text(f"local all {name} scram-sha-256\n{before}")
            run(admin, "SELECT pg_reload_conf()")
            time.sleep(0.3)
            connect.opened.append(connect.driver.connect(connect.uri, user=name, password="wrong"))
        finally:
            file.write_text(before)
            run(admin, "SELECT pg_reload_conf()")


# what happens, how, of which class, with which SQLSTATE where the driver has one
ROWS: dict[str, tuple[Callable[[Connect], object], str, str]] = {
    "undefined table": (one("SELECT * FROM nowhere"), "contract", "42P01"),
    "undefined column": (one("SELECT nothing FROM parent"), "contract", "42703"),
    "undefined function": (one("SELECT nothing()"), "contract", "42883"),
    "undefined schema": (one("CREATE TABLE nowhere.t (a int)"), "contract", "3F000"),
    "syntax error": (one("SELEC 1"), "contract", "42601"),
    "not in a transaction": (one("VACUUM parent"), "contract", "25001"),
    "permission denied": (denied, "permission", "42501"),
    "deadlock": (deadlock, "contention", "40P01"),
    "serialization failure": (serialization, "contention", "40001"),
    "lock timeout": (locked("UPDATE parent SET id = 3"), "contention", "55P03"),
    "nowait": (locked("LOCK TABLE parent NOWAIT"), "contention", "55P03"),
    "statement timeout": (one("SET statement_timeout = '50ms'", "SELECT pg_sleep(9)"), "cancelled", "57014"),
    "cancelled by a person": (cancelled, "cancelled", "57014"),
    "terminated backend": (terminated, "transient", "57P01 or none"),
    "idle in transaction": (idle_too_long, "transient", "25P03 or none"),
    "too many connections of a role": (too_many, "resource", ""),
    "too many connections of a database": (full_database, "resource", ""),
    "temporary files": (
        one("SET temp_file_limit = '64kB'", "SET work_mem = '64kB'", SORT),
        "resource",
        "53400",
    ),
    "unique": (one("INSERT INTO parent VALUES (1)"), "data", "23505"),
    "foreign key": (one("INSERT INTO child VALUES (1, 9, 1)"), "data", "23503"),
    "check": (one("INSERT INTO child VALUES (1, 1, 0)"), "data", "23514"),
    "not null": (one("INSERT INTO child VALUES (1, 1, NULL)"), "data", "23502"),
    "exclusion": (
        one(*(f"INSERT INTO child VALUES ({n}, 1, 1, 'a', '[1,5)')" for n in (1, 2))), "data", "23P01",
    ),
    "bad cast": (one("SELECT 'x'::integer"), "data", "22P02"),
    "division by zero": (one("SELECT 1 / 0"), "data", "22012"),
    "out of range": (one("SELECT 99999::smallint"), "data", "22003"),
    "too long": (one("INSERT INTO child VALUES (1, 1, 1, 'long')"), "data", "22001"),
    "bad date": (one("SELECT '2026-02-30'::date"), "data", "22008"),
    "two rows for one": (one("SELECT (SELECT id FROM parent)"), "data", "21000"),
    "outside of a view": (one("INSERT INTO evens VALUES (5)"), "data", "44000"),
    "raised by a function": (one("SELECT refuse()"), "data", "P0001"),
    "no row where one must be": (one("SELECT strict()"), "data", "P0002"),
    "read only": (one("SET TRANSACTION READ ONLY", "DELETE FROM parent"), "contract", "25006"),
    "no such database": (lambda connect: connect(connect.uri.replace("test_", "no_such_")), "contract", ""),
    "no such role": (lambda connect: connect(user="no_such_role"), "permission", ""),
    "wrong password": (wrong_password, "permission", ""),
    "no such server": (lambda connect: connect("host=/nowhere dbname=x"), "transient", ""),
    "not a query": (lambda connect: run(connect(), "SELECT %(x)s"), "contract", "42601"),
}  # fmt: skip


@pytest.mark.parametrize("what", ROWS)
def test_class(connect: Connect, what: str) -> None:
    """The SQLSTATE decides, not the exception: psycopg has no class of its own for what happens while it connects."""
    work, expected, states = ROWS[what]
    error = caught(lambda: work(connect))
    failure, code = of(error)
    assert failure == expected, repr(error)
    assert code.removeprefix("sqlstate:") in states.replace("none", "").split(" or "), repr(error)


def test_a_terminated_backend_is_noticed_by_every_later_statement(connect: Connect) -> None:
    caught(lambda: terminated(connect))
    later = caught(lambda: run(connect.opened[0], "SELECT 1"))
    assert classify(later).failure == "transient", repr(later)
