"""A broken copy of the package: which text becomes which, and the test that must notice by what a database holds."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGE = "airflow_safe_ops"
PAGE = ROOT / "docs" / "proof.md"
BEGIN, END = "<!-- mutants: python -m tests.sabotage -->\n", "<!-- end of mutants -->\n"


@dataclass(frozen=True)
class Mutant:
    """
    One fault that an edit could bring.

    :param name: what the test's output calls it.
    :param breaks: what is broken, in one phrase.
    :param file: the module, below the package's folder.
    :param old: text that stands there exactly once.
    :param new: what it becomes.
    :param test: the node id of the test that must fail, below ``tests``.
    """

    name: str
    breaks: str
    file: str
    old: str
    new: str
    test: str

    @property
    def node(self) -> str:
        """The test as pytest takes it from the repository's root."""
        return f"tests/{self.test}"

    def broken(self, root: Path) -> str:
        """The module's text with the fault; the file is not written."""
        text = (root / PACKAGE / self.file).read_text(encoding="utf-8")
        times = text.count(self.old)
        assert times == 1, f"{self.name}: its text stands {times} times in {self.file}: {self.old!r}"
        return text.replace(self.old, self.new)

    def plant(self, root: Path) -> None:
        """Break the copy in that folder."""
        text = self.broken(root)
        (root / PACKAGE / self.file).write_text(text, encoding="utf-8")


def table(mutants: Iterable[Mutant]) -> str:
    """The mutants as the page shows them."""
    rows = [f"| `{m.name}` | {m.breaks} | `{m.test.replace('|', chr(92) + '|')}` |\n" for m in mutants]
    return "".join(["| mutant | what is broken | caught by |\n", "|---|---|---|\n", *rows])


def in_page(text: str, mutants: Iterable[Mutant]) -> str:
    """The page with the table in its place."""
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n{table(mutants)}\n{END}{after}"
