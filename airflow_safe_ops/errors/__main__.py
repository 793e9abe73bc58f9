"""``python -m airflow_safe_ops.errors`` prints every error as Markdown: the page docs/errors.md."""

from __future__ import annotations

import inspect
import sys

from airflow_safe_ops import errors
from airflow_safe_ops.errors import SafeOpsError

_HEAD = """\
# Errors

An error says what is wrong with the names and numbers of its case, why that is refused, and what to do. Its code
never changes its meaning. A *terminal* error fails the task at once, because trying again without a change by a
person cannot help; a *transient* one is left to Airflow's retries.

| code | error | what it means | why | what to do | retried |
|---|---|---|---|---|---|
"""


def every_error() -> list[type[SafeOpsError]]:
    """All kinds of errors, in the order of their codes."""
    named = [getattr(errors, name) for name in errors.__all__ if name != "SafeOpsError"]
    return sorted(named, key=lambda cls: str(cls.code))


def page() -> str:
    """The page as Markdown."""
    return _HEAD + "".join(map(_row, every_error()))


def _row(cls: type[SafeOpsError]) -> str:
    means = " ".join((inspect.getdoc(cls) or "").split())
    retried = "no (terminal)" if cls.terminal else "yes (transient)"
    cells = (cls.code, f"`{cls.__name__}`", means, cls.why, cls.fix, retried)
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |\n"


if __name__ == "__main__":
    sys.stdout.write(page())
