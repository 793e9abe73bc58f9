"""Playing the story: the server and the source here, Airflow in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from airflow_safe_ops.demo import show, story
from airflow_safe_ops.demo.attempts import attempts_of
from airflow_safe_ops.demo.compare import Comparison, compare
from airflow_safe_ops.demo.flights import load_flights
from airflow_safe_ops.demo.folder import (
    METADATA,
    WAREHOUSE,
    DemoError,
    Folder,
    airflow_environment,
    postgres_uri,
)
from airflow_safe_ops.demo.server import make_databases, running_server

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress

_STEPS = ("imported", "migrated", "parsed")
_PHASES = {
    "history": "history: one run a day, all green",
    "catch-up": "catch-up: every day again",
    "clears": "clears: some days once more",
    "kill": "a cleared run killed while it writes",
    "overlap": "two runs of one day at once",
}
_REMEMBER = "CREATE TABLE raw.demo AS SELECT %s::integer AS days, %s::integer AS seed"
_RECALL = "SELECT days, seed FROM raw.demo"


def play(out: Console, folder: Folder, days: int, seed: int) -> int:
    """
    The whole demo.

    :return: 0 if the safe twin holds its source and the appending DAG does not, else 1.
    :raises DemoError: something other than the comparison went wrong.
    """
    began = time.monotonic()
    plot = story.tell(days, seed)
    show.introduce(out, plot, folder)
    folder.clear_airflow()
    with show.progress(out) as bars, _stage(bars, folder, plot, seed) as socket:
        bars.stop()
        show.how_it_ran(out, time.monotonic() - began)
        return conclude(out, folder, socket)


def conclude(out: Console, folder: Folder, socket: Path) -> int:
    """Compare what the demo left, and print it; 1 if the safe twin is wrong or the other one right."""
    import psycopg

    with psycopg.connect(postgres_uri(WAREHOUSE, socket)) as warehouse:
        try:
            row = warehouse.execute(_RECALL).fetchone()
        except psycopg.errors.UndefinedTable:
            row = None
        if row is None:
            raise DemoError(f"The demo in {folder.root} was not played to its end. Start it again.")
        plot = story.tell(*row)
        result = compare(warehouse, plot.days)
        show.side_by_side(out, result, plot)
        worst = result.worst_days()[0]
        for day in dict.fromkeys((worst, plot.killed)):
            show.ledger_story(out, day, attempts_of(warehouse, day))
    show.verdict(out, result)
    show.next_steps(out, folder, worst)
    return exit_code(result)


def exit_code(result: Comparison) -> int:
    """The demo's word to `make`."""
    return 0 if result.safe_is_right and result.append_is_wrong else 1


@contextmanager
def _stage(bars: Progress, folder: Folder, plot: story.Story, seed: int) -> Iterator[Path]:
    """Everything up to the last run; the server goes on for the comparison."""
    import psycopg

    first = bars.add_task("PostgreSQL and the flights of 2013", total=3)
    with running_server(folder) as socket:
        make_databases(socket)
        bars.advance(first)
        with _engine(folder, socket, len(plot.days), seed) as engine:
            with psycopg.connect(postgres_uri(WAREHOUSE, socket)) as warehouse:
                rows = load_flights(warehouse)
            bars.update(first, completed=3, description=show.loaded(rows))
            engine.begin()
            _follow(bars, engine, plot)
        with psycopg.connect(postgres_uri(WAREHOUSE, socket)) as warehouse:
            warehouse.execute(_REMEMBER, (len(plot.days), seed))
        yield socket


def _follow(bars: Progress, engine: _Engine, plot: story.Story) -> None:
    """Turn the engine's events into bars."""
    airflow = bars.add_task("Airflow: tables and DAGs", total=len(_STEPS))
    many = {"history": len(plot.days), "catch-up": len(plot.days), "clears": len(plot.cleared)}
    tasks = {
        phase: bars.add_task(text, total=2 * many.get(phase, 2 if phase == "overlap" else 1), start=False)
        for phase, text in _PHASES.items()
    }
    for event in engine.events():
        if event["event"] == "step":
            bars.advance(airflow)
        elif event["event"] == "run":
            task = tasks[event["phase"]]
            bars.start_task(task)
            bars.advance(task)


class _Engine:
    """The process that plays, seen from here."""

    def __init__(self, process: subprocess.Popen[bytes], events: IO[str], log: Path) -> None:
        self._process = process
        self._events = events
        self._log = log

    def begin(self) -> None:
        """Tell it that the warehouse is loaded."""
        assert self._process.stdin is not None  # noqa: S101
        with suppress(BrokenPipeError):
            self._process.stdin.write(b"begin\n")
            self._process.stdin.close()

    def events(self) -> Iterator[dict[str, Any]]:
        """
        What it says, until it has done.

        :raises DemoError: it failed.
        """
        for line in self._events:
            event = json.loads(line)
            if event["event"] == "end":
                return
            if event["event"] == "failed":
                raise DemoError(f"{event['why']}\nWhat Airflow said: {self._log}")
            yield event
        raise DemoError(f"Airflow's process ended too early. What it said: {self._log}")


@contextmanager
def _engine(folder: Folder, socket: Path, days: int, seed: int) -> Iterator[_Engine]:
    """Start it; whatever happens, none of its processes outlives this block."""
    reader, writer = os.pipe()
    command = [sys.executable, "-m", "airflow_safe_ops.demo.engine"]
    command += ["--days", str(days), "--seed", str(seed), "--events-fd", str(writer)]
    command += ["--warehouse", postgres_uri(WAREHOUSE, socket), "--metadata", postgres_uri(METADATA, socket)]
    with folder.log.open("wb") as log, os.fdopen(reader) as events:
        process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=subprocess.STDOUT,
            pass_fds=[writer],
            env={**airflow_environment(folder, socket), "AIRFLOW__LOGGING__LOGGING_LEVEL": "WARNING"},
            start_new_session=True,
        )
        os.close(writer)
        try:
            yield _Engine(process, events, folder.log)
        finally:
            _end(process)


def _end(process: subprocess.Popen[bytes]) -> None:
    """End the process with everything it started; tasks are in process groups of their own."""
    import psutil

    with suppress(subprocess.TimeoutExpired):
        process.wait(timeout=10 if process.poll() is None and process.stdin and process.stdin.closed else 0)
    with suppress(psutil.NoSuchProcess):
        family = psutil.Process(process.pid)
        for each in [*family.children(recursive=True), family]:
            with suppress(psutil.NoSuchProcess):
                each.kill()
    process.wait()
