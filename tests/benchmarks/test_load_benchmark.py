"""The benchmark of loads runs from its command line, and its JSON is what a reader of results expects."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from statistics import median
from typing import Any

import pytest

pytestmark = pytest.mark.long

ROOT = Path(__file__).resolve().parents[2]
NAMES = [
    "delete_insert/hand_written",
    "delete_insert_no_checksum/hand_written",
    "merge_all_changed/hand_written",
    "merge_1pct_changed/hand_written",
]


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], str, Path]:
    """What one tiny run wrote and printed, and the folder that it was given. It sees by itself to equal outcomes."""
    folder, found = tmp_path_factory.mktemp("benchmark"), tmp_path_factory.mktemp("json") / "load.json"
    folder.chmod(0o755)
    command = [sys.executable, "-m", "benchmarks.load", "--quick", "--rows", "5000", "--rounds", "2", "--steps"]
    done = subprocess.run(
        [*command, "--dir", str(folder), "--json", str(found)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "AIRFLOW__CORE__LOAD_EXAMPLES": "True"},
    )
    assert done.returncode == 0, done.stderr
    return json.loads(found.read_text(encoding="utf-8")), done.stdout, folder


def test_each_ratio_is_ours_by_the_peers(ran: tuple[dict[str, Any], str, Path]) -> None:
    results = ran[0]["results"]
    assert [result["name"] for result in results] == NAMES
    for result in results:
        assert result["ours_s"] == median(result["ours_all_s"])
        assert result["peer_s"] == median(result["peer_all_s"])
        assert len(result["ours_all_s"]) == len(result["peer_all_s"]) == 2
        assert result["ratio"] == pytest.approx(result["ours_s"] / result["peer_s"], abs=1e-4)
        assert result["met"] is (result["ratio"] <= result["aim"])


def test_the_table_says_which_aim_is_missed(ran: tuple[dict[str, Any], str, Path]) -> None:
    written, said, _ = ran
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in said.splitlines() if line.startswith("| ")]
    verdicts = {row[0]: row[-1] for row in rows}
    for result in written["results"]:
        assert verdicts[result["name"]] == ("met" if result["met"] else "MISSED")
        assert result["met"] or result["name"] in said.splitlines()[-1]


def test_durability_is_a_real_servers(ran: tuple[dict[str, Any], str, Path]) -> None:
    server = ran[0]["about"]["postgresql"]
    assert [server[name] for name in ("fsync", "full_page_writes", "synchronous_commit")] == ["on", "on", "on"]


def test_the_facts_and_the_steps_of_both_strategies_are_there(ran: tuple[dict[str, Any], str, Path]) -> None:
    written, _, _ = ran
    units = {fact["name"]: fact["unit"] for fact in written["facts"]}
    assert units["price of the checksum"] == units["a load of 1,000 rows"] == "ms"
    memory = [fact["value"] for fact in written["facts"] if fact["unit"] == "MB"]
    assert len(memory) == (2 if sys.platform == "linux" else 0)
    assert all(0 < rise < 100 for rise in memory)
    steps = written["about"]["steps"]
    assert all(seconds >= 0 for side in steps.values() for load in side.values() for seconds in load.values())
    assert {"stage.fill", "target.delete", "target.count", "commit"} <= set(steps["delete_insert"]["ours"])
    assert {"stage.fill", "target.update", "target.count", "commit"} <= set(steps["merge_all_changed"]["ours"])


def test_nothing_is_left_behind(ran: tuple[dict[str, Any], str, Path]) -> None:
    assert list(ran[2].iterdir()) == []
