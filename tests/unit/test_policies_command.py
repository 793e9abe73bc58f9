"""`airflow safe-ops policies`: what the rules say of the DAGs of a folder now."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from airflow_safe_ops.cli.__main__ import safe_ops_parser
from tests.unit.policy_world import needs_run_types, settings

FILE = """
from datetime import UTC, datetime
from airflow.providers.common.sql.operators.sql import SQLExecuteQueryOperator
from airflow.sdk import DAG

for dag_id in ("first", "second"):
    with DAG(dag_id, schedule="@daily", start_date=datetime(2026, 1, 1, tzinfo=UTC), tags=[dag_id]):
        SQLExecuteQueryOperator(task_id="load", conn_id="dwh", sql="INSERT INTO mart.orders SELECT 1", retries=0)
with DAG("moving", schedule="@daily", start_date=datetime.now(tz=UTC)):
    pass
"""
EXCEPTIONS = '[{"tag": "second", "rules": ["unsafe_backfill"], "reason": "merges soon"}]'
ENFORCED = {"policy_unsafe_backfill": "enforce", "policy_start_date": "enforce", "policy_exceptions": EXCEPTIONS}


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "orders.py").write_text(FILE)
    monkeypatch.setenv("AIRFLOW__CORE__DAGS_FOLDER", str(tmp_path))
    monkeypatch.setattr("airflow.settings.DAGS_FOLDER", str(tmp_path))
    return tmp_path


def run(*line: str) -> None:
    args = safe_ops_parser().parse_args(["policies", *line])
    args.func(args)


def remarks(capsys: pytest.CaptureFixture[str], *line: str) -> list[dict[str, Any]]:
    run(*line, "--output", "json")
    found: list[dict[str, Any]] = json.loads(capsys.readouterr().out)
    return found


@needs_run_types
def test_it_says_what_was_set_right_and_what_was_left_out(capsys: pytest.CaptureFixture[str]) -> None:
    with settings(**ENFORCED):
        found = {(one["dag_id"], one["rule"]): one for one in remarks(capsys)}
    first, second = found["first", "unsafe_backfill"], found["second", "unsafe_backfill"]
    assert (first["tasks"], first["done"], first["is_note"]) == ("load", "backfills of it are refused", False)
    assert (second["done"], second["is_note"]) == ("", True)
    assert "merges soon" in second["what"]
    assert found["moving", "start_date"]["done"] == "this DAG is left out"


def test_one_dag_even_one_that_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with settings(**ENFORCED):
        assert {one["dag_id"] for one in remarks(capsys, "--dag-id", "moving")} == {"moving"}
        run("--dag-id", "first")
    text = capsys.readouterr().out
    assert text.startswith("first\n  unsafe_backfill (enforce)\n")
    assert "second" not in text


def test_what_is_wrong_with_the_settings_is_said_first(capsys: pytest.CaptureFixture[str]) -> None:
    with settings(catchup_cap="many"):
        run()
    assert "SO-711 [safe_ops] catchup_cap = 'many'" in capsys.readouterr().err


def test_an_exception_that_no_dag_needs_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    with settings(policy_exceptions=EXCEPTIONS.replace('"second"', '"third"')):
        run()
    assert "No Dag has the tag 'third'" in capsys.readouterr().err


def test_a_file_that_does_not_parse_is_named(capsys: pytest.CaptureFixture[str], folder: Path) -> None:
    (folder / "broken.py").write_text("from airflow.sdk import DAG\n1 / 0\n")
    run()
    told = capsys.readouterr()
    assert "first" in told.out
    assert "broken.py does not parse: ZeroDivisionError" in told.err


def test_a_task_that_cannot_be_read_is_named(capsys: pytest.CaptureFixture[str], folder: Path) -> None:
    lines = ("def loop(): ...", "loop.__wrapped__ = loop", "from airflow.providers.standard.operators.python import *")
    task = "with DAG('third', schedule=None): PythonOperator(task_id='loop', python_callable=loop)"
    (folder / "third.py").write_text("\n".join(("from airflow.sdk import DAG", *lines, task)))
    with settings(policy_retries="off"):
        (found,) = remarks(capsys, "--dag-id", "third")
    assert (found["rule"], found["tasks"], found["is_note"]) == ("unsafe_backfill", "loop", False)
    assert "ValueError: wrapper loop" in found["what"]


def test_a_dag_that_is_not_there(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        run("--dag-id", "nothing")
    assert ended.value.code == 1
    assert "There is no Dag 'nothing'" in capsys.readouterr().err


def test_nothing_to_say(capsys: pytest.CaptureFixture[str]) -> None:
    with settings(**{f"policy_{rule}": "off" for rule in ("unsafe_backfill", "start_date", "retries")}):
        run("--dag-id", "first")
    assert capsys.readouterr().out == "No rule has anything to say.\n"
