"""The fixtures of tests/conftest.py do what the other tests rely on."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import Database


@pytest.mark.parametrize("turn", [1, 2])
def test_each_test_has_a_database_of_its_own(db: Database, turn: int) -> None:
    db.execute("CREATE TABLE here (turn int); INSERT INTO here VALUES (1)")
    db.execute("UPDATE here SET turn = %(turn)s", {"turn": turn})
    assert db.execute("SELECT turn FROM here") == [(turn,)]
    assert db.execute("DELETE FROM here") == []


def test_a_connection_left_open_does_not_keep_the_database(db: Database) -> None:
    left_open = db.connect(autocommit=False)
    left_open.execute("CREATE TABLE never_committed (n int)")
    assert db.execute("SELECT count(*) FROM pg_tables WHERE tablename = 'never_committed'") == [(0,)]


def test_the_server_has_room_for_many_connections(db: Database) -> None:
    assert db.execute("SHOW max_connections") == [("200",)]
    assert int(db.execute("SHOW server_version_num")[0][0]) >= 150000


def test_the_hook_connects_with_either_driver(
    db: Database, driver: str, airflow_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from airflow.providers.postgres.hooks.postgres import PostgresHook

    monkeypatch.setenv("AIRFLOW_CONN_DWH", db.airflow_uri)
    connection = PostgresHook(postgres_conn_id="dwh").get_conn()
    try:
        with connection.cursor() as cursor:
            cursor.execute("SELECT current_database()")
            assert cursor.fetchone()[0] == db.name
        assert type(connection).__module__.split(".")[0] == driver
    finally:
        connection.close()
    assert os.environ["AIRFLOW_HOME"] == str(airflow_home)
    assert not (airflow_home / "airflow.db").exists()
