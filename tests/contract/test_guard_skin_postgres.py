"""The guard around operators and functions: hooks, callbacks, deferral, async, templates."""

from __future__ import annotations

import asyncio
import inspect
from datetime import UTC, datetime, timedelta
from functools import partial
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from airflow.providers.common.sql.operators.sql import SQLExecuteQueryOperator
from airflow.providers.standard.triggers.temporal import TimeDeltaTrigger
from airflow.sdk import DAG, BaseOperator

from airflow_safe_ops import RowCount, TimePartition
from airflow_safe_ops.errors import (
    InvalidArgument,
    Unfenced,
)
from airflow_safe_ops.operators.guard import guard, guarded, partition_claim
from tests.contract.guards import (
    TARGET,
    once,
    perform,
    state,
    task_run,
)
from tests.contract.harness import D1, D2, raised, run, sale

if TYPE_CHECKING:
    from collections.abc import Iterator

    from airflow_safe_ops.definition.guard import OnRepeat
    from tests.contract.postgres import PostgresWarehouse


@pytest.fixture
def warehouse(postgres: PostgresWarehouse) -> PostgresWarehouse:
    postgres.sales([sale(D1, 1, 10), sale(D1, 2, 20), sale(D2, 3, 30)])
    return postgres


def test_a_function(warehouse: PostgresWarehouse, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("airflow.sdk.get_current_context", task_run)

    @guarded(*TARGET)
    def load(number: int, *, amount: int) -> str:
        warehouse.insert("sales", [sale(D1, number, amount)])
        return "done"

    assert load(1, amount=10) == "done"
    assert raised(lambda: load(2, amount=20)).code == "SO-731"
    assert warehouse.rows("sales") == [sale(D1, 1, 10)]


class Deferring(BaseOperator):
    """Starts a job elsewhere, and waits for it in the triggerer."""

    def execute(self, context: Any) -> None:
        self.defer(trigger=TimeDeltaTrigger(timedelta(hours=1)), method_name="resumed")


@pytest.mark.parametrize("on_repeat", ["fail", "allow", "clean_up"])
def test_a_writer_that_defers_is_refused_and_nothing_is_cleaned_up(
    warehouse: PostgresWarehouse, on_repeat: OnRepeat
) -> None:
    """In the first process when it defers, in the second before anything: its job may have written meanwhile."""
    spark: Any = Deferring(task_id="spark", **guard(*TARGET, on_repeat=on_repeat))
    context = {**run(D1), "task": spark}
    spark._pre_execute_hook(context)
    with pytest.raises(InvalidArgument, match="defers") as refused:
        spark.execute(context)
    for callback in spark.on_failure_callback:
        callback({**context, "exception": refused.value})
    warehouse.insert("sales", [sale(D1, 1, 10), sale(D1, 2, 20)])
    context["ti"]._ti_context_from_server = SimpleNamespace(next_method="resumed")
    assert raised(partial(spark._pre_execute_hook, context)).code == "SO-201"
    assert once(warehouse)
    assert warehouse.states() == ["failed"]


def test_an_async_function(warehouse: PostgresWarehouse, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("airflow.sdk.get_current_context", task_run)

    @guarded(*TARGET)
    async def load() -> int:
        await asyncio.sleep(0)
        assert len(warehouse.claims()) == 1
        warehouse.insert("sales", [sale(D1, 1, 10), sale(D1, 2, 20)])
        return 2

    assert inspect.iscoroutinefunction(load)
    assert asyncio.run(load()) == 2
    assert once(warehouse)
    assert state(warehouse) == [("published", 2)]

    def later() -> Iterator[int]:
        yield 1

    with pytest.raises(InvalidArgument, match="generator"):
        guarded(*TARGET)(later)


def test_an_operator_that_ends_in_success_by_an_exception(warehouse: PostgresWarehouse) -> None:
    """A branch, a trigger of another run: Airflow calls no post_execute."""
    dbt: Any = SQLExecuteQueryOperator(task_id="dbt", conn_id="warehouse", sql="SELECT 1", **guard(*TARGET))
    context: Any = {**run(D1), "task": dbt}
    dbt._pre_execute_hook(context)
    warehouse.insert("sales", [sale(D1, 1, 10), sale(D1, 2, 20)])
    for callback in dbt.on_success_callback:
        callback(context)
    assert once(warehouse)
    assert state(warehouse) == [("published", 2)]
    with pytest.raises(Unfenced, match="never begun"):
        dbt._post_execute_hook(context, None)


def test_hooks_and_callbacks_of_the_author_are_called(warehouse: PostgresWarehouse) -> None:
    """Also callbacks that the task has from ``default_args``, which an argument would have replaced."""
    called: list[str] = []

    def note(name: str) -> Any:
        return lambda *_: called.append(f"{name}, {len(warehouse.claims())} claim(s)")

    hooks = {name: note(name) for name in ("pre_execute", "post_execute")}
    told = {"on_failure_callback": [note("failed"), note("told")]}
    with DAG("sales", schedule=None, default_args=told):
        perform(**hooks)
    with DAG("sales", schedule=None, default_args=told), pytest.raises(Exception, match="nowhere"):
        perform(D2, sql="INSERT INTO nowhere SELECT 1", **hooks)
    before = ["pre_execute, 1 claim(s)"]
    assert called == [*before, "post_execute, 1 claim(s)", *before, "failed, 0 claim(s)", "told, 0 claim(s)"]


def test_what_is_refused_of_its_arguments(warehouse: PostgresWarehouse) -> None:
    with pytest.raises(InvalidArgument, match="on_repeat"):
        guard(*TARGET, on_repeat="replace")  # type: ignore[arg-type]
    with pytest.raises(InvalidArgument, match="names a table of its own"):
        guard(*TARGET, post_checks=[RowCount(min=1, table="other")])
    for attribute in ("deferrable", "safe_to_repeat"):
        dbt: Any = SQLExecuteQueryOperator(task_id="dbt", conn_id="warehouse", sql="SELECT 1", **guard(*TARGET))
        setattr(dbt, attribute, True)
        assert raised(partial(dbt._pre_execute_hook, {**run(D1), "task": dbt})).code == "SO-201"
    assert warehouse.ledger("attempt", "state") == []


def test_templates(warehouse: PostgresWarehouse) -> None:
    context = {**task_run(), "where": "sales", "ds": D1.isoformat()}
    partition = {"day": "{{ ds }}"}
    with partition_claim("ware{{ 'house' }}", "{{ where }}", partition, context=context) as write:
        assert write.scope.key == "day=2026-01-02"
    assert warehouse.ledger("partition", "partition_key") == [("day=2026-01-02",)]


def test_templates_have_the_bounds_of_the_guards_partition() -> None:
    """In New York's evening ``ds`` is another day already."""
    day = TimePartition("day", timezone="America/New_York")
    evening = datetime(2026, 3, 8, 1, 30, tzinfo=UTC)
    dag_run = task_run(D1, logical=evening)["dag_run"]
    dag_run.data_interval_start = dag_run.data_interval_end = evening
    written = "{{ day.start_of(dag_run) }} {{ day.end_of(dag_run) }}"
    context: Any = {"day": day, "dag_run": dag_run, "ds": "2026-03-08"}
    told = BaseOperator(task_id="dbt").render_template(written, context)
    assert told == "2026-03-06 2026-03-07"
    back = TimePartition("day", grain="hour", timezone="America/New_York", lookback=1)
    assert (back.start_of(dag_run), back.end_of(dag_run)) == ("2026-03-07T18:00:00-05:00", "2026-03-07T20:00:00-05:00")
