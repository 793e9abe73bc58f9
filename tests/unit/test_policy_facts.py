"""What the cluster policy knows of a task: whether it writes, and whether it is safe to repeat."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial, wraps
from typing import Any

import pytest
from airflow.providers.common.sql.operators.sql import SQLExecuteQueryOperator, SQLInsertRowsOperator
from airflow.providers.standard.operators.empty import EmptyOperator
from airflow.providers.standard.operators.python import PythonOperator
from airflow.sdk import task

from airflow_safe_ops import guard
from airflow_safe_ops import guarded as this_packages_guarded
from airflow_safe_ops.compat import ALLOWED_RUN_TYPES
from airflow_safe_ops.policies.facts import dag_facts
from airflow_safe_ops.policies.functions import written_by
from airflow_safe_ops.settings import PolicySettings
from tests.unit.policy_world import APPEND, apply, dag, load, notes, only, run_types, sql_task, work


def guarded(function: Callable[..., None]) -> Callable[..., None]:
    @wraps(function)
    def under_guard(*args: Any, **kwargs: Any) -> None:
        function(*args, **kwargs)

    under_guard.__safe_ops_guard__ = True  # type: ignore[attr-defined]
    return under_guard


def unsafe_tasks(build: Callable[[], Any], writing_operators: str = "") -> list[str]:
    with dag() as made:
        build()
    with only("unsafe_backfill", "enforce", **({"writing_operators": writing_operators} if writing_operators else {})):
        said = apply(made)
    return [task_id for remark in said for task_id in remark.tasks]


def mapped(**expanded: Any) -> Any:
    return SQLExecuteQueryOperator.partial(task_id="load", conn_id="dwh").expand(**expanded)


@pytest.mark.parametrize(
    "build",
    [
        lambda: sql_task(["SELECT 1", APPEND]),
        lambda: mapped(sql=["SELECT 1", APPEND]),
        lambda: SQLExecuteQueryOperator.partial(task_id="load", conn_id="dwh", sql=APPEND).expand(
            parameters=[{"a": 1}, {"a": 2}]
        ),
        lambda: SQLExecuteQueryOperator.partial(task_id="load", conn_id="dwh").expand_kwargs([{"sql": APPEND}]),
        lambda: SQLInsertRowsOperator(task_id="load", conn_id="dwh", table_name="t", rows=[(1,)]),
        lambda: type("Ours", (SQLInsertRowsOperator,), {})(task_id="load", conn_id="dwh", table_name="t", rows=[(1,)]),
    ],
    ids=["list", "mapped", "mapped by parameters", "mapped by kwargs", "class", "subclass"],
)
def test_what_writes(build: Callable[[], Any]) -> None:
    assert unsafe_tasks(build) == ["load"]


def taskflow() -> Any:
    @task
    @guarded
    def write() -> None: ...

    return write()


@pytest.mark.parametrize(
    "build",
    [
        lambda: sql_task("SELECT 1"),
        load,
        lambda: sql_task(APPEND, pre_execute=guarded(work)),
        lambda: sql_task(APPEND, pre_execute=wraps(guarded(work))(lambda *_: None)),
        lambda: SQLExecuteQueryOperator.partial(
            task_id="load", conn_id="dwh", sql=APPEND, pre_execute=guarded(work)
        ).expand(parameters=[{"a": 1}]),
        lambda: type("Ours", (SQLExecuteQueryOperator,), {"safe_to_repeat": True})(
            task_id="load", conn_id="dwh", sql=APPEND
        ),
    ],
    ids=["reads", "ours", "guarded", "guarded and wrapped", "guarded and mapped", "class says so"],
)
def test_what_is_safe(build: Callable[[], Any]) -> None:
    assert unsafe_tasks(build) == []


def test_a_guard_is_seen_through_what_calls_it() -> None:
    class Ours:
        @guarded
        def __call__(self, hook: Any) -> None:
            hook.insert_rows("mart.orders", [])

    assert unsafe_tasks(lambda: PythonOperator(task_id="load", python_callable=partial(by_hook))) == ["load"]
    assert unsafe_tasks(lambda: PythonOperator(task_id="load", python_callable=partial(guarded(by_hook)))) == []
    assert unsafe_tasks(lambda: PythonOperator(task_id="load", python_callable=Ours())) == []


class Raising(SQLExecuteQueryOperator):
    """An operator that cannot be read before it runs."""

    template_fields = ()

    @property
    def sql(self) -> str:
        raise RuntimeError("only at\nrun time")

    @sql.setter
    def sql(self, _: str) -> None: ...


def loop() -> None: ...


loop.__wrapped__ = loop  # type: ignore[attr-defined]


def test_a_task_that_cannot_be_read_hides_nothing_of_the_others() -> None:
    with dag() as made:
        sql_task(APPEND)
        Raising(task_id="raising", conn_id="dwh", sql="")
        PythonOperator(task_id="loop", python_callable=loop)
        type("Named", (Raising,), {"__module__": "our"})(task_id="named", conn_id="dwh", sql="")
    with only("unsafe_backfill", "enforce", writing_operators="our.Named"):
        said = {remark.tasks: remark for remark in apply(made)}
    assert set(said) == {("raising", "loop", "named"), ("load", "named")}
    assert bool(said["load", "named"].done) is ALLOWED_RUN_TYPES.is_there()
    faults = said["raising", "loop", "named"].what
    assert "RuntimeError: only at run time" in faults
    assert "ValueError: wrapper loop" in faults
    assert [one.retries for one in made.tasks] == [0, 0, 0, 0]
    with only("retries", "enforce"):
        assert apply(made) == []


def test_the_guard_of_this_package_is_seen() -> None:
    @task
    @this_packages_guarded("dwh", "mart.orders", "*")
    def function(hook: Any = None) -> None:
        hook.insert_rows("mart.orders", [])

    around = guard("dwh", "mart.orders", "*")
    assert unsafe_tasks(lambda: (sql_task(APPEND, **around), function())) == []
    with dag() as made:
        SQLExecuteQueryOperator.partial(task_id="load", conn_id="dwh", sql=APPEND, **around).expand(parameters=[{}])
        function()
    assert [(bool(facts.writes), facts.is_safe) for facts in dag_facts(made, PolicySettings()).tasks] == [
        (True, True),
        (True, True),
    ]


def test_classes_that_write_are_named_by_the_installation() -> None:
    named = "airflow.providers.standard.operators.python.PythonOperator, my.Own"

    def python() -> None:
        PythonOperator(task_id="load", python_callable=work)

    assert unsafe_tasks(python) == []
    assert unsafe_tasks(python, named) == ["load"]
    assert unsafe_tasks(taskflow, named.replace("python.Python", "python.Nothing")) == []


def by_hook(hook: Any, day: str) -> None:
    """Insert into nothing: a docstring is no statement."""
    hook.insert_rows("mart.orders", [(day,)])


def by_statement(hook: Any, day: str) -> None:
    def send(table: str) -> None:
        hook.run(f"""
            DELETE FROM mart.orders WHERE day = {day}""")
        hook.run("INSERT INTO " + table + " SELECT 1")

    send("mart.orders")


def by_list(hook: Any) -> None:
    hook.run(["SET work_mem = '1GB'", "DELETE FROM mart.orders", "INSERT INTO mart.orders SELECT 1"])
    assert hook.sql not in {"SELECT 1", "SELECT 2", "TRUNCATE TABLE mart.days"}


class Loader:
    """An object that is called."""

    def __call__(self, hook: Any) -> None:
        hook.insert_rows("mart.orders", [])


def by_log(hook: Any) -> None:
    hook.log.info("Insert into the queue failed")
    hook.log.info("delete from cache not possible")
    hook.log.info("Update t set aside")
    hook.log.info("Delete from %s", "cache")
    hook.log.info("Copy data from %s to %s", "a", "b")


def by_parts(hook: Any, table: str, column: str) -> None:
    hook.run(f"DELETE FROM {table} WHERE a = 1")
    hook.run(f"merge into mart.{table} USING s")
    hook.run("UPDATE mart.days SET " + column)
    hook.run("Insert Into mart.orders (a) Values (1)")


def by_nothing(hook: Any) -> None:
    """
    DELETE FROM nothing: that is a docstring.
    """
    hook.log.info("Update of %s complete", "INSERT")
    hook.get_records("SELECT insert_rows FROM t")


@pytest.mark.parametrize(
    ("function", "written"),
    [
        (by_hook, "insert_rows()"),
        (guarded(by_hook), "insert_rows()"),
        (by_statement, "DELETE mart.orders, INSERT"),
        (by_list, "DELETE mart.orders, INSERT mart.orders, TRUNCATE mart.days"),
        (partial(partial(by_hook, None), day=""), "insert_rows()"),
        (wraps(by_hook)(partial(work)), "insert_rows()"),
        (Loader(), "insert_rows()"),
        (Loader().__call__, "insert_rows()"),
        (Loader, ""),
        (partial(print), ""),
        (by_parts, "DELETE, MERGE mart., UPDATE mart.days, INSERT mart.orders"),
        (by_log, ""),
        (by_nothing, ""),
        (work, ""),
        (print, ""),
        (None, ""),
    ],
)
def test_what_a_function_says_that_it_writes(function: Any, written: str) -> None:
    assert written_by(function) == written


def test_a_function_that_appends_by_a_hook() -> None:
    """The DAG of the incident: a plain function that inserts, no key, no delete."""

    @task
    def append() -> None:
        by_hook(None, "")

    @task(task_id="load")
    def direct(hook: Any = None) -> None:
        hook.insert_rows("mart.orders", [])

    @task
    @guarded
    def safe(hook: Any = None) -> None:
        hook.insert_rows("mart.orders", [])

    assert unsafe_tasks(lambda: (append(), direct(), safe())) == ["load"]
    assert unsafe_tasks(lambda: direct.expand(hook=[1, 2])) == ["load"]


def test_a_taskflow_function_that_is_guarded_is_safe() -> None:
    with dag() as made:
        taskflow()
    writing = frozenset({"airflow.providers.standard.decorators.python._PythonDecoratedOperator"})
    (facts,) = dag_facts(made, PolicySettings(writing_operators=writing)).tasks
    assert (bool(facts.writes), facts.is_safe) == (True, True)


def test_sql_that_cannot_be_read_is_said_to_who_asks() -> None:
    with dag() as made:
        sql_task("no_such_file.sql", "file")
        sql_task("CALL load()", "call")
        mapped(sql=EmptyOperator(task_id="first").output)
    with only("unsafe_backfill", "enforce"):
        (note,) = notes(made)
    assert note.tasks == ("file", "call", "load")
    assert all(words in note.what for words in ("the file no_such_file.sql", "CALL", "made at run time"))
    assert run_types(made) is None
