"""Servers, sessions and logins that are set up unlike the author's: the same rows, or a clear refusal."""

from __future__ import annotations

import json
import threading
from datetime import UTC, date, datetime, timedelta
from itertools import count
from typing import TYPE_CHECKING, Any

import pytest

from airflow_safe_ops import IdempotentLoadOperator, TimePartition, ValuePartition
from airflow_safe_ops.errors import SafeOpsError
from airflow_safe_ops.ledger.migrations import ledger_ddl
from airflow_safe_ops.sql.ledger import LedgerSql
from airflow_safe_ops.sql.ledger_tables import MIGRATIONS
from tests import servers
from tests.contract.harness import D1, SALES_SQL, raised, run, sale
from tests.contract.postgres import PostgresWarehouse

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.conftest import Database, PgServer

MERGE: dict[str, Any] = {"strategy": "merge", "unique_key": ["day", "id"]}
CHICAGO = "timezone=America/Chicago"
_logins = count(1)  # a pool keeps the sessions of one that is gone
EVENTS_SQL = "SELECT at, n FROM raw_events WHERE at >= :partition_start AND at < :partition_end"


def connect_with(
    monkeypatch: pytest.MonkeyPatch, warehouse: PostgresWarehouse, login: str = "postgres", **extra: Any
) -> None:
    """Airflow's connection, with a login or with extra settings."""
    connection = {
        "conn_type": "postgres",
        "host": "localhost",
        "login": login,
        "password": "",
        "schema": warehouse.database.name,
        "extra": {"host": str(warehouse.database.folder), **extra},
    }
    monkeypatch.setenv(f"AIRFLOW_CONN_{warehouse.conn_id.upper()}", json.dumps(connection))


@pytest.fixture
def set_sessions(pg_server: PgServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., None]]:
    """
    Set the sessions of a warehouse's loads to something else, until the end of the test.

    By the options of Airflow's connection; before a pool, which takes none, by a login that has these settings. It
    has to come after the warehouse among a test's arguments.
    """
    made: list[tuple[PostgresWarehouse, str]] = []

    def by_options(warehouse: PostgresWarehouse, *settings: str) -> None:
        connect_with(monkeypatch, warehouse, options=" ".join(f"-c {setting}" for setting in settings))

    def by_login(warehouse: PostgresWarehouse, *settings: str) -> None:
        login = f"login_{next(_logins)}"
        warehouse.execute(f"CREATE ROLE {login} SUPERUSER LOGIN")
        made.append((warehouse, login))
        for setting in settings:
            name, _, value = setting.partition("=")
            values = ", ".join(f"'{part}'" for part in value.replace("\\", "").split(","))
            warehouse.execute(f"ALTER ROLE {login} SET {name} = {values}")
        connect_with(monkeypatch, warehouse, login)

    yield by_login if servers.is_pool(pg_server.folder) else by_options
    for warehouse, login in made:
        warehouse.execute(f"REASSIGN OWNED BY {login} TO postgres; DROP ROLE {login}")


@pytest.fixture
def login(new_postgres: PostgresWarehouse) -> Any:
    """A login that may read and write the tables of the tests, and nothing else."""
    new_postgres.execute("DROP ROLE IF EXISTS loader; CREATE ROLE loader LOGIN")
    yield "loader"
    new_postgres.execute("DROP OWNED BY loader; DROP ROLE loader")


