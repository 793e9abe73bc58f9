"""What the documents say is there: links, code, arguments, commands, and DAG files that parse."""

from __future__ import annotations

import argparse
import inspect
import json
import re
import shlex
import subprocess
import sys
from pathlib import Path
from textwrap import dedent

import pytest

ROOT = Path(__file__).resolve().parents[2]
DOCUMENTS = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
README = ROOT / "README.md"
GUIDE = ROOT / "docs" / "guide.md"
DAG_FILES = sorted(ROOT.glob("dags/**/*.py"))

FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)


def named(path: Path) -> str:
    return str(path.relative_to(ROOT))


def blocks(document: Path, language: str) -> list[str]:
    return [text for kind, text in FENCE.findall(document.read_text(encoding="utf-8")) if kind == language]


def region(name: str) -> str:
    text = (ROOT / "dags" / f"{name}.py").read_text(encoding="utf-8")
    start, end = (re.escape(f"# [{edge} {name}]") for edge in ("START", "END"))
    found = re.search(rf"^ *{start}\n(.*?)^ *{end}$", text, re.MULTILINE | re.DOTALL)
    assert found, f"dags/{name}.py has no region {name}"
    return dedent(found[1])


def anchors(document: Path) -> set[str]:
    """The anchors that GitHub makes of a document's headings."""
    without_code = FENCE.sub("", document.read_text(encoding="utf-8"))
    words = (re.sub(r"[^\w\- ]", "", heading.lower()) for heading in HEADING.findall(without_code))
    return {word.strip().replace(" ", "-") for word in words}


def commands(text: str, program: str) -> list[list[str]]:
    """The command lines in code blocks and code spans that begin with a program."""
    lines = [line for _, block in FENCE.findall(text) for line in block.splitlines()]
    lines += re.findall(r"`([^`\n]+)`", FENCE.sub("", text))
    found = [shlex.split(line.partition("#")[0]) if program in line else [] for line in lines]
    return [words for words in found if words[: len(program.split())] == program.split()]


@pytest.mark.parametrize(
    ("document", "name"),
    [
        (README, "revenue_daily"),
        (GUIDE, "claims_daily"),
        (GUIDE, "partner_files"),
        (ROOT / "docs" / "publish.md", "partner_report"),
        (ROOT / "docs" / "guard.md", "orders_dbt"),
    ],
)
def test_code_is_quoted_from_a_dag_file(document: Path, name: str) -> None:
    assert region(name) in blocks(document, "python")


def test_readme_quotes_nothing_else_as_python() -> None:
    assert blocks(README, "python") == [region("revenue_daily")]


def test_every_argument_of_the_operator_is_in_the_guide() -> None:
    from airflow.providers.common.sql.operators.sql import BaseSQLOperator

    from airflow_safe_ops import IdempotentLoadOperator

    section = GUIDE.read_text(encoding="utf-8").partition("\n## Arguments\n")[2].partition("\n## ")[0]
    rows = dict(re.findall(r"^\| `(\w+)`( T)? \|", section, re.MULTILINE))
    arguments = {
        name
        for cls in (BaseSQLOperator, IdempotentLoadOperator)
        for name, parameter in inspect.signature(cls.__init__).parameters.items()
        if parameter.kind is parameter.KEYWORD_ONLY
    }
    assert set(rows) == arguments
    assert {name for name, templated in rows.items() if templated} == set(IdempotentLoadOperator.template_fields)


def test_every_argument_of_the_publisher_is_in_its_guide() -> None:
    from airflow_safe_ops import PublishOnceOperator

    text = (ROOT / "docs" / "publish.md").read_text(encoding="utf-8")
    section = text.partition("\n## Arguments\n")[2].partition("\n## ")[0]
    rows = dict(re.findall(r"^\| `(\w+)`( T)? \|", section, re.MULTILINE))
    own = inspect.signature(PublishOnceOperator.__init__).parameters.values()
    assert set(rows) == {"conn_id", *(p.name for p in own if p.kind is p.KEYWORD_ONLY)}
    fields = set(PublishOnceOperator.template_fields) - {"database", "hook_params"}
    assert {name for name, templated in rows.items() if templated} == fields


