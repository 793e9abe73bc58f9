"""What `airflow safe-ops` reads from a command line, and what reading it costs."""

from __future__ import annotations

import json
import subprocess
import sys
from argparse import ArgumentTypeError
from datetime import timedelta
from importlib.metadata import version
from typing import Any

import pytest

from airflow_safe_ops.cli.__main__ import safe_ops_parser
from airflow_safe_ops.cli.definition import get_safe_ops_cli_commands, keep_type
from airflow_safe_ops.definition.grain import GRAINS

COMMANDS = (
    ["plan", "d", "t", "--logical-date", "2026-01-02"],
    ["ledger", "init", "--conn-id", "dwh"],
    ["ledger", "show", "--conn-id", "dwh"],
    ["ledger", "prune", "--conn-id", "dwh", "--keep", "90d"],
    ["ledger", "invalidate", "--conn-id", "dwh", "--table", "t", "--partitions", "*", "--reason", "by hand"],
    ["adopt", "--conn-id", "dwh", "--table", "t", "--partitions", "day=2026-01-01..2026-02-01", "--grain", "day"],
    ["policies", "--dag-id", "d", "--output", "json"],
    ["publications", "list", "--conn-id", "dwh", "--state", "undecided"],
    ["publications", "settle", "orders/1", "--conn-id", "dwh", "--as", "not-sent", "--reason", "asked them"],
)
FUNCTIONS = {"list": "list_publications"}


def names(command: Any, before: str = "") -> list[str]:
    name = f"{before}{command.name}"
    return [name, *(n for sub in getattr(command, "subcommands", ()) for n in names(sub, f"{name} "))]


def test_one_group_which_no_other_provider_has() -> None:
    (group,) = get_safe_ops_cli_commands()
    assert names(group) == [
        "safe-ops",
        "safe-ops plan",
        "safe-ops adopt",
        "safe-ops publications",
        "safe-ops publications list",
        "safe-ops publications settle",
        "safe-ops policies",
        "safe-ops explain",
        "safe-ops ledger",
        "safe-ops ledger init",
        "safe-ops ledger show",
        "safe-ops ledger prune",
        "safe-ops ledger invalidate",
    ]


@pytest.mark.skipif(version("apache-airflow-core") < "3.2", reason="Airflow asks providers for commands since 3.2")
@pytest.mark.parametrize("line", COMMANDS, ids=" ".join)
def test_airflow_has_the_commands(line: list[str]) -> None:
    from airflow.cli.cli_parser import get_parser

    args = get_parser().parse_args(["safe-ops", *line])
    name = line[1 if line[0] in ("ledger", "publications") else 0]
    assert args.func.__name__ == FUNCTIONS.get(name, name)


@pytest.mark.parametrize("line", COMMANDS, ids=" ".join)
def test_the_functions_named_are_there(line: list[str]) -> None:
    from airflow_safe_ops.cli import (
        ledger_command,
        plan_command,
        policies_command,
        publication_command,
        record_command,
    )

    name = safe_ops_parser().parse_args(line).func.__name__
    modules = {"plan": plan_command, "adopt": record_command, "invalidate": record_command}
    modules |= {"policies": policies_command, "list_publications": publication_command, "settle": publication_command}
    assert callable(getattr(modules.get(name, ledger_command), name))


def test_plan_reads_its_arguments() -> None:
    args = safe_ops_parser().parse_args(
        ["plan", "revenue", "load", "--logical-date", "2026-01-02T00:00:00+01:00", "--map-index", "3", "-o", "json"]
    )
    assert (args.dag_id, args.task_id, args.map_index, args.output) == ("revenue", "load", 3, "json")
    assert args.logical_date.isoformat() == "2026-01-02T00:00:00+01:00"


def test_a_run_without_a_date_can_be_planned() -> None:
    args = safe_ops_parser().parse_args(["plan", "revenue", "load", "--conf", '{"region": "EU"}'])
    assert (args.logical_date, args.map_index, args.conf, args.output) == (None, -1, '{"region": "EU"}', "text")


def test_show_reads_its_arguments() -> None:
    args = safe_ops_parser().parse_args(
        ["ledger", "show", "--conn-id", "dwh", "--table", "mart.t", "--partition", "*", "--limit", "0", "-o", "yaml"]
    )
    assert (args.conn_id, args.table, args.partition, args.limit, args.output) == ("dwh", "mart.t", "*", 0, "yaml")


@pytest.mark.parametrize(("text", "kept"), [("90d", 90 * 24), ("12w", 12 * 7 * 24), ("36h", 36), ("0d", 0)])
def test_an_age(text: str, kept: int) -> None:
    assert keep_type(text) == timedelta(hours=kept)


@pytest.mark.parametrize("text", ["90", "d", "-1d", "1.5d", "90 days", "1m", ""])
def test_what_is_no_age(text: str) -> None:
    with pytest.raises(ArgumentTypeError, match="for example 90d"):
        keep_type(text)


@pytest.mark.parametrize(
    "line",
    [
        ["plan", "revenue"],
        ["plan", "revenue", "load", "--logical-date", "yesterday-ish"],
        ["ledger", "show"],
        ["ledger", "show", "--conn-id", "dwh", "--limit", "-1"],
        ["ledger", "prune", "--conn-id", "dwh"],
        ["ledger", "prune", "--conn-id", "dwh", "--keep", "some"],
        ["ledger"],
    ],
    ids=" ".join,
)
def test_a_wrong_line_ends_with_the_help(line: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        safe_ops_parser().parse_args(line)
    assert ended.value.code == 2


def test_the_definition_adds_nothing_to_what_airflows_own_parser_imports() -> None:
    """Every `airflow` command pays for it: no driver, no SQL, no model, and less than a few milliseconds."""
    script = (
        "import json, sys, time, airflow.cli.cli_config\nbefore, began = set(sys.modules), time.perf_counter()\n"
        "from airflow_safe_ops.cli.definition import get_safe_ops_cli_commands as get\nget()\n"
        "print(json.dumps([time.perf_counter() - began, sorted(set(sys.modules) - before)]))"
    )
    ran = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True)
    seconds, added = json.loads(ran.stdout.splitlines()[-1])
    assert set(added) <= {"airflow_safe_ops", "airflow_safe_ops.cli", "airflow_safe_ops.cli.definition"}
    assert seconds < 0.05


def test_adopt_takes_every_grain() -> None:
    for grain in GRAINS:
        line = ["adopt", "--conn-id", "dwh", "--table", "t", "--partitions", "*", "--grain", grain]
        assert safe_ops_parser().parse_args(line).grain == grain
