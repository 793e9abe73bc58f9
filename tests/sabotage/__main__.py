"""``python -m tests.sabotage``: the table of the mutants; with ``--write`` it is put into docs/proof.md."""

from __future__ import annotations

import sys

from tests.sabotage.mutant import PAGE, in_page, table
from tests.sabotage.mutants import MUTANTS

if sys.argv[1:] == ["--write"]:
    PAGE.write_text(in_page(PAGE.read_text(encoding="utf-8"), MUTANTS), encoding="utf-8")
else:
    print(table(MUTANTS), end="")  # noqa: T201 - it is a command
