"""The demo as a user starts it, on five days: what it leaves, what it notices, and what an interruption leaves."""

from __future__ import annotations

import fcntl
import json
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

import psutil
import pytest

from airflow_safe_ops.demo import story
from airflow_safe_ops.demo.attempts import partition_key
from airflow_safe_ops.demo.flights import COLUMNS

if TYPE_CHECKING:
    from collections.abc import Iterator

DAYS, SEED = 5, 13
STORY = story.tell(DAYS, SEED)
BATCH = 100
ROWS = ", ".join(COLUMNS)
SOURCE = f"SELECT {ROWS} FROM raw.flights WHERE flight_date <= '{STORY.days[-1]}'"
TARGET = f"SELECT {ROWS} FROM mart.flights_daily"

pytestmark = pytest.mark.timeout(900)


@dataclass
class Demo:
    """A demo's folder and its commands."""

    folder: Path

    def command(self, *words: str) -> list[str]:
        name, *rest = words or ("",)
        return [
            sys.executable,
            "-m",
            "airflow_safe_ops.demo",
            *filter(None, [name]),
            "--dir",
            str(self.folder),
            *rest,
        ]

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(self.command(*words), capture_output=True, text=True, check=False)

    def play(self) -> subprocess.CompletedProcess[str]:
        return self.run("", "--days", str(DAYS), "--seed", str(SEED))

    def start(self) -> subprocess.Popen[bytes]:
        """Start a demo and return when it is in the middle of its history."""
        process = subprocess.Popen(
            self.command("", "--days", str(DAYS)), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        until = time.monotonic() + 300
        logs = self.folder / "airflow" / "logs"
        while len(list(logs.glob("dag_id=flights_daily/run_id=*/task_id=load/*.log"))) < 2:
            assert process.poll() is None, "the demo ended before its history"
            assert time.monotonic() < until, "no history"
            time.sleep(0.1)
        return process

    def sql(self, *statements: str) -> list[str]:
        done = self.run("shell", "psql", "-qAt", "-v", "ON_ERROR_STOP=1", *(w for s in statements for w in ("-c", s)))
        assert done.returncode == 0, done.stderr
        return done.stdout.split()

    def processes(self) -> list[str]:
        """Whatever still runs for this folder."""
        marks = (str(self.folder), quote(str(self.folder), safe=""))
        lines = [" ".join(each.info["cmdline"] or []) for each in psutil.process_iter(["cmdline"])]
        return [line for line in lines if any(mark in line for mark in marks)]


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Demo:
    """A demo that was played to its end."""
    played = Demo(tmp_path_factory.mktemp("demo") / "folder")
    done = played.play()
    assert done.returncode == 0, done.stdout + done.stderr
    assert "5 of 5 days" in done.stdout
    return played


@pytest.fixture
def tampered(demo: Demo) -> Iterator[Demo]:
    """The same; what a test does to the safe twin's table is undone."""
    demo.sql("CREATE TABLE raw.kept AS TABLE mart.flights_daily")
    yield demo
    demo.sql("TRUNCATE mart.flights_daily", "INSERT INTO mart.flights_daily TABLE raw.kept", "DROP TABLE raw.kept")
    assert demo.run("compare").returncode == 0


def test_the_safe_twin_holds_its_source_row_for_row(demo: Demo) -> None:
    assert demo.sql(f"SELECT count(*) FROM ({SOURCE} EXCEPT ALL {TARGET}) AS missing") == ["0"]
    assert demo.sql(f"SELECT count(*) FROM ({TARGET} EXCEPT ALL {SOURCE}) AS surplus") == ["0"]
    assert demo.sql("SELECT count(DISTINCT flight_date) FROM mart.flights_daily") == [str(DAYS)]


def test_the_appending_dag_has_a_copy_for_every_run_and_a_part_of_the_killed_one(demo: Demo) -> None:
    rows = [
        line.split("|")
        for line in demo.sql(
            "SELECT s.flight_date, count(*), max(n) FROM raw.flights AS s JOIN (SELECT flight_date, count(*) AS n "
            "FROM mart.flights_daily_append GROUP BY 1) AS t USING (flight_date) GROUP BY 1"
        )
    ]
    surplus = {date.fromisoformat(day): int(target) - 2 * int(source) for day, source, target in rows}
    source = {date.fromisoformat(day): int(source) for day, source, _ in rows}
    expected = dict.fromkeys(STORY.days, 0)
    expected |= {day: source[day] for day in STORY.cleared}
    expected |= {STORY.killed: BATCH, STORY.overlapped: 2 * source[STORY.overlapped]}
    assert surplus == expected


def test_the_ledger_tells_what_happened_to_each_day(demo: Demo) -> None:
    show = ("shell", "airflow", "safe-ops", "ledger", "show", "--conn-id", "warehouse", "--output", "json")
    days = json.loads(demo.run(*show, "--table", "mart.flights_daily").stdout)
    assert [day["partition"] for day in days] == [partition_key(day) for day in STORY.days]
    assert {day["state"] for day in days} == {"published"}
    assert {day["partition"]: day["lost"] for day in days if day["lost"]} == {partition_key(STORY.killed): 1}

    tries = json.loads(demo.run(*show, "--partition", partition_key(STORY.killed)).stdout)
    assert [each["state"] for each in tries] == ["published", "published", "lost", "published"]
    assert [(each["run_type"], each["clear_number"]) for each in tries] == [
        ("manual", 0), ("scheduled", 0), ("scheduled", 1), ("scheduled", 1)
    ]  # fmt: skip


def test_both_dags_suffered_the_same(demo: Demo) -> None:
    runs = demo.sql(
        "\\connect airflow",
        "SELECT dag_id, run_id, run_type, clear_number FROM dag_run",
    )
    events = [line.split("|", 1) for line in runs]
    suffered = {dag: sorted(event for name, event in events if name == dag) for dag in story.DAGS}
    assert suffered[story.APPEND_DAG] == suffered[story.SAFE_DAG]
    assert len(suffered[story.SAFE_DAG]) == 2 * DAYS + 1
    assert sum(event.endswith("|1") for event in suffered[story.SAFE_DAG]) == len(STORY.cleared) + 2


@pytest.mark.parametrize(
    ("damage", "rows"),
    [
        pytest.param("DELETE FROM mart.flights_daily WHERE ctid = {one}", 1, id="a row missing"),
        pytest.param("UPDATE mart.flights_daily SET distance = distance + 1 WHERE ctid = {one}", 2, id="a value"),
        pytest.param("UPDATE mart.flights_daily SET tailnum = NULL WHERE ctid = {one}", 2, id="a NULL"),
        pytest.param(
            "INSERT INTO mart.flights_daily SELECT " + ROWS.replace("flight_date", "DATE '2013-12-24'")
            + " FROM mart.flights_daily WHERE ctid = {one}", 1, id="a row of a day that was not loaded",
        ),
    ],
)  # fmt: skip
def test_one_wrong_row_is_exit_code_1(tampered: Demo, damage: str, rows: int) -> None:
    one = "(SELECT max(ctid) FROM mart.flights_daily WHERE tailnum IS NOT NULL)"
    tampered.sql(damage.format(one=one))
    done = tampered.run("compare")
    assert done.returncode == 1
    assert f"differs from its source by {rows} row" in done.stdout


def test_a_demo_in_which_appending_came_out_right_proves_nothing(tampered: Demo) -> None:
    tampered.sql(
        "CREATE TABLE raw.wrong AS TABLE mart.flights_daily_append",
        "TRUNCATE mart.flights_daily_append",
        f"INSERT INTO mart.flights_daily_append ({ROWS}) {SOURCE}",
    )
    done = tampered.run("compare")
    tampered.sql(
        "TRUNCATE mart.flights_daily_append",
        "INSERT INTO mart.flights_daily_append TABLE raw.wrong",
        "DROP TABLE raw.wrong",
    )
    assert done.returncode == 1
    assert "proved nothing" in done.stdout


def test_an_interrupted_demo_leaves_nothing_running_and_the_next_one_is_right(tmp_path: Path) -> None:
    demo = Demo(tmp_path / "folder")
    interrupted = demo.start()
    interrupted.send_signal(signal.SIGINT)
    assert interrupted.wait(timeout=60) == 130
    assert demo.processes() == []

    killed = demo.start()
    killed.kill()
    killed.wait()
    done = demo.play()
    assert done.returncode == 0, done.stdout + done.stderr
    assert demo.processes() == []


def test_a_folder_of_somebody_else_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("ten years")
    done = Demo(tmp_path).play()
    assert done.returncode == 2
    assert "is not empty and no demo made it" in done.stderr
    assert [each.name for each in tmp_path.iterdir()] == ["thesis.txt"]


def test_two_demos_in_one_folder_are_one_too_many(demo: Demo) -> None:
    with (demo.folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        done = demo.run("compare")
    assert done.returncode == 2
    assert "Another demo is running" in done.stderr
