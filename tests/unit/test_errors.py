"""Every error has a code of its own that never changes, and says what to do; docs/errors.md lists them all."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from pkgutil import walk_packages

import pytest

from airflow_safe_ops import errors
from airflow_safe_ops.errors import SafeOpsError
from airflow_safe_ops.errors.__main__ import every_error, page

PAGE = Path(__file__).parents[2] / "docs" / "errors.md"
HINT = "run: python -m airflow_safe_ops.errors > docs/errors.md"
EVERY = every_error()


def test_the_page_is_what_the_package_says() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), HINT


def test_the_command_prints_the_page() -> None:
    ran = subprocess.run(
        [sys.executable, "-X", "utf8", "-m", "airflow_safe_ops.errors"], check=True, capture_output=True
    )
    assert ran.stdout.decode() == page()


def test_every_class_is_public_and_listed() -> None:
    defined = {
        cls.__name__
        for module in walk_packages(errors.__path__, "airflow_safe_ops.errors.")
        for cls in vars(import_module(module.name)).values()
        if inspect.isclass(cls) and issubclass(cls, SafeOpsError)
    }
    assert defined | {"FailureClass"} == set(errors.__all__)
    assert {cls.__name__ for cls in EVERY} == defined - {"SafeOpsError"}
    assert set(errors.__all__) == {name for name in errors.__all__ if hasattr(errors, name)}


def test_codes_are_unique() -> None:
    codes = [cls.code for cls in EVERY]
    assert len(set(codes)) == len(codes)
    assert codes == sorted(codes)


@pytest.mark.parametrize("cls", EVERY, ids=lambda cls: cls.__name__)
def test_an_error_says_what_why_and_what_to_do(cls: type[SafeOpsError]) -> None:
    assert re.fullmatch(r"SO-\d{3}", cls.code)
    assert cls.__doc__
    assert cls.fix.endswith(".")
    error = cls("Something is odd.", rows=5)
    assert str(error) == " ".join(part for part in (cls.code, "Something is odd.", cls.why, cls.fix) if part)
    assert error.facts == {"rows": 5}
    other = cls("Odd.", why="Because.", fix="Mend it.")
    assert str(other) == f"{cls.code} Odd. Because. Mend it."
    assert (cls("Odd.").why, cls("Odd.").fix) == (cls.why, cls.fix)


@pytest.mark.parametrize("cls", EVERY, ids=lambda cls: cls.__name__)
def test_whether_it_is_terminal_follows_from_its_class(cls: type[SafeOpsError]) -> None:
    assert cls.terminal is cls.failure.is_terminal


def test_what_a_retry_can_heal() -> None:
    """apache/airflow#26761: a mismatch in the data is not retried like a network fault."""
    retried = {cls.__name__ for cls in EVERY if not cls.terminal}
    assert retried >= {
        "ClaimTimeout",
        "ClaimTooContended",
        "CommitNotConfirmed",
        "LoadCancelled",
        "OtherWriter",
        "OutcomeUnknown",
        "StatementFailed",
        "TargetChanged",
    }
    assert not retried & {"AuditFailed", "ColumnContract", "EmptySource", "LedgerDenied", "PostCheckFailed"}
