"""Start dates that move: what a file computes from the clock."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

_CLOCK = frozenset({"now", "utcnow", "today", "yesterday", "tomorrow", "days_ago"})
_MAYBE = re.compile(rf"\b({'|'.join(sorted(_CLOCK))})\s*\(")
_MOST_BYTES = 1_000_000


@dataclass(frozen=True)
class ClockDates:
    """
    The DAGs of one file whose start date is computed from the clock.

    :param dag_ids: those whose id stands in the file as text, with the line.
    :param every_line: the line of the first, where all DAGs of the file are made like that; else 0.
    """

    dag_ids: dict[str, int]
    every_line: int = 0

    def line_of(self, dag_id: str) -> int:
        """The line that makes the DAG with a moving start date; 0: it has none."""
        return self.dag_ids.get(dag_id, self.every_line)


def clock_dates_of_file(path: str) -> ClockDates:
    """
    What :func:`clock_dates` says of a file; nothing for one that cannot be read.

    :param path: a Python file.
    """
    try:
        stat = Path(path).stat()
    except (OSError, ValueError):
        return ClockDates({})
    return _of_file(path, stat.st_mtime_ns, stat.st_size)


@lru_cache(maxsize=256)
def _of_file(path: str, _changed: int, size: int) -> ClockDates:
    if size > _MOST_BYTES or not path.endswith(".py"):
        return ClockDates({})
    try:
        return clock_dates(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError, SyntaxError):
        return ClockDates({})


def clock_dates(source: str) -> ClockDates:
    """
    Find the DAGs of a file whose start date comes from ``now()``, ``today()``, ``days_ago()`` and their like.

    A date that is rounded to the day looks like any other; only the file tells. A value is followed through names
    and through ``default_args``, not through functions or other files. The answer depends on the file alone, so it
    is the same at each parse.

    :param source: the file's text.
    :raises SyntaxError: it is no Python.
    """
    if "start_date" not in source or not _MAYBE.search(source):
        return ClockDates({})
    tree = ast.parse(source)
    moving = _moving_names(tree)
    known: dict[str, int] = {}
    lines: list[int] = []
    for call, name in _dag_calls(tree):
        line = call.lineno if _starts_by_clock(call, moving) else 0
        lines.append(line)
        if name and line:
            known[name] = line
    return ClockDates(known, min(lines) if lines and all(lines) else 0)


def _moving_names(tree: ast.Module) -> frozenset[str]:
    """The names that are given a value from the clock, or a dict with such a start date."""
    moving: frozenset[str] = frozenset()
    for node in ast.walk(tree):
        if not isinstance(node, ast.Assign | ast.AnnAssign) or node.value is None:
            continue
        value = _start_in(node.value) if isinstance(node.value, ast.Dict) else node.value
        if value is not None and _is_by_clock(value, moving):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            moving |= {target.id for target in targets if isinstance(target, ast.Name)}
    return moving


def _dag_calls(tree: ast.Module) -> Iterator[tuple[ast.Call, str]]:
    """Each ``DAG(…)`` and ``@dag(…)`` with the DAG's id, empty where it is computed."""
    decorated = {
        id(decorator): node.name
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef)
        for decorator in node.decorator_list
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and _called(node) in ("DAG", "dag"):
            given = next((keyword.value for keyword in node.keywords if keyword.arg == "dag_id"), None)
            given = given or (node.args[0] if node.args else None)
            if given is None:
                yield node, decorated.get(id(node), "")
            else:
                yield node, str(given.value) if isinstance(given, ast.Constant) else ""


def _starts_by_clock(call: ast.Call, moving: frozenset[str]) -> bool:
    given = {keyword.arg: keyword.value for keyword in call.keywords}
    if "start_date" in given:
        return _is_by_clock(given["start_date"], moving)
    defaults = given.get("default_args")
    if isinstance(defaults, ast.Dict):
        value = _start_in(defaults)
        return value is not None and _is_by_clock(value, moving)
    return isinstance(defaults, ast.Name) and defaults.id in moving


def _start_in(node: ast.Dict) -> ast.expr | None:
    pairs = zip(node.keys, node.values, strict=True)
    return next((value for key, value in pairs if isinstance(key, ast.Constant) and key.value == "start_date"), None)


def _is_by_clock(value: ast.expr, moving: frozenset[str]) -> bool:
    return any(
        (isinstance(node, ast.Call) and _called(node) in _CLOCK) or (isinstance(node, ast.Name) and node.id in moving)
        for node in ast.walk(value)
    )


def _called(call: ast.Call) -> str:
    if isinstance(call.func, ast.Attribute):
        return call.func.attr
    return call.func.id if isinstance(call.func, ast.Name) else ""
