"""A delete and its insert in two tasks: which pairs the cluster policy finds, and that many of them cost little."""

from __future__ import annotations

from collections.abc import Callable
from time import process_time
from typing import Any

import pytest
from airflow.providers.common.sql.operators.sql import SQLExecuteQueryOperator

from tests.unit.policy_world import apply, dag, only, sql_task


@pytest.mark.parametrize("mode", ["warn", "enforce"])
def test_a_delete_and_its_insert_in_two_tasks(mode: str) -> None:
    """stellar/stellar-etl-airflow#421: a clear of the insert alone doubles the rows."""
    with dag() as made:
        sql_task("DELETE FROM mart.orders WHERE d = '{{ ds }}'", "delete") >> sql_task("INSERT INTO orders SELECT 1")
    with only("split_write", mode):
        (remark,) = apply(made)
    assert remark.tasks == ("delete", "load")
    assert "deletes from mart.orders" in remark.what
    assert ("cannot set it right" in remark.fix) is (mode == "enforce")


@pytest.mark.parametrize(
    "build",
    [
        lambda: (sql_task("DELETE FROM mart.a", "one"), sql_task("INSERT INTO mart.b SELECT 1")),
        lambda: sql_task(["DELETE FROM mart.a", "INSERT INTO mart.a SELECT 1"]),
        lambda: (
            sql_task(["DELETE FROM a WHERE r = 1", "INSERT INTO a SELECT 1"], "one"),
            sql_task(["DELETE FROM a WHERE r = 2", "INSERT INTO a SELECT 2"], "two"),
        ),
        lambda: (
            sql_task("DELETE FROM a", "one"),
            SQLExecuteQueryOperator(task_id="two", conn_id="other", sql="INSERT INTO a SELECT 1"),
        ),
    ],
    ids=["two tables", "one task", "two whole units", "two databases"],
)
def test_what_is_no_split_write(build: Callable[[], Any]) -> None:
    with dag() as made:
        build()
    with only("split_write", "warn"):
        assert apply(made) == []


@pytest.mark.parametrize(
    ("deleted", "inserted", "is_one"),
    [
        ("t", "t", True),
        ("t", "mart.t", True),
        ("db.mart.t", "mart.t", True),
        ("mart.t", "raw.t", False),
        ("t", "at", False),
    ],
)
def test_names_of_one_table(deleted: str, inserted: str, is_one: bool) -> None:
    for one, other in ((deleted, inserted), (inserted, deleted)):
        with dag() as made:
            sql_task(f"DELETE FROM {one}", "delete")
            sql_task(f"INSERT INTO {other} SELECT 1")
        with only("split_write", "warn"):
            assert [remark.tasks for remark in apply(made)] == ([("delete", "load")] if is_one else [])


def test_many_tasks_of_one_table_are_one_finding() -> None:
    with dag() as made:
        for n in range(300):
            sql_task(f"DELETE FROM mart.orders WHERE shop = {n}", f"delete_{n}")
            sql_task(f"INSERT INTO orders SELECT {n}", f"insert_{n}")
        sql_task("DELETE FROM mart.days", "delete_days")
        sql_task("INSERT INTO mart.days SELECT 1", "insert_days")
    begun = process_time()
    with only("split_write", "warn"):
        days, orders = apply(made)
    assert process_time() - begun < 5  # it was a pair of loops over all tasks, and 90,000 findings
    assert days.tasks == ("delete_days", "insert_days")
    assert orders.tasks == (*(f"delete_{n}" for n in range(10)), *(f"insert_{n}" for n in range(10)))
    assert "delete_0 and 299 more" in orders.what
