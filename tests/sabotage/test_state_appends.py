"""What a table and the ledger hold after `append_once`: each row once, each slice, and nobody else's."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import psycopg

from airflow_safe_ops.definition.load import Load
from airflow_safe_ops.definition.partition import TimePartition, WholeTable
from airflow_safe_ops.execution.record import Recorder
from airflow_safe_ops.execution.session import Session
from airflow_safe_ops.ledger.claims import Patience
from airflow_safe_ops.sql.dialect import dialect_for
from tests.sabotage.scene import D1, D2, RUN, Sales, tried

if TYPE_CHECKING:
    from tests.conftest import Database

ONCE: dict[str, Any] = {"strategy": "append_once"}


def test_the_same_rows_are_adopted_after_the_ledger_was_lost(db: Database) -> None:
    sales = Sales(db, [(D1, 1, 1)])
    sales.tried(**ONCE)
    db.execute("DROP SCHEMA safe_ops CASCADE")
    sales.tried(**ONCE, on_unledgered="adopt")
    assert sales.rows() == [(D1, 1, 1)]
    assert sales.partitions() == [("day=2026-01-02..2026-01-03", 1)]


def test_rows_that_nobody_recorded_are_not_its_own(db: Database) -> None:
    sales = Sales(db, [(D1, 1, 1)], held=[(D1, 7, 7)])
    sales.tried(**ONCE)
    assert (sales.rows(), sales.partitions()) == ([(D1, 7, 7)], [])


def test_other_rows_of_the_same_number_are_told(db: Database) -> None:
    sales = Sales(db, [(D1, 1, 1)])
    sales.tried(**ONCE)
    sales.becomes((D1, 1, 2))
    sales.tried(**ONCE)
    assert sales.attempts() == [("published", None), ("failed", "SO-113")]


def test_what_was_declared_invalid_is_appended_again(db: Database) -> None:
    sales = Sales(db, [(D1, 1, 1)])
    sales.tried(**ONCE)
    db.execute("DELETE FROM sales")
    session = Session(partial(psycopg.connect, db.uri), dialect_for("postgresql"), label="safe_ops", comment="")
    session.open()
    Recorder(session, RUN, "sales", Patience()).invalidate([TimePartition("day", start=D1, end=D2)])
    session.close()
    sales.tried(**ONCE)
    assert sales.rows() == [(D1, 1, 1)]


def _of_file(name: str) -> Load:
    return Load(
        **ONCE,
        table="events",
        sql="SELECT id FROM raw_events WHERE file = :source_slice",
        partition=WholeTable(),
        source_slice=name,
        source_slice_column="file",
    )


def _files(db: Database) -> None:
    """Two files of events, and an empty table that keeps the file's name."""
    db.execute(
        "CREATE TABLE raw_events (id int, file text); CREATE TABLE events (LIKE raw_events);"
        "INSERT INTO raw_events VALUES (1, 'a'), (2, 'b')"
    )


def test_each_slice_is_appended(db: Database) -> None:
    _files(db)
    for name in ("a", "b", "a", "b"):
        tried(db.uri, _of_file(name))
    assert db.execute("SELECT id, file FROM events ORDER BY id") == [(1, "a"), (2, "b")]


def test_rows_beside_a_slice_are_not_replaced(db: Database) -> None:
    _files(db)
    tried(db.uri, _of_file("a"))
    db.execute("INSERT INTO events VALUES (7, 'by hand')")
    tried(db.uri, Load(table="events", sql="SELECT id, file FROM raw_events", partition=WholeTable()))
    assert db.execute("SELECT id FROM events ORDER BY id") == [(1,), (7,)]
