"""Start dates that move: what a file computes from the clock."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from functools import lru_cache
from pathlib import Path

_CLOCK = frozenset({"now", "utcnow", "today", "yesterday", "tomorrow", "days_ago"})
_MAYBE = re.compile(rf"\b({'|'.join(sorted(_CLOCK))})\s*\(")
_MOST_BYTES = 1_000_000
_WITH_NAMES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)


@dataclass(frozen=True)
class ClockDates:
    """
    The DAGs of one file whose start date is computed from the clock.

    :param dag_ids: those whose id stands in the file as text, with the line.
    :param every_line: the line of the first, where all DAGs of the file are made like that; else 0.
    :param perhaps: as `dag_ids`, where another line, or another value of the date's name, may count instead.
    """

    dag_ids: dict[str, int]
    every_line: int = 0
    perhaps: dict[str, int] = field(default_factory=dict)

    def line_of(self, dag_id: str) -> int:
        """The line that makes the DAG with a start date that moves, or may move; 0: it has none."""
        return self.dag_ids.get(dag_id) or self.perhaps.get(dag_id) or self.every_line


class _Moves(IntEnum):
    """Whether a value comes from the clock."""

    NO = 0
    PERHAPS = 1
    YES = 2


@dataclass
class _Scope:
    """A module, class or function: the values that its names are given, None where one is not seen."""

    outer: _Scope | None = None
    values: dict[str, list[ast.expr | None]] = field(default_factory=dict)
    moves: dict[str, _Moves] = field(default_factory=dict)

    def give(self, name: str, value: ast.expr | None) -> None:
        self.values.setdefault(name, []).append(value)


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
    except (OSError, ValueError, SyntaxError, RecursionError):
        return ClockDates({})


def clock_dates(source: str) -> ClockDates:
    """
    Find the DAGs of a file whose start date comes from ``now()``, ``today()``, ``days_ago()`` and their like.

    A date that is rounded to the day looks like any other; only the file tells. A value is followed through the
    names that the DAG's line sees, those of its function and of the module, and through ``default_args``, not through
    functions or other files. The answer depends on the file alone, so it is the same at each parse.

    :param source: the file's text.
    :raises SyntaxError: it is no Python.
    """
    if "start_date" not in source or not _MAYBE.search(source):
        return ClockDates({})
    tree = ast.parse(source)
    nodes = list(_scoped(tree))
    _give_names(nodes)
    functions = [node for node, _ in nodes if isinstance(node, ast.FunctionDef)]
    decorated = {id(decorator): function.name for function in functions for decorator in function.decorator_list}
    found: dict[_Moves, dict[str, int]] = {kind: {} for kind in _Moves}
    lines: list[int] = []
    for node, scope in nodes:
        if isinstance(node, ast.Call) and _called(node) in ("DAG", "dag"):
            moves = _starts_by_clock(node, scope)
            lines.append(node.lineno if moves else 0)
            found[moves][_dag_id(node, decorated)] = node.lineno
    every_line = min(lines) if lines and all(lines) else 0
    # An id that another line makes with another date, in an else: which of them is the DAG cannot be told.
    sure = found[_Moves.YES].keys() - found[_Moves.PERHAPS].keys() - found[_Moves.NO].keys() - {""}
    perhaps = {name: line for name, line in (found[_Moves.PERHAPS] | found[_Moves.YES]).items() if name not in sure}
    perhaps.pop("", None)
    return ClockDates({name: found[_Moves.YES][name] for name in sure}, every_line, perhaps)


def _scoped(tree: ast.Module) -> Iterator[tuple[ast.AST, _Scope]]:
    """Each node with the scope that it stands in; a decorator stands outside of its function."""
    todo: list[tuple[ast.AST, _Scope]] = [(tree, _Scope())]
    while todo:
        node, scope = todo.pop()
        yield node, scope
        inner = _Scope(scope) if isinstance(node, _WITH_NAMES) else scope
        outside = {id(decorator) for decorator in getattr(node, "decorator_list", ())}
        todo += [(child, scope if id(child) in outside else inner) for child in ast.iter_child_nodes(node)]


def _give_names(nodes: Iterable[tuple[ast.AST, _Scope]]) -> None:
    """Note in each scope what its names are given; any other way than ``name = value`` is a value that is not seen."""
    noted: set[int] = set()
    for node, scope in nodes:
        if isinstance(node, ast.Assign | ast.AnnAssign | ast.NamedExpr | ast.AugAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            # What += adds leaves a date as moving or as still as it was: it says nothing new.
            value = None if isinstance(node, ast.AugAssign) else node.value
            noted.update(id(target) for target in targets)
            for target in targets:
                if isinstance(target, ast.Name) and value is not None:
                    scope.give(target.id, value)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and id(node) not in noted:
            scope.give(node.id, None)
        elif isinstance(node, ast.arg):
            scope.give(node.arg, None)
        elif isinstance(node, ast.alias):
            scope.give((node.asname or node.name).partition(".")[0], None)


def _dag_id(call: ast.Call, decorated: Mapping[int, str]) -> str:
    """The id that ``DAG(…)`` or ``@dag(…)`` gives; empty where it is computed."""
    given = next((keyword.value for keyword in call.keywords if keyword.arg == "dag_id"), None)
    given = given or (call.args[0] if call.args else None)
    if given is None:
        return decorated.get(id(call), "")
    return str(given.value) if isinstance(given, ast.Constant) else ""


def _starts_by_clock(call: ast.Call, scope: _Scope) -> _Moves:
    given = {keyword.arg: keyword.value for keyword in call.keywords}
    if "start_date" in given:
        return _moves(given["start_date"], scope)
    defaults = given.get("default_args")
    return _moves(defaults, scope) if isinstance(defaults, ast.Dict | ast.Name) else _Moves.NO


def _start_in(node: ast.Dict) -> ast.expr | None:
    pairs = zip(node.keys, node.values, strict=True)
    return next((value for key, value in pairs if isinstance(key, ast.Constant) and key.value == "start_date"), None)


def _moves(value: ast.expr | None, scope: _Scope) -> _Moves:
    """Whether a value comes from the clock; of a dict, its start date."""
    value = _start_in(value) if isinstance(value, ast.Dict) else value
    most = _Moves.NO
    is_choice = False
    for node in ast.walk(value) if value is not None else ():
        is_choice |= isinstance(node, ast.IfExp | ast.BoolOp)
        if isinstance(node, ast.Call) and _called(node) in _CLOCK:
            most = _Moves.YES
        elif isinstance(node, ast.Name):
            most = max(most, _name_moves(node.id, scope))
    return min(most, _Moves.PERHAPS) if is_choice else most


def _name_moves(name: str, scope: _Scope) -> _Moves:
    """Whether a name's value comes from the clock: perhaps, where only some of the values it is given do."""
    seen: _Scope | None = scope
    while seen is not None and name not in seen.values:
        seen = seen.outer
    if seen is None:
        return _Moves.NO
    if name not in seen.moves:
        seen.moves[name] = _Moves.NO  # its own, while it is looked for
        found = [(value, _moves(value, seen)) for value in seen.values[name]]
        # A value that is made from the name's own, day = day.replace(hour=0), says nothing new.
        known = [moves for value, moves in found if moves or not _mentions(value, name)]
        some = _Moves.PERHAPS if any(known) else _Moves.NO
        seen.moves[name] = _Moves.YES if known and min(known) is _Moves.YES else some
    return seen.moves[name]


def _mentions(value: ast.expr | None, name: str) -> bool:
    return value is not None and any(isinstance(node, ast.Name) and node.id == name for node in ast.walk(value))


def _called(call: ast.Call) -> str:
    if isinstance(call.func, ast.Attribute):
        return call.func.attr
    return call.func.id if isinstance(call.func, ast.Name) else ""
