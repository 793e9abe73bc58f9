"""
A plugin of the pytest run that meets a mutant: what failed there, at which statement, and whose package ran.

A mutant counts as caught only by a statement that asserts what a database holds. Which statements do that is
decided here, from their source: the asserted expression calls one of the readers, or uses a name that was given
what one of them returned.
"""

from __future__ import annotations

import ast
import json
import os
import sys
from collections.abc import Generator, Iterator
from multiprocessing import forkserver
from multiprocessing.connection import Connection as Pipe
from pathlib import Path
from typing import Any

import pytest

REPORT = "SAFE_OPS_WITNESS"
PACKAGE = "airflow_safe_ops"
HARNESS = "tests.crash.harness"
TESTS = Path(__file__).parents[1]

# What tells the content of tables or of the ledger: methods of the contract's warehouse, of the crash tests' shop
# and of the state tests' sales. Functions that mix it with what a load reported are none of them.
READERS = frozenset(
    {"attempts", "claims", "ledger", "partitions", "published", "publishers", "rows", "snapshot", "stages", "states"}
    | {"unsettled", "wrong"}
)
_SQL = "execute"

_seen: list[dict[str, Any]] = []


# --- which statements assert what a database holds -----------------------------------------------------------------


def asserts_state(source: str, line: int) -> bool:
    """Whether the statement on that line (from 1) asserts what a database holds."""
    tree = ast.parse(source)
    for function in ast.walk(tree):
        if isinstance(function, ast.FunctionDef) and function.lineno <= line <= (function.end_lineno or 0):
            for node in ast.walk(function):
                if isinstance(node, ast.Assert) and node.lineno <= line <= (node.end_lineno or 0):
                    return _reads(node.test, _names_of_state(function))
    return False


def _reads(expression: ast.AST, names: set[str]) -> bool:
    return any(_is_reader(node) or (isinstance(node, ast.Name) and node.id in names) for node in ast.walk(expression))


def _is_reader(node: ast.AST) -> bool:
    if not isinstance(node, ast.Call):
        return False
    name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
    if name == _SQL and node.args:
        text = node.args[0].values[0] if isinstance(node.args[0], ast.JoinedStr) else node.args[0]
        return isinstance(text, ast.Constant) and str(text.value).startswith("SELECT")
    return name in READERS


def _names_of_state(function: ast.FunctionDef) -> set[str]:
    """The names in a function that hold what a reader returned, or what was made of it."""
    names: set[str] = set()
    before = -1
    while len(names) > before:
        before = len(names)
        for target, value in _assignments(function):
            if _reads(value, names):
                names |= {node.id for node in ast.walk(target) if isinstance(node, ast.Name)}
    return names


def _assignments(function: ast.FunctionDef) -> Iterator[tuple[ast.AST, ast.AST]]:
    for node in ast.walk(function):
        if isinstance(node, ast.Assign):
            for target in node.targets:
                yield from _pairs(target, node.value)
        elif isinstance(node, ast.AnnAssign | ast.AugAssign) and node.value is not None:
            yield node.target, node.value
        elif isinstance(node, ast.For):
            yield node.target, node.iter


def _pairs(target: ast.AST, value: ast.AST) -> Iterator[tuple[ast.AST, ast.AST]]:
    """Each name with its own value where several are assigned at once."""
    if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple) and len(target.elts) == len(value.elts):
        yield from zip(target.elts, value.elts, strict=True)
    else:
        yield target, value


# --- what this run of pytest saw -----------------------------------------------------------------------------------


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Every phase of every test; of a failure its exception and the statement that raised it."""
    report = yield
    seen: dict[str, Any] = {"test": item.nodeid, "phase": report.when, "outcome": report.outcome}
    if call.excinfo is not None:
        entry = call.excinfo.traceback[-1]
        path, line = Path(entry.path), entry.lineno + 1
        is_test = path.is_relative_to(TESTS)
        seen |= {
            "error": call.excinfo.typename,
            "where": f"{path.relative_to(TESTS.parent) if is_test else path}:{line}",
            "statement": str(entry.statement).strip(),
            "said": str(call.excinfo.value)[:2000],
            "state": is_test
            and call.excinfo.type is AssertionError
            and asserts_state(path.read_text(encoding="utf-8"), line),
        }
    _seen.append(seen)
    return report


def pytest_collection_finish() -> None:
    """Children of the state tests need no Airflow: their fork server is there sooner without it."""
    if HARNESS in sys.modules:
        sys.modules[HARNESS]._fork.set_forkserver_preload([HARNESS])


def pytest_sessionfinish() -> None:
    """Write down what was seen, and from where the package was imported, here and in the fork server's children."""
    told = {"tests": _seen, "here": origins(), "child": _origins_of_a_child()}
    Path(os.environ[REPORT]).write_text(json.dumps(told), encoding="utf-8")


def origins() -> list[str]:
    """The files of the package's modules in this process."""
    modules = [module for name, module in sorted(sys.modules.items()) if name.split(".")[0] == PACKAGE]
    return [str(module.__file__) for module in modules]


def _tell_origins(pipe: Pipe) -> None:
    pipe.send(origins())


def _origins_of_a_child() -> list[str] | None:
    """The same of a new child of the fork server that the tests used; None where they used none."""
    if getattr(forkserver._forkserver, "_forkserver_pid", None) is None:
        return None
    fork = sys.modules[HARNESS]._fork
    ours, theirs = fork.Pipe()
    child = fork.Process(target=_tell_origins, args=(theirs,), daemon=True)
    child.start()
    try:
        told: list[str] | None = ours.recv() if ours.poll(30) else []
    finally:
        child.kill()
        child.join()
    return told
