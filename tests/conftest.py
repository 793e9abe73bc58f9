"""A folder of its own for Airflow, an embedded PostgreSQL per session, a fresh database per test."""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import hypothesis
import psycopg
import pytest

from tests import figures, servers

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

TESTS = Path(__file__).parent
MARKED_FOLDERS = ("contract", "crash", "sabotage", "system")


def _remove(folder: Path, owner: int) -> None:
    """Remove the folder when its owner ends, not when a fork of it does; after servers that stop at exit."""
    if os.getpid() == owner:
        shutil.rmtree(folder, ignore_errors=True)


def _own_environment() -> Path:
    """Airflow reads its settings when it is imported, so they are made here, before anything imports it."""
    home = Path(tempfile.mkdtemp(prefix="safe-ops-"))
    atexit.register(_remove, home, os.getpid())
    for name in [name for name in os.environ if name.startswith("AIRFLOW_")]:
        del os.environ[name]
    (home / "dags").mkdir()
    os.environ |= {
        "AIRFLOW_HOME": str(home),
        "AIRFLOW__CORE__DAGS_FOLDER": str(home / "dags"),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": f"sqlite:///{home / 'airflow.db'}",
        "AIRFLOW__USAGE_DATA_COLLECTION__ENABLED": "False",
    }
    # The embedded server keeps a lock file here. Its fallback is one file for all users of the machine, which
    # only the user who was first may open.
    runtime = home / "run"
    runtime.mkdir(mode=0o700)
    (runtime / "python_PostgresServer").mkdir()
    os.environ["XDG_RUNTIME_DIR"] = str(runtime)
    return home


AIRFLOW_HOME = _own_environment()

hypothesis.settings.register_profile("safe_ops", deadline=None, derandomize="CI" in os.environ)
hypothesis.settings.load_profile("safe_ops")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Which server the tests run against."""
    parser.addoption(
        "--server", choices=servers.SERVERS, default=servers.EMBEDDED, help="the server: see tests/servers.py"
    )


def pytest_configure(config: pytest.Config) -> None:
    """Install what the server needs, once and before any worker of pytest-xdist; or say what is missing."""
    if "PYTEST_XDIST_WORKER" in os.environ or config.option.collectonly:
        return
    try:
        servers.ensure_installed(config.option.server)
    except servers.MissingError as missing:
        raise pytest.UsageError(str(missing)) from None


def pytest_sessionstart(session: pytest.Session) -> None:
    """The figures of an earlier run are not this one's; a worker of pytest-xdist adds to the whole run's."""
    if "PYTEST_XDIST_WORKER" not in os.environ and not session.config.option.collectonly:
        figures.begin()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """What was proven, as figures."""
    if lines := figures.told_here():
        terminalreporter.section("figures")
        for line in lines:
            terminalreporter.write_line(line)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A test's folder is its tier, so that no slow test is fast because somebody forgot a marker."""
    for item in items:
        if not item.path.is_relative_to(TESTS):
            continue
        tier = item.path.relative_to(TESTS).parts[0]
        if tier in MARKED_FOLDERS:
            item.add_marker(tier)


@dataclass
class Database:
    """
    One database of the session's server, and the ways to reach it.

    `folder`, `uri` and `airflow_uri` are for loads, which go through the pool where there is one; what a test does or
    looks at by itself goes to the server.
    """

    name: str
    folder: Path
    _opened: list[psycopg.Connection[tuple[Any, ...]]] = field(default_factory=list, repr=False)

    @property
    def uri(self) -> str:
        """For loads, by libpq: psycopg, psycopg2."""
        return servers.uri(self.folder, self.name)

    @property
    def direct_uri(self) -> str:
        """For the test itself: a session of its own."""
        return servers.directly(self.uri)

    @property
    def airflow_uri(self) -> str:
        """For loads, as AIRFLOW_CONN_*."""
        return f"postgresql://postgres:@localhost/{self.name}?host={quote(str(self.folder), safe='')}"

    def connect(self, *, autocommit: bool = True) -> psycopg.Connection[tuple[Any, ...]]:
        """Open a connection to the server; it is closed with the test."""
        connection = psycopg.connect(self.direct_uri, autocommit=autocommit)
        self._opened.append(connection)
        return connection

    def execute(self, sql: str, params: Sequence[Any] | Mapping[str, Any] | None = None) -> list[tuple[Any, ...]]:
        """Run and commit one statement, or several without parameters; the rows of the last one, if any."""
        with psycopg.connect(self.direct_uri, autocommit=True) as connection:
            cursor = connection.execute(sql.encode(), params)
            while cursor.nextset():
                pass
            return cursor.fetchall() if cursor.description else []

    def close(self) -> None:
        """Close what `connect` opened."""
        for connection in self._opened:
            with suppress(psycopg.Error):
                connection.close()
        self._opened.clear()


@dataclass
class PgServer:
    """The session's server: makes and drops databases."""

    folder: Path
    admin: psycopg.Connection[tuple[Any, ...]]
    _made: int = 0

    def create(self) -> Database:
        """Make an empty database."""
        self._made += 1
        name = f"test_{self._made}"
        self.admin.execute(f"CREATE DATABASE {name} TEMPLATE template0 STRATEGY file_copy".encode())
        return Database(name, self.folder)

    def drop(self, database: Database) -> None:
        """Drop it, whoever is still connected."""
        database.close()
        self.admin.execute(f"DROP DATABASE IF EXISTS {database.name} WITH (FORCE)".encode())


@pytest.fixture(scope="session")
def pg_server(request: pytest.FixtureRequest) -> Iterator[PgServer]:
    """The server that `--server` names, on a Unix socket; one for each worker of pytest-xdist. Root or not."""
    with (
        servers.running(request.config.option.server) as folder,
        psycopg.connect(servers.uri(servers.behind(folder), "postgres"), autocommit=True) as admin,
    ):
        yield PgServer(folder, admin)


@pytest.fixture
def db(pg_server: PgServer) -> Iterator[Database]:
    """A fresh, empty database, dropped after the test."""
    database = pg_server.create()
    yield database
    pg_server.drop(database)


@pytest.fixture(scope="session")
def airflow_home() -> Path:
    """Airflow's folder for this session, empty: nothing has made a metadata database in it."""
    return AIRFLOW_HOME


@pytest.fixture(params=["psycopg", "psycopg2"])
def driver(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Each driver of the Postgres hook, in this process; SAFE_OPS_TEST_DRIVER tells a child process which."""
    from airflow.providers.postgres.hooks import postgres

    name: str = request.param
    monkeypatch.setattr(postgres, "USE_PSYCOPG3", name == "psycopg")
    monkeypatch.setenv("SAFE_OPS_TEST_DRIVER", name)
    return name
