"""`airflow safe-ops plan` against a real database."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import sqlalchemy
import sqlalchemy.orm

from tests.contract.command_line import everything, json_of
from tests.contract.harness import D0, D1, SALES_SQL, run, sale

if TYPE_CHECKING:
    from tests.contract.postgres import PostgresWarehouse

DAG_FILE = f"""
from datetime import datetime
from airflow.sdk import DAG, CronDataIntervalTimetable
from airflow.providers.standard.operators.empty import EmptyOperator
from airflow_safe_ops import IdempotentLoadOperator, TimePartition, ValuePartition

SQL = "{SALES_SQL}"
FIRST = datetime(2026, 1, 1)
def load(task_id="load", **options):
    given = dict(task_id=task_id, conn_id="warehouse", table="sales", sql=SQL, partition=TimePartition("day"))
    return IdempotentLoadOperator(**{{**given, **options}})

with DAG("daily", schedule="@daily", start_date=FIRST, template_searchpath=[]):
    load()
    load("file", sql="sql/sales.sql", parameters={{"least": "{{{{ dag_run.conf.get('least', 0) }}}}"}})
    load("back", partition=TimePartition("day", lookback=1))
    load("pulls", parameters={{"x": "{{{{ ti.xcom_pull('load') }}}}"}})
    IdempotentLoadOperator.partial(
        task_id="mapped", conn_id="warehouse", table="by_region", sql="SELECT * FROM raw WHERE region = :region"
    ).expand(partition=[{{"type": "values", "values": {{"region": r}}}} for r in ("EU", "US")])
    EmptyOperator(task_id="nothing")
with DAG("intervals", schedule=CronDataIntervalTimetable("@daily", timezone="UTC"), start_date=FIRST):
    load()
"""


@pytest.fixture
def dags(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of DAGs, the only one that Airflow knows."""
    (tmp_path / "sql").mkdir()
    (tmp_path / "sql" / "sales.sql").write_text(f"{SALES_SQL}\n  AND amount >= :least -- a file's own line\n")
    (tmp_path / "daily.py").write_text(DAG_FILE)
    bundle = {
        "name": "test",
        "classpath": "airflow.dag_processing.bundles.local.LocalDagBundle",
        "kwargs": {"path": str(tmp_path)},
    }
    monkeypatch.setenv("AIRFLOW__DAG_PROCESSOR__DAG_BUNDLE_CONFIG_LIST", json.dumps([bundle]))
    return tmp_path


@pytest.mark.parametrize("has_ledger", [False, True])
def test_plan_writes_nothing(new_postgres: PostgresWarehouse, cli: Any, dags: Path, has_ledger: bool) -> None:
    new_postgres.sales([sale(D0, 1, "1"), sale(D1, 2, "2")])
    if has_ledger:
        new_postgres.load(run(D1))
    before = everything(new_postgres.database)
    for output in ("text", "json"):
        assert cli("plan", "daily", "load", "-l", "2026-01-02T00:00:00+00:00", "-o", output)[0] == 0
    assert everything(new_postgres.database) == before


def test_plan_in_text(new_postgres: PostgresWarehouse, cli: Any, dags: Path) -> None:
    new_postgres.sales()
    code, out, err = cli("plan", "daily", "load", "--logical-date", "2026-01-02T00:00:00+00:00")
    assert (code, err) == (0, "")
    assert max(map(len, out.splitlines())) <= 100
    assert "partition  day=2026-01-01..2026-01-02\n" in out
    assert 'target     "public"."sales"\n' in out
    assert "      SELECT day, id, amount FROM raw_sales WHERE day >= :partition_start AND day < :partition_end\n" in out
    assert "        :partition_start = 2026-01-01  (date)\n" in out
    assert "refuses if: Staged rows lie outside the partition that this run owns (SO-104)\n" in out
    assert "scheduled__2026-01-02T00:00:00+00:00 (does not exist yet)" in out
    assert "\x00" not in out


def test_plan_in_json(new_postgres: PostgresWarehouse, cli: Any, dags: Path) -> None:
    new_postgres.sales()
    data = json_of(cli("plan", "daily", "back", "-l", "2026-01-03T00:00:00+00:00", "-o", "json"))
    assert [plan["partition"] for plan in data["plans"]] == ["day=2026-01-01..2026-01-02", "day=2026-01-02..2026-01-03"]
    steps = {step["name"]: step for step in data["plans"][0]["steps"]}
    assert steps["stage.fill"]["binds"]["partition_start"] == {"type": "date", "value": "2026-01-01"}
    assert {refusal["code"] for refusal in steps["stage.look"]["refuses"]} == {"SO-103", "SO-104"}
    assert next(iter(steps)) == "claim"
    assert list(steps)[-1] == "commit"


def test_what_is_printed_is_what_runs(new_postgres: PostgresWarehouse, cli: Any, dags: Path) -> None:
    new_postgres.sales([sale(D0, 1, "1")])
    data = json_of(cli("plan", "daily", "load", "-l", "2026-01-02T00:00:00+00:00", "-o", "json"))
    ran: list[str] = []
    runner = new_postgres.runner(run(D0))
    runner.observe = lambda step, when: ran.append(step) if when == "before" else None
    runner.execute()
    planned = [step["name"] for step in data["plans"][0]["steps"]]
    assert [step for step in ran if step in planned] == planned


