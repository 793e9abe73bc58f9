"""One run of pytest on a copy of the repository, and what it says of a mutant."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.sabotage.mutant import PACKAGE, ROOT, Mutant
from tests.sabotage.witness import REPORT

COPIED = (PACKAGE, "tests", "dags", "docs", "pyproject.toml")
LEFT_OUT = shutil.ignore_patterns("__pycache__")
OURS = ("AIRFLOW_", "PYTEST_", "SAFE_OPS_", "XDG_")
SECONDS = 240


@dataclass(frozen=True)
class Verdict:
    """
    What became of a mutant.

    :param caught: a test failed by an assertion on what a database holds.
    :param why: that assertion, or why it does not count.
    """

    caught: bool
    why: str


def try_mutant(mutant: Mutant) -> Verdict:
    """Run the test that should catch it on a copy that has it."""
    with tempfile.TemporaryDirectory(prefix="sabotage-") as folder:
        root = _copy(Path(folder))
        mutant.plant(root)
        return judged(_pytest(root, [mutant.node]), root)


def try_unchanged(mutants: Sequence[Mutant]) -> list[str]:
    """Run all catching tests on a copy without a fault; which of them do not pass."""
    nodes = list(dict.fromkeys(mutant.node for mutant in mutants))
    with tempfile.TemporaryDirectory(prefix="sabotage-") as folder:
        root = _copy(Path(folder))
        told = _pytest(root, nodes)
        passed = {t["test"] for t in told["tests"] if t["phase"] == "call" and t["outcome"] == "passed"}
        broken = {t["test"] for t in told["tests"] if t["outcome"] != "passed"}
        return [*_strangers(told, root), *sorted((set(nodes) - passed) | broken)]


def judged(told: dict[str, Any], root: Path) -> Verdict:
    """What the run says of its mutant."""
    if not told["tests"]:
        return Verdict(False, f"no test ran: {told['output']}")
    if strangers := _strangers(told, root):
        return Verdict(False, f"another package ran: {strangers[:3]}")
    failures = [t for t in told["tests"] if t["outcome"] == "failed"]
    if not failures:
        return Verdict(False, f"nothing failed: {told['tests']}")
    first = failures[0]
    what = f"{first['where']}: {first['statement']} ({first['error']} in {first['phase']}: {first['said']})"
    caught = first["phase"] == "call" and first["state"]
    return Verdict(caught, what if caught else f"no assertion on what a database holds: {what}")


def _copy(folder: Path) -> Path:
    root = folder.resolve() / "copy"
    root.mkdir()
    for name in COPIED:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, root / name, ignore=LEFT_OUT)
        else:
            shutil.copy(ROOT / name, root / name)
    return root


def _pytest(root: Path, nodes: Sequence[str]) -> dict[str, Any]:
    """A run in a process of its own; what the witness saw."""
    report = root.parent / "report.json"
    environment = {name: value for name, value in os.environ.items() if not name.startswith(OURS)}
    environment |= {REPORT: str(report), "PYTHONDONTWRITEBYTECODE": "1"}
    options = ["-q", "-p", "tests.sabotage.witness", "-p", "no:cacheprovider", "--timeout", "200"]
    process = subprocess.Popen(
        [sys.executable, "-m", "pytest", *options, *nodes],
        cwd=root,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        output, _ = process.communicate(timeout=SECONDS + 5 * len(nodes))
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGINT)  # it stops its server
        output, _ = process.communicate(timeout=60)
    if not report.exists():
        return {"tests": [], "here": [], "child": None, "output": output[-4000:]}
    told: dict[str, Any] = json.loads(report.read_text(encoding="utf-8"))
    return {**told, "output": output[-4000:]}


def _strangers(told: dict[str, Any], root: Path) -> list[str]:
    """Modules of the package that did not come from the copy, in the tests' process or in their children."""
    ours = f"{root / PACKAGE}{os.sep}"
    here, child = told["here"], told["child"]
    found = [path for path in (*here, *(child or ())) if not path.startswith(ours)]
    if not here or child == []:
        found.append("unknown")
    return found
