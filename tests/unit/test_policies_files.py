"""The cluster policy on files: a real DagBag in a process of its own, neighbours, start dates, settings."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from airflow.utils.types import DagRunType

from airflow_safe_ops.compat import ALLOWED_RUN_TYPES, RETRY_POLICY
from airflow_safe_ops.policies.start_dates import clock_dates
from airflow_safe_ops.settings import POLICY_RULES, WRITING_OPERATORS, PolicySettings, load_policy_settings
from tests.conftest import AIRFLOW_HOME
from tests.unit.policy_world import START, apply, dag, only, settings

NEIGHBOURS = """
import pendulum
from datetime import datetime
from airflow.sdk import DAG, dag, task
from airflow.providers.common.sql.operators.sql import SQLExecuteQueryOperator

START = pendulum.datetime(2026, 1, 1)


def append(dag_id, **arguments):
    with DAG(dag_id, schedule="@daily", **arguments):
        SQLExecuteQueryOperator(task_id="load", conn_id="dwh", sql="append.sql")


append("first", start_date=START)
append("moving", start_date=datetime.now())
with DAG("rounded", schedule="@daily", start_date=pendulum.today("UTC").add(days=-1)):
    pass
append("exempt", start_date=START, tags=["legacy"])


@dag(schedule="@daily", start_date=START, catchup=True)
def flow():
    @task
    def work(): ...

    work()


flow()
append("last", start_date=START, max_active_runs=50)
"""
BAGS = """
import json, os, sys
import airflow.settings
try:
    from airflow.dag_processing.dagbag import BundleDagBag
except ImportError:
    from airflow.models.dagbag import DagBag as BundleDagBag
from tests.unit.policy_world import as_the_scheduler_has_it, run_types

def kept(dag):
    again = as_the_scheduler_has_it(dag)
    types = run_types(again)
    return {
        "types": None if types is None else sorted(types),
        "runs": again.max_active_runs,
        "retries": [task.retries for task in again.tasks],
        "policies": [bool(getattr(task, "has_retry_policy", False)) for task in again.tasks],
    }

folder, *settings = sys.argv[1:]
for number, options in enumerate(map(json.loads, settings)):
    if child := os.fork():  # as a dag-processor does for each file
        assert os.waitpid(child, 0)[1] == 0
        continue
    os.environ |= options
    log = os.open(f"{folder}/{number}.log", os.O_CREAT | os.O_WRONLY)
    os.dup2(log, 1), os.dup2(log, 2)
    bag = BundleDagBag(dag_folder=folder, bundle_path=folder)
    found = {"dags": {dag_id: kept(dag) for dag_id, dag in bag.dags.items()}, "errors": bag.import_errors}
    with open(f"{folder}/{number}.json", "w") as file:
        json.dump(found, file)
    sys.stdout.flush(), sys.stderr.flush()
    os._exit(0)