class TestSessions:
    """What a session is set to by others changes nothing."""

    SETTINGS = (
        CHICAGO,
        "timezone=Pacific/Apia",
        "datestyle=SQL,DMY",
        "datestyle=German",
        "default_transaction_isolation=repeatable\\ read",
        "default_transaction_isolation=serializable",
        "default_transaction_deferrable=on",
        "standard_conforming_strings=off",
        "search_path=public,pg_temp",
        "extra_float_digits=-15",
        "intervalstyle=sql_standard",
        "client_encoding=LATIN1",
        "enable_hashjoin=off",
    )

    @pytest.mark.parametrize("setting", SETTINGS)
    def test_the_same_rows_whatever_the_session_is_set_to(
        self, postgres: PostgresWarehouse, driver: str, setting: str, set_sessions: Callable[..., None]
    ) -> None:
        """
        A month's window given as text was taken in the session's zone by one statement and as instants by another
        (dbt-labs/dbt-core#11417, dbt-labs/dbt-adapters#955): bounds are typed, each statement takes the same rows.
        """
        set_sessions(postgres, setting)
        for kind in ("date", "timestamp", "timestamptz"):
            first = datetime(2026, 1, 2, tzinfo=UTC)
            moments = [first + timedelta(hours=n) for n in (-1, 0, 5, 23, 24)]
            if kind != "timestamptz":
                moments = [moment.replace(tzinfo=None) for moment in moments]
            postgres.create("raw_events", {"at": kind, "n": "int"}, [(m, n) for n, m in enumerate(moments)])
            postgres.create(f"events_{kind}", {"at": kind, "n": "int"})
            options = {"table": f"events_{kind}", "sql": EVENTS_SQL, "partition": TimePartition("at")}
            postgres.load(run(D1), **options)
            merged = postgres.load(run(D1), **options, strategy="merge", unique_key=["n"])
            assert merged["rows_unchanged"] == 3
            assert postgres.rows(f"events_{kind}", "n") == [(1,), (2,), (3,)]
        keys = {key for key, *_ in postgres.partitions()}
        assert keys == {"at=2026-01-02..2026-01-03", "at=2026-01-02..2026-01-03@UTC"}

    @pytest.mark.parametrize("level", ["repeatable read", "serializable"])
    def test_an_isolation_level_of_the_database(self, new_postgres: PostgresWarehouse, level: str) -> None:
        name = new_postgres.database.name
        new_postgres.execute(f"ALTER DATABASE {name} SET default_transaction_isolation = '{level}'")
        new_postgres.sales([sale(D1, 1, "1")])
        new_postgres.load_twice()
        new_postgres.load_twice(**MERGE)
        assert new_postgres.rows("sales") == [sale(D1, 1, "1")]

    @pytest.mark.parametrize("how", ["role", "options", "environment"])
    def test_a_hostile_zone_by_role_or_connection(
        self, new_postgres: PostgresWarehouse, login: str, how: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A pool takes no options, but the zone that the driver's library finds in the environment."""
        new_postgres.execute("GRANT ALL ON DATABASE " + new_postgres.database.name + " TO loader")
        by_options = how == "options" and not servers.is_pool(new_postgres.database.folder)
        connect_with(monkeypatch, new_postgres, login, **({"options": f"-c {CHICAGO}"} if by_options else {}))
        if how == "role":
            new_postgres.execute("ALTER ROLE loader SET timezone = 'America/Chicago'")
        elif not by_options:
            monkeypatch.setenv("PGTZ", "America/Chicago")
        new_postgres.create("raw_events", {"at": "timestamp", "n": "int"}, [(datetime(2025, 2, 28, 18, 19), 1)])
        new_postgres.create("events", {"at": "timestamp", "n": "int"})
        new_postgres.execute("GRANT ALL ON ALL TABLES IN SCHEMA public TO loader")
        february = run(date(2025, 2, 1), date(2025, 3, 1))
        month = TimePartition("at", grain="month")
        new_postgres.load_twice(february, table="events", sql=EVENTS_SQL, partition=month)
        assert len(new_postgres.rows("events")) == 1

    @pytest.mark.parametrize(
        ("kind", "given"), [("date", "2026-01-02"), ("timestamptz", "2026-01-02T00:00:00+00:00"), ("float8", 0.1)]
    )
    def test_a_value_is_one_partition_in_every_session(
        self, new_postgres: PostgresWarehouse, kind: str, given: Any, set_sessions: Callable[..., None]
    ) -> None:
        """Two sessions that write one value differently must still meet at one claim and one record."""
        new_postgres.create("raw_parts", {"p": kind, "id": "int"})
        new_postgres.execute(f"INSERT INTO raw_parts VALUES ('{given}', 1)")
        new_postgres.create("parts", {"p": kind, "id": "int"})
        for settings in (
            [CHICAGO],
            ["timezone=UTC", "datestyle=SQL,DMY", "extra_float_digits=-15"],
        ):
            set_sessions(new_postgres, *settings)
            new_postgres.load(
                table="parts", partition=ValuePartition(p=given), sql="SELECT p, id FROM raw_parts WHERE p = :p"
            )
        assert len(new_postgres.partitions()) == 1
        assert new_postgres.ledger("attempt", "changed", "ORDER BY started_at") == [(True,), (False,)]

    def test_a_dict_cursor(self, new_postgres: PostgresWarehouse, driver: str, monkeypatch: pytest.MonkeyPatch) -> None:
        connect_with(monkeypatch, new_postgres, cursor="dictcursor")
        new_postgres.sales([sale(D1, 1, "1")])
        new_postgres.load_twice()
        new_postgres.load_twice(**MERGE)
        assert new_postgres.rows("sales") == [sale(D1, 1, "1")]

    def test_the_database_sees_who_runs_it(self, postgres: PostgresWarehouse, driver: str) -> None:
        postgres.create("seen", {"name": "text", "query": "text"})
        sql = "SELECT application_name AS name, query FROM pg_stat_activity WHERE pid = pg_backend_pid()"
        context = run(D1, dag_id="shop", task_id="load_it", run_id="manual__7", try_number=3)
        postgres.load(context, table="seen", sql=sql, partition="*")
        ((name, query),) = postgres.rows("seen")
        assert "shop.load_it" in name
        assert query.startswith("/* ")
        assert all(
            f"{key}={value}" in query
            for key, value in [("dag", "shop"), ("task", "load_it"), ("run", "manual__7"), ("try", "3")]
        )

    def test_nothing_of_a_session_is_left_behind(self, postgres: PostgresWarehouse) -> None:
        postgres.sales([sale(D1, 1, "1")])
        postgres.load_twice()
        left = "SELECT count(*) FROM pg_class WHERE relpersistence = 't' OR relname LIKE 'safe_ops_stage%'"
        assert postgres.execute(left) == [(0,)]


class TestServers:
    """Servers and connections that cannot be loaded into."""

    def test_a_server_that_only_reads(self, new_postgres: PostgresWarehouse, driver: str) -> None:
        new_postgres.sales([sale(D1, 1, "1")])
        new_postgres.execute(f"ALTER DATABASE {new_postgres.database.name} SET default_transaction_read_only = on")
        new_postgres.refused("SO-503")

    @pytest.mark.parametrize("kind", ["sqlite", "http", "mysql"])
    def test_a_connection_without_a_dialect(self, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
        monkeypatch.setenv("AIRFLOW_CONN_ELSEWHERE", json.dumps({"conn_type": kind, "host": "/nowhere"}))
        operator = IdempotentLoadOperator(
            task_id="load", conn_id="elsewhere", table="sales", sql=SALES_SQL, partition=TimePartition("day")
        )
        assert raised(lambda: operator.execute(run(D1))).code == "SO-307"


class TestLedgerPlace:
    """Where the ledger is, and who may make and write it."""

    def test_a_second_ledger_in_one_database(
        self, new_postgres: PostgresWarehouse, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        new_postgres.sales([sale(D1, 1, "1")])
        new_postgres.load()
        monkeypatch.setenv("AIRFLOW__SAFE_OPS__LEDGER_SCHEMA", "other_ledger")
        new_postgres.refused("SO-502")
        assert new_postgres.execute("SELECT to_regnamespace('other_ledger')") == [(None,)]

    @pytest.mark.parametrize("schema", ["Audit Log", 'it\'s "größe"', "50%"])
    def test_a_ledger_in_a_schema_of_any_name(
        self, db: Database, new_postgres: PostgresWarehouse, monkeypatch: pytest.MonkeyPatch, schema: str
    ) -> None:
        monkeypatch.setenv("AIRFLOW__SAFE_OPS__LEDGER_SCHEMA", schema)
        warehouse = PostgresWarehouse(db, ledger_schema=schema)
        warehouse.sales([sale(D1, 1, "1")])
        warehouse.load_twice()
        assert warehouse.states() == ["published", "published"]

    def test_a_login_that_may_not_make_the_ledger(
        self, new_postgres: PostgresWarehouse, login: str, driver: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        new_postgres.sales([sale(D1, 1, "1")])
        new_postgres.execute("GRANT ALL ON ALL TABLES IN SCHEMA public TO loader")
        connect_with(monkeypatch, new_postgres, login)
        new_postgres.refused("SO-501")
        assert new_postgres.execute("SELECT to_regnamespace('safe_ops')") == [(None,)]

    @pytest.mark.parametrize("made_by", ["load", "ddl"])
    def test_the_same_login_once_somebody_made_it(
        self, new_postgres: PostgresWarehouse, login: str, monkeypatch: pytest.MonkeyPatch, made_by: str
    ) -> None:
        new_postgres.sales([sale(D1, 1, "1")])
        if made_by == "ddl":
            new_postgres.execute(ledger_ddl(LedgerSql("safe_ops")))
        else:
            new_postgres.load()
        new_postgres.execute(
            "GRANT ALL ON ALL TABLES IN SCHEMA public TO loader; GRANT USAGE ON SCHEMA safe_ops TO loader"
        )
        connect_with(monkeypatch, new_postgres, login)
        new_postgres.refused("SO-501")
        new_postgres.execute("GRANT SELECT ON ALL TABLES IN SCHEMA safe_ops TO loader")
        new_postgres.refused("SO-501")
        new_postgres.execute(
            "GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA safe_ops TO loader;"
            "GRANT USAGE ON ALL SEQUENCES IN SCHEMA safe_ops TO loader"
        )
        new_postgres.load_twice()
        assert new_postgres.rows("sales") == [sale(D1, 1, "1")]

    def test_a_login_that_may_not_write_the_target(
        self, new_postgres: PostgresWarehouse, login: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        new_postgres.sales([sale(D1, 1, "1")])
        new_postgres.load()
        new_postgres.execute(
            "GRANT SELECT ON ALL TABLES IN SCHEMA public TO loader; GRANT USAGE ON SCHEMA safe_ops TO loader;"
            "GRANT ALL ON ALL TABLES IN SCHEMA safe_ops TO loader"
        )
        connect_with(monkeypatch, new_postgres, login)
        error = new_postgres.refused("SO-602")
        assert error.terminal

    def test_row_security_that_refuses_a_row(
        self, new_postgres: PostgresWarehouse, login: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A row that the policy takes, one that it refuses; rows that it hides are not replaced."""
        new_postgres.sales([sale(D1, 1, "1")])
        new_postgres.load()
        new_postgres.insert("sales", [sale(D1, 99, "9")])
        new_postgres.execute(
            "GRANT ALL ON ALL TABLES IN SCHEMA public TO loader; GRANT USAGE ON SCHEMA safe_ops TO loader;"
            "GRANT ALL ON ALL TABLES IN SCHEMA safe_ops TO loader;"
            "ALTER TABLE sales ENABLE ROW LEVEL SECURITY; CREATE POLICY p ON sales USING (id < 50)"
        )
        connect_with(monkeypatch, new_postgres, login)
        new_postgres.load_twice()
        assert new_postgres.rows("sales") == [sale(D1, 1, "1"), sale(D1, 99, "9")]
        new_postgres.source(sale(D1, 60, "1"))
        new_postgres.refused("SO-602")

    def test_eight_first_loads_make_one_ledger(self, new_postgres: PostgresWarehouse, driver: str) -> None:
        """Eighty times CREATE … IF NOT EXISTS at once gave forty errors: a race is looked at again."""
        days = [D1 + timedelta(days=n) for n in range(8)]
        new_postgres.sales([sale(day, n, n) for n, day in enumerate(days)])
        runners = [new_postgres.runner(run(day)) for day in days]
        together = threading.Barrier(len(days))
        errors: list[BaseException] = []

        def load(runner: Any) -> None:
            try:
                together.wait(30)
                runner.execute()
            except (SafeOpsError, threading.BrokenBarrierError) as error:
                errors.append(error)

        threads = [threading.Thread(target=load, args=(runner,)) for runner in runners]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert errors == []
        assert new_postgres.states() == ["published"] * 8
        assert len(new_postgres.rows("sales")) == 8
        assert new_postgres.execute("SELECT number FROM safe_ops.safe_ops_schema ORDER BY 1") == [
            (migration.number,) for migration in MIGRATIONS
        ]
        assert new_postgres.ledger("target", "count(*)") == [(1,)]
        assert new_postgres.claims() == []

    def test_a_first_load_that_is_refused_leaves_no_record(self, new_postgres: PostgresWarehouse) -> None:
        new_postgres.sales([sale(D1, 1, "1")])
        new_postgres.refused("SO-108", sql=SALES_SQL.replace(", amount", ""))
        assert new_postgres.ledger("attempt", "1") == []
