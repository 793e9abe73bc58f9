"""Fixtures of the contract suite."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests import servers

for _name in (
    "append_once",
    "checks",
    "columns",
    "delete_insert",
    "guards",
    "harness",
    "keys",
    "ledger",
    "merge",
    "postgres",
    "query",
    "refusals",
    "time_partitions",
    "value_partitions",
):
    pytest.register_assert_rewrite(f"tests.contract.{_name}")

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from sqlalchemy import Engine

    from tests.conftest import Database, PgServer
    from tests.contract.command_line import Said
    from tests.contract.postgres import PostgresWarehouse


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Tests of the pool itself need one."""
    is_about_pools = collection_path.name == "test_pgbouncer.py"
    return True if is_about_pools and config.option.server != servers.PGBOUNCER else None


@pytest.fixture(scope="module")
def shared_db(pg_server: PgServer) -> Iterator[Database]:
    """One database for all tests of a module; behind a pool, each transaction of a load is another session's."""
    database = pg_server.create()
    if servers.is_pool(database.folder):
        servers.open_sessions(database.uri, 2)
    yield database
    pg_server.drop(database)


@pytest.fixture(scope="module")
def shared_warehouse(shared_db: Database) -> PostgresWarehouse:
    """That database as a warehouse."""
    from tests.contract.postgres import PostgresWarehouse

    return PostgresWarehouse(shared_db)


@pytest.fixture
def postgres(shared_warehouse: PostgresWarehouse, monkeypatch: pytest.MonkeyPatch) -> PostgresWarehouse:
    """A warehouse on PostgreSQL, empty, by the driver that the hook prefers."""
    monkeypatch.setenv(f"AIRFLOW_CONN_{shared_warehouse.conn_id.upper()}", shared_warehouse.database.airflow_uri)
    shared_warehouse.reset()
    return shared_warehouse


@pytest.fixture
def new_postgres(db: Database, monkeypatch: pytest.MonkeyPatch) -> PostgresWarehouse:
    """A warehouse of the test's own, without a ledger; its database may be altered."""
    from tests.contract.postgres import PostgresWarehouse

    warehouse = PostgresWarehouse(db)
    monkeypatch.setenv(f"AIRFLOW_CONN_{warehouse.conn_id.upper()}", db.airflow_uri)
    return warehouse


@pytest.fixture
def metadata(monkeypatch: pytest.MonkeyPatch) -> Engine:
    """Airflow's own database: in memory, without tables."""
    import sqlalchemy.orm

    engine = sqlalchemy.create_engine("sqlite://", poolclass=sqlalchemy.StaticPool)
    monkeypatch.setattr("airflow.settings.Session", sqlalchemy.orm.scoped_session(sqlalchemy.orm.sessionmaker(engine)))
    return engine


@pytest.fixture
def cli(new_postgres: PostgresWarehouse, metadata: Engine, capfd: pytest.CaptureFixture[str]) -> Callable[..., Said]:
    """Run one command: its exit code, its output, its messages."""
    from airflow_safe_ops.cli.__main__ import safe_ops_parser

    def called(*argv: str) -> Said:
        capfd.readouterr()
        args, code = safe_ops_parser().parse_args(argv), 0
        try:
            args.func(args)
        except SystemExit as ended:
            code = int(ended.code or 0)
        return code, *capfd.readouterr()

    return called
