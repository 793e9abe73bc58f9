"""``python -m airflow_safe_ops.errors`` prints every error as Markdown: the page docs/errors.md."""

from __future__ import annotations

import inspect
import sys

from airflow_safe_ops import errors
from airflow_safe_ops.errors import SafeOpsError

_HEAD = """\
# Errors

An error says what is wrong with the names and numbers of its case, why that is refused, and what to do. Its code
never changes its meaning. Its class says what heals it, and so whether Airflow's retries are spent on it: see
[What retries and why](retries.md). SO-212, SO-601 and SO-602 are of the class that the database's own code has there,
and SO-703 of the one that the trigger told.

| code | error | what it means | why | what to do | class | retried |
|---|---|---|---|---|---|---|
"""


def every_error() -> list[type[SafeOpsError]]:
    """All kinds of errors, in the order of their codes."""
    named = [getattr(errors, name) for name in errors.__all__ if name not in ("FailureClass", "SafeOpsError")]
    return sorted(named, key=lambda cls: str(cls.code))


def page() -> str:
    """The page as Markdown."""
    return _HEAD + "".join(map(_row, every_error()))


def _row(cls: type[SafeOpsError]) -> str:
    means = " ".join((inspect.getdoc(cls) or "").split())
    cells = (cls.code, f"`{cls.__name__}`", means, cls.why, cls.fix, cls.failure, "no" if cls.terminal else "yes")
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |\n"


if __name__ == "__main__":
    sys.stdout.write(page())