@pytest.mark.parametrize(
    ("dag", "at", "partition", "start", "end"),
    [
        # The cron trigger: an interval of no length, and the last complete day before the logical date.
        ("daily", "2026-01-02T00:00", "2026-01-01..2026-01-02", "2026-01-02T00:00", "2026-01-02T00:00"),
        ("daily", "2026-01-02T17:30", "2026-01-01..2026-01-02", "2026-01-02T17:30", "2026-01-02T17:30"),
        # Data intervals: the scheduled run of a date owns the day that begins there.
        ("intervals", "2026-01-02T00:00", "2026-01-02..2026-01-03", "2026-01-02T00:00", "2026-01-03T00:00"),
        # A trigger at another time gets the last whole interval.
        ("intervals", "2026-01-02T17:30", "2026-01-01..2026-01-02", "2026-01-01T00:00", "2026-01-02T00:00"),
    ],
)
def test_the_run_is_the_one_that_the_timetable_makes(
    new_postgres: PostgresWarehouse, cli: Any, dags: Path, dag: str, at: str, partition: str, start: str, end: str
) -> None:
    new_postgres.sales()
    data = json_of(cli("plan", dag, "load", "-l", f"{at}:00+00:00", "-o", "json"))
    assert data["plans"][0]["partition"] == f"day={partition}"
    assert (data["data_interval_start"], data["data_interval_end"]) == (f"{start}:00+00:00", f"{end}:00+00:00")


def test_a_run_that_exists_is_taken_as_it_is(
    new_postgres: PostgresWarehouse, cli: Any, dags: Path, metadata: sqlalchemy.Engine
) -> None:
    from airflow.models.dagrun import DagRun
    from airflow.models.tasklog import LogTemplate

    for model in (LogTemplate, DagRun):
        model.__table__.create(metadata)
    day, end = (datetime(2026, 1, n, tzinfo=UTC) for n in (2, 5))
    with sqlalchemy.orm.Session(metadata) as session:
        facts: dict[str, Any] = {"run_type": "manual", "state": "success", "run_after": end}
        facts |= {"logical_date": day, "data_interval": (day, end), "conf": {"least": 9}}
        session.add(DagRun(dag_id="daily", run_id="by_hand", **facts))
        session.commit()
    new_postgres.sales()
    data = json_of(cli("plan", "daily", "file", "-l", day.isoformat(), "-o", "json"))
    assert (data["run_id"], data["run_exists"]) == ("by_hand", True)
    assert data["plans"][0]["partition"] == "day=2026-01-02..2026-01-05"
    fill = next(s for s in data["plans"][0]["steps"] if s["name"] == "stage.fill")
    assert fill["binds"]["least"]["value"] == "9"


def test_a_file_a_conf_and_a_parameter(new_postgres: PostgresWarehouse, cli: Any, dags: Path) -> None:
    new_postgres.sales()
    said = cli("plan", "daily", "file", "-l", "2026-01-02T00:00:00+00:00", "--conf", '{"least": 7}', "-o", "json")
    fill = next(s for s in json_of(said)["plans"][0]["steps"] if s["name"] == "stage.fill")
    assert "AND amount >= :least -- a file's own line\n" in fill["sql"]
    assert fill["binds"]["least"] == {"type": "str", "value": "7"}


def test_a_mapped_task(new_postgres: PostgresWarehouse, cli: Any, dags: Path) -> None:
    new_postgres.execute("CREATE TABLE raw (region text); CREATE TABLE by_region (region text)")
    at = ("-l", "2026-01-02T00:00:00+00:00")
    data = json_of(cli("plan", "daily", "mapped", *at, "--map-index", "1", "-o", "json"))
    assert data["plans"][0]["partition"] == "region=US"
    assert "--map-index 0" in cli("plan", "daily", "mapped", *at)[2]
    assert cli("plan", "daily", "load", *at, "--map-index", "1")[2].startswith("SO-201 Task 'load' is not mapped.")


def test_plan_says_what_is_refused(new_postgres: PostgresWarehouse, cli: Any, dags: Path) -> None:
    new_postgres.sales()
    code, out, err = cli("plan", "daily", "load", "-l", "2999-01-02T00:00:00+00:00")
    assert (code, err[:17]) == (1, "Refused: SO-206 2")
    assert out.startswith("Plan of daily.load; nothing is written.\n")
    code, out, _ = cli("plan", "daily", "load", "-o", "json")
    assert code == 1
    assert json.loads(out)["refused"]["code"] == "SO-203"
    new_postgres.execute("ALTER TABLE sales RENAME COLUMN amount TO total")
    code, _, err = cli("plan", "daily", "load", "-l", "2026-01-02T00:00:00+00:00")
    assert (code, err[:16]) == (1, "Refused: SO-108 ")


@pytest.mark.parametrize(
    ("dag", "task", "said"),
    [
        ("daily", "nothing", "SO-201 Task 'nothing' is of EmptyOperator, not of IdempotentLoadOperator."),
        ("daily", "none", "SO-201 Dag 'daily' has no task 'none'. Load tasks of daily: load, file, "),
        ("none", "load", "SO-201 There is no Dag 'none'."),
        ("daily", "pulls", "SO-201 The templates of 'pulls' cannot be rendered:"),
    ],
)
def test_what_cannot_be_planned(
    new_postgres: PostgresWarehouse, cli: Any, dags: Path, dag: str, task: str, said: str
) -> None:
    code, _, err = cli("plan", dag, task, "-l", "2026-01-02T00:00:00+00:00")
    assert (code, err[: len(said)]) == (1, said)


def test_a_file_that_does_not_parse_is_named(cli: Any, dags: Path) -> None:
    (dags / "broken.py").write_text("from airflow.sdk import DAG\nraise ValueError('no')\n")
    _, _, err = cli("plan", "none", "load")
    assert "broken.py: ValueError: no" in err
