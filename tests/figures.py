"""
What the tests proved, as figures: how many kills, overlaps, histories and mutants, and what went wrong.

A test adds what it counted; each run of pytest prints its sums, and ``python -m tests.figures`` those of the last
run of every tier.
"""

from __future__ import annotations

import json
import os
from collections import ChainMap, Counter
from collections.abc import Iterable
from pathlib import Path

FOLDER = Path(__file__).parents[1] / "build" / "figures"
TIER = "SAFE_OPS_TIER"

# What is counted, and how it is told.
LINES = {
    "kills": "processes killed: {tried:,}; wrong tables afterwards: {wrong:,}",
    "commits": "COMMITs whose answer or request was lost: {tried:,}; wrong tables afterwards: {wrong:,}",
    "overlaps": "overlapping loads: {loads:,}; rows doubled or lost: {wrong:,}; deadlocks: {deadlocks:,}",
    "readers": "reads beside loads: {reads:,}; neither old nor new: {wrong:,}",
    "histories": (
        "random histories: {histories:,} with {steps:,} steps (overlaps {overlaps:,}, kills {kills:,}, moved keys "
        "{moved:,}, empty sources {empty:,}, NULLs {nulls:,}, duplicates {duplicates:,}, adopted tables {adopted:,}); "
        "wrong: {wrong:,}; seeds: {seeds}"
    ),
    "mutants": "mutants caught: {caught:,} of {planted:,}",
}


def _file() -> Path:
    return FOLDER / f"{os.environ.get(TIER, 'pytest')}.jsonl"


def begin() -> None:
    """Forget what the last run of this tier counted."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    _file().unlink(missing_ok=True)


def add(kind: str, **counts: int | str) -> None:
    """Add to what is told of a kind, in any process of the run: numbers are summed, words put one after the other."""
    assert all(f"{{{name}" in LINES[kind] for name in counts), f"{kind} does not tell all of {counts}"
    FOLDER.mkdir(parents=True, exist_ok=True)
    with _file().open("a", encoding="utf-8") as lines:
        lines.write(json.dumps([kind, counts]) + "\n")


def told(files: Iterable[Path]) -> list[str]:
    """The sums of the files, a line a kind."""
    sums: dict[str, Counter[str]] = {}
    words: dict[str, str] = {}
    for file in files:
        for line in file.read_text(encoding="utf-8").splitlines():
            kind, counts = json.loads(line)
            of_kind = sums.setdefault(kind, Counter())
            for name, value in counts.items():
                if isinstance(value, str):
                    words[name] = f"{words[name]} {value}" if name in words else value
                else:
                    of_kind[name] += value
    return [text.format_map(ChainMap(words, sums[kind])) for kind, text in LINES.items() if kind in sums]


def told_here() -> list[str]:
    """The sums of this run."""
    return told([_file()] if _file().exists() else [])


if __name__ == "__main__":
    print(*told(sorted(FOLDER.glob("*.jsonl"))), sep="\n")  # noqa: T201 - it is a command