"""
ENFORCED = {f"policy_{rule}": "enforce" for rule in POLICY_RULES} | {
    "policy_exceptions": '[{"tag": "legacy", "rules": ["unsafe_backfill"], "reason": "merges soon"}]'
}
BAD = {
    "policy_unsafe_backfill": "enforced",
    "policy_backfill": "enforce",
    "max_active_runs_cap": "-1",
    "default_retries": "many",
    "policy_exceptions": '[{"tag": "legacy"}]',
    "policy_max_active_runs": "enforce",
}
EVERY_TYPE = sorted(kind.value for kind in DagRunType)


def of_environment(options: dict[str, str]) -> dict[str, str]:
    return {f"AIRFLOW__SAFE_OPS__{name.upper()}": value for name, value in options.items()}


@pytest.fixture(scope="module")
def bags(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[dict[str, Any], str]]:
    """What three fresh processes make of a folder, after serialization, and what they logged."""
    folder = tmp_path_factory.mktemp("dags")
    (folder / "neighbours.py").write_text(NEIGHBOURS)
    (folder / "append.sql").write_text("-- a file\nINSERT INTO mart.orders\nSELECT 1\n")
    env = {"PATH": "", "AIRFLOW_HOME": str(AIRFLOW_HOME), "HOME": str(AIRFLOW_HOME)}
    env["PYTHONPATH"] = str(Path(__file__).parents[2])
    settings_of_each = [json.dumps(of_environment(options)) for options in ({}, ENFORCED, BAD)]
    ran = subprocess.run(
        [sys.executable, "-c", BAGS, str(folder), *settings_of_each],
        env=env,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert ran.returncode == 0, ran.stderr
    made = [json.loads((folder / f"{number}.json").read_text()) for number in range(3)]
    assert [one["errors"] for one in made] == [{}, {}, {}]
    return [(one["dags"], (folder / f"{number}.log").read_text()) for number, one in enumerate(made)]


def test_a_fresh_installation_changes_no_dag(bags: list[tuple[dict[str, Any], str]]) -> None:
    dags, said = bags[0]
    assert set(dags) == {"first", "moving", "rounded", "exempt", "flow", "last"}
    assert {(d["types"], d["runs"]) for d in dags.values()} == {(None, 16), (None, 50)}
    assert {retries for d in dags.values() for retries in d["retries"]} == {0}
    assert said.count("Policy unsafe_backfill: DAG first") == 1


def test_one_dag_that_is_refused_leaves_its_neighbours(bags: list[tuple[dict[str, Any], str]]) -> None:
    dags, said = bags[1]
    assert set(dags) == {"first", "exempt", "flow", "last"}
    without_backfill = [kind for kind in EVERY_TYPE if kind != "backfill"] if ALLOWED_RUN_TYPES.is_there() else None
    given = 5 if RETRY_POLICY.is_there() else 0
    assert {dag_id: d["types"] for dag_id, d in dags.items()} == {
        "first": without_backfill,
        "last": without_backfill,
        "exempt": None,
        "flow": None,
    }
    assert {dag_id: d["runs"] for dag_id, d in dags.items()} == {"first": 16, "exempt": 16, "flow": 3, "last": 16}
    retries = {dag_id: d["retries"] for dag_id, d in dags.items()}
    assert retries == {"first": [0], "exempt": [0], "flow": [given], "last": [0]}
    assert dags["flow"]["policies"] == [bool(given)]
    assert "Policy start_date: DAG moving" in said


def test_bad_settings_are_said_and_take_nothing_down(bags: list[tuple[dict[str, Any], str]]) -> None:
    dags, said = bags[2]
    assert len(dags) == 6
    assert {d["types"] for d in dags.values()} == {None}
    assert dags["last"]["runs"] == 16
    assert (said.count("SO-711"), said.count("SO-712")) == (4, 1)
    assert "off, warn, enforce" in said


# --- start dates


@pytest.mark.parametrize(
    "source",
    [
        'DAG("d", start_date=datetime.now())',
        'DAG(dag_id="d", start_date=pendulum.today("UTC").add(days=-1))',
        'DAG("d", start_date=days_ago(2))',
        'S = datetime.utcnow() - timedelta(1)\nDAG("d", start_date=S.replace(minute=0))',
        'A = {"start_date": datetime.now()}\nDAG("d", default_args=A)',
        'DAG("d", default_args={"start_date": pendulum.yesterday()})',
        "@dag(start_date=datetime.today())\ndef d(): ...",
        'with models.DAG("d", schedule=None, start_date=datetime.now(tz=UTC).date()):\n    pass',
    ],
)
def test_a_date_from_the_clock_is_found_in_the_file(source: str) -> None:
    found = clock_dates(source)
    assert list(found.dag_ids) == ["d"]
    assert found.line_of("d") == 1 + source.startswith(("S =", "A ="))


@pytest.mark.parametrize(
    "source",
    [
        'DAG("d", start_date=datetime(2026, 1, 1))',
        'DAG("d", start_date=datetime(2026, 1, 1), end_date=datetime.now())',
        'NOW = datetime.now()\nDAG("d", start_date=datetime(2026, 1, 1))',
        'A = {"start_date": datetime.now()}\nDAG("d", default_args=A, start_date=datetime(2026, 1, 1))',
        'start_date = "now()"',
        "# start_date=now()",
    ],
)
def test_a_date_that_is_written_down(source: str) -> None:
    found = clock_dates(source)
    assert (found.dag_ids, found.every_line) == ({}, 0)


@pytest.mark.parametrize(
    "source",
    [
        'S = datetime(2026, 1, 1)\nDAG("d", start_date=S)\n@task\ndef work():\n    S = datetime.now()',
        'S = datetime(2026, 1, 1)\nDAG("d", start_date=S)\ndef work():\n    S: datetime = datetime.now()',
        'start = datetime.now()\ndef make(start):\n    return DAG("d", start_date=start)',
        'start = datetime.now()\ndef make():\n    start = datetime(2026, 1, 1)\n    return DAG("d", start_date=start)',
        'A = {"start_date": 1}\nDAG("d", default_args=A)\nclass Other:\n    A = {"start_date": datetime.now()}',
        "start = datetime(2026, 1, 1)\n@dag(start_date=start)\ndef d():\n    start = datetime.now()",
        'S = S.replace(day=1)\nDAG("d", start_date=S)\ndatetime.now()',
    ],
)
def test_a_name_of_another_function_is_another_name(source: str) -> None:
    found = clock_dates(source)
    assert (found.line_of("d"), found.every_line) == (0, 0)


@pytest.mark.parametrize(
    "source",
    [
        'def make():\n    start: datetime = datetime.now()\n    return DAG("d", start_date=start)',
        'start = datetime.now()\ndef make():\n    return DAG("d", start_date=start)',
        'start = datetime.now()\nstart = start.replace(hour=0)\nstart -= timedelta(1)\nDAG("d", start_date=start)',
        "start = datetime.now()\n@dag(start_date=start)\ndef d():\n    start = datetime(2026, 1, 1)",
    ],
)
def test_a_name_that_the_dags_line_sees(source: str) -> None:
    assert list(clock_dates(source).dag_ids) == ["d"]


@pytest.mark.parametrize(
    "source",
    [
        'start = datetime(2026, 1, 1)\nif TEST:\n    start = datetime.now()\nDAG("d", start_date=start)',
        'try:\n    from ours import start\nexcept ImportError:\n    start = today()\nDAG("d", start_date=start)',
        'DAG("d", start_date=datetime.now() if TEST else datetime(2026, 1, 1))',
        'if TEST:\n    DAG("d", start_date=datetime.now())\nelse:\n    DAG("d", start_date=datetime(2026, 1, 1))',
    ],
)
def test_a_date_that_may_move_is_only_warned_of(source: str, tmp_path: Path) -> None:
    found = clock_dates(source)
    assert (found.dag_ids, bool(found.line_of("d"))) == ({}, True)
    made = dag("d")
    made.fileloc = str(tmp_path / "d.py")
    Path(made.fileloc).write_text(source)
    with only("start_date", "enforce"):
        (remark,) = apply(made)  # a refusal would raise
    assert (remark.done, "as far as can be told" in remark.what) == ("", True)


def test_of_ids_that_are_computed_only_all_or_none_is_known() -> None:
    moving = 'for n in "ab":\n    DAG(f"d_{n}", start_date=datetime.now())\n'
    assert clock_dates(moving).line_of("d_a") == 2
    assert clock_dates(moving + 'DAG("e", start_date=datetime(2026, 1, 1))').line_of("d_a") == 0


@pytest.mark.parametrize("microsecond", [0, 1, 999999])
def test_a_start_date_with_parts_of_a_second(microsecond: int) -> None:
    made = dag(start_date=START.replace(second=7, microsecond=microsecond))
    with only("start_date", "warn"):
        said = apply(made)
    assert bool(said) is bool(microsecond)


# --- settings


def test_a_fresh_installation_warns() -> None:
    with settings():
        loaded = load_policy_settings()
    assert loaded == PolicySettings()
    assert set(loaded.modes.values()) == {"warn"}
    assert loaded.writing_operators == frozenset(WRITING_OPERATORS)


@pytest.mark.parametrize(
    ("option", "given"),
    [
        ("policy_catchup", "on"),
        ("policy_split_writes", "off"),
        ("max_active_runs_cap", "0"),
        ("catchup_cap", "1.5"),
        ("catchup_cap", "1001"),
        ("default_retries", "0"),
        ("default_retries", "21"),
        ("writing_operators", "NoModule, a.B"),
        ("policy_exceptions", "{"),
        ("policy_exceptions", "{}"),
        ("policy_exceptions", "[1]"),
        ("policy_exceptions", '[{"tag": "a", "rules": ["retries"]}]'),
        ("policy_exceptions", '[{"tag": "a", "rules": ["retries"], "reason": " "}]'),
        ("policy_exceptions", '[{"tag": "a", "rules": [], "reason": "b"}]'),
        ("policy_exceptions", '[{"tag": "a", "rules": ["retry"], "reason": "b"}]'),
        ("policy_exceptions", '[{"tag": "a", "rules": [{}], "reason": "b"}]'),
    ],
)
def test_a_setting_that_cannot_be_used_is_one_problem_and_the_default(option: str, given: str) -> None:
    with settings(**{option: given}):
        loaded = load_policy_settings()
    (problem,) = loaded.problems
    assert problem.code == ("SO-712" if option == "policy_exceptions" else "SO-711")
    assert option in problem.what
    kept = frozenset({"a.B"}) if option == "writing_operators" else loaded.writing_operators
    assert loaded == PolicySettings(problems=loaded.problems, writing_operators=kept)


def test_settings_in_any_case_and_with_spaces() -> None:
    with settings(policy_retries=" Enforce ", default_retries=" 7", writing_operators="a.B,\n  c.D  e.F"):
        loaded = load_policy_settings()
    assert (loaded.modes["retries"], loaded.default_retries, loaded.problems) == ("enforce", 7, ())
    assert loaded.writing_operators == {"a.B", "c.D", "e.F"}


def test_a_percent_sign_in_a_reason_leaves_the_rules_on(tmp_path: Path) -> None:
    """In airflow.cfg; a variable of the environment is not interpolated."""
    (tmp_path / "airflow.cfg").write_text(
        "[safe_ops]\npolicy_unsafe_backfill = enforce\npolicy_backfill = enforce\ncatchup_cap = 7\n"
        'policy_exceptions = [{"tag": "legacy", "rules": ["retries"], "reason": "100% merged"}]\n'
    )
    script = (
        "from airflow_safe_ops.settings import load_policy_settings as load; s = load();"
        "print('found', s.modes['unsafe_backfill'], s.catchup_cap, s.exceptions[0].reason, s.problems[0].what)"
    )
    env = {"PATH": "", "AIRFLOW_HOME": str(tmp_path), "HOME": str(tmp_path)}
    ran = subprocess.run([sys.executable, "-c", script], env=env, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    (found,) = [line for line in ran.stdout.splitlines() if line.startswith("found")]
    assert found.startswith("found enforce 7 100% merged [safe_ops] policy_backfill =")


def test_the_hook_alone_is_what_airflow_loads() -> None:
    script = "import sys, airflow_safe_ops.policies as p; print(sorted(m for m in sys.modules if 'airflow' in m))"
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "['airflow_safe_ops', 'airflow_safe_ops.policies']"