def test_defaults_in_the_guide_are_the_operators() -> None:
    from airflow_safe_ops import IdempotentLoadOperator

    rows = {
        cells[1].split("`")[1]: cells[3].strip().strip("`")
        for cells in (line.split("|") for line in GUIDE.read_text(encoding="utf-8").splitlines())
        if len(cells) == 6 and cells[1].strip().startswith("`")
    }
    for name, parameter in inspect.signature(IdempotentLoadOperator.__init__).parameters.items():
        if isinstance(parameter.default, str):
            assert rows[name] == f'"{parameter.default}"', name
        elif isinstance(parameter.default, bool):
            assert rows[name] == str(parameter.default), name


@pytest.mark.parametrize("document", DOCUMENTS, ids=named)
def test_every_relative_link_resolves(document: Path) -> None:
    broken = []
    for link in LINK.findall(FENCE.sub("", document.read_text(encoding="utf-8"))):
        path, _, anchor = link.partition("#")
        if "://" in link:
            continue
        target = (document.parent / path).resolve() if path else document
        if not target.exists() or (anchor and anchor not in anchors(target)):
            broken.append(link)
    assert broken == []


@pytest.mark.parametrize("document", DOCUMENTS, ids=named)
def test_every_make_target_exists(document: Path) -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"^([a-z][a-z-]*):", makefile, re.MULTILINE))
    used = {words[1] for words in commands(document.read_text(encoding="utf-8"), "make") if len(words) > 1}
    assert used - targets == set()


def test_every_command_in_the_documents_is_one_that_airflow_parses() -> None:
    used = [
        words
        for document in DOCUMENTS
        for words in commands(document.read_text(encoding="utf-8"), "airflow safe-ops")
        if "…" not in words and len(words) > 3
    ]
    assert {" ".join(words[2:4]) for words in used} >= {
        "plan revenue_daily",
        "ledger show",
        "ledger init",
        "ledger prune",
    }
    parser = safe_ops_parser()
    for words in used:
        if "--conn-id" in words or words[2] in ("explain", "plan"):
            parser.parse_args(words[1:])
        else:
            known = {"ledger": ("init", "show", "prune", "invalidate"), "publications": ("list", "settle")}
            assert words[3] in known[words[2]]


def safe_ops_parser() -> argparse.ArgumentParser:
    """Airflow's own parser, with our commands alone."""
    from airflow.cli.cli_parser import _add_command

    from airflow_safe_ops.cli.definition import get_safe_ops_cli_commands

    parser = argparse.ArgumentParser(prog="airflow")
    subparsers = parser.add_subparsers()
    for command in get_safe_ops_cli_commands():
        _add_command(subparsers, command)
    return parser


@pytest.fixture(scope="module")
def parsed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    """The DAGs of each file, read in one fresh process whose Airflow has no database."""
    home = tmp_path_factory.mktemp("airflow")
    script = (
        "import gc, json, runpy, sys; from airflow.sdk import DAG; "
        "made = lambda file: runpy.run_path(file) and {o.dag_id for o in gc.get_objects() if type(o) is DAG}; "
        "print(json.dumps({file: sorted(made(file)) for file in sys.argv[1:]}))"
    )
    ran = subprocess.run(
        [sys.executable, "-c", script, *map(str, DAG_FILES)],
        capture_output=True,
        text=True,
        check=False,
        env={"PATH": "", "PYTHONPATH": str(ROOT), "AIRFLOW_HOME": str(home), "HOME": str(home)},
    )
    assert ran.returncode == 0, ran.stderr
    assert not list(home.glob("*.db"))
    found: dict[str, list[str]] = json.loads(ran.stdout.splitlines()[-1])
    return found


@pytest.mark.parametrize("path", DAG_FILES, ids=named)
def test_example_dag_files_build_a_dag_without_a_database(path: Path, parsed: dict[str, list[str]]) -> None:
    assert path.stem in parsed[str(path)]
