"""The mutants of docs/proof.md are those of the suite; each breaks one line that is there, for a test that is there."""

from __future__ import annotations

import ast
from collections import Counter
from difflib import ndiff
from pathlib import Path
from typing import Any

import pytest

from tests.sabotage.mutant import PACKAGE, PAGE, ROOT, Mutant, in_page
from tests.sabotage.mutants import MUTANTS
from tests.sabotage.run import judged
from tests.sabotage.witness import asserts_state

EACH = pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)

SAMPLE = """
def test_it(shop, child, db):
    before, outcome = shop.rows(), child.outcome()
    newer = [row for row in shop.rows() if row[1]]
    assert shop.wrong() == []
    assert [row for row in newer] == []
    assert db.execute("SELECT v FROM t") == []
    assert (
        shop.claims(),
        child.at,
    ) == ([], "")
    assert outcome.published, shop.rows()
    assert child.execute("go") == "SELECT 1"
    assert outcome.rows == []
"""


def test_the_page_shows_every_mutant() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert page == in_page(page, MUTANTS), "make it again: python -m tests.sabotage --write"


def test_each_mutant_has_a_name_of_its_own() -> None:
    assert [name for name, times in Counter(mutant.name for mutant in MUTANTS).items() if times > 1] == []


@EACH
def test_a_mutant_is_one_line_of_python(mutant: Mutant) -> None:
    before = (ROOT / PACKAGE / mutant.file).read_text(encoding="utf-8")
    after = mutant.broken(ROOT)
    ast.parse(after)
    changes = Counter(line[0] for line in ndiff(before.splitlines(), after.splitlines()))
    assert changes["-"] == 1
    assert changes["+"] <= 1


@EACH
def test_the_test_that_catches_it_is_there(mutant: Mutant) -> None:
    file, *names = mutant.node.partition("[")[0].split("::")
    defined = {
        node.name
        for node in ast.walk(ast.parse((ROOT / file).read_text(encoding="utf-8")))
        if isinstance(node, ast.FunctionDef | ast.ClassDef)
    }
    assert names[0] in defined


@pytest.mark.parametrize(
    ("line", "expected"),
    [(3, False), (5, True), (6, True), (7, True), (10, True), (12, False), (13, False), (14, False)],
)
def test_which_statements_assert_what_a_database_holds(line: int, expected: bool) -> None:
    assert asserts_state(SAMPLE, line) is expected


COPY = Path("/copy")
OURS = [f"/copy/{PACKAGE}/__init__.py"]
PASSED = {"test": "t", "phase": "setup", "outcome": "passed"}
FAILED = {
    "test": "t",
    "phase": "call",
    "outcome": "failed",
    "state": True,
    "error": "AssertionError",
    "where": "tests/t.py:1",
    "statement": "assert shop.wrong() == []",
    "said": "",
}


@pytest.mark.parametrize(
    ("told", "caught"),
    [
        ({"tests": [PASSED, FAILED], "child": None}, True),
        ({"tests": [PASSED, FAILED], "child": OURS}, True),
        ({"tests": [PASSED, FAILED], "child": []}, False),
        ({"tests": [PASSED, FAILED], "child": [f"/elsewhere/{PACKAGE}/__init__.py"]}, False),
        ({"tests": [PASSED, FAILED], "here": [f"/elsewhere/{PACKAGE}/__init__.py"], "child": None}, False),
        ({"tests": [PASSED, {**FAILED, "phase": "setup"}], "child": None}, False),
        ({"tests": [PASSED, {**FAILED, "state": False}], "child": None}, False),
        ({"tests": [PASSED, {**PASSED, "phase": "call"}], "child": None}, False),
        ({"tests": [], "child": None}, False),
    ],
    ids=["here", "child", "child silent", "child's", "other", "setup", "no state", "passed", "none ran"],
)
def test_when_a_mutant_counts_as_caught(told: dict[str, Any], caught: bool) -> None:
    assert judged({"here": OURS, "output": "", **told}, COPY).caught is caught
