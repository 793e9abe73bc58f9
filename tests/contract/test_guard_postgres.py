"""Writes that are not ours, under the guard: recorded, repeated, failed, judged."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from airflow_safe_ops import NoDuplicates, RowCount, SqlCheck, TimePartition
from airflow_safe_ops.errors import (
    InvalidArgument,
    WriteRepeated,
)
from airflow_safe_ops.operators.guard import guard, partition_claim
from tests.contract.guards import (
    APPEND,
    TARGET,
    once,
    perform,
    state,
    task_run,
)
from tests.contract.harness import D1, D2, raised, sale

if TYPE_CHECKING:
    from tests.contract.postgres import PostgresWarehouse


@pytest.fixture
def warehouse(postgres: PostgresWarehouse) -> PostgresWarehouse:
    postgres.sales([sale(D1, 1, 10), sale(D1, 2, 20), sale(D2, 3, 30)])
    return postgres


def test_a_write_is_recorded(warehouse: PostgresWarehouse) -> None:
    perform()
    assert once(warehouse)
    assert state(warehouse) == [("published", 2)]
    assert warehouse.ledger("attempt", "strategy, state, rows_after, dag_id, task_id") == [
        ("guarded", "published", 2, "sales", "load")
    ]


def test_a_repeat_is_refused(warehouse: PostgresWarehouse) -> None:
    """A repaired or cleared task appended its lines a second time."""
    perform()
    refused = raised(perform)
    assert isinstance(refused, WriteRepeated)
    assert refused.facts == {"rows": 2, "state": "published"}
    assert once(warehouse)
    assert state(warehouse) == [("published", 2)]
    assert warehouse.states() == ["published", "failed"]
    perform(D2)
    assert once(warehouse, D2)


def test_a_repeat_is_refused_without_a_ledger(warehouse: PostgresWarehouse) -> None:
    perform()
    warehouse.lose_ledger()
    assert raised(perform).code == "SO-731"
    assert once(warehouse)


def test_a_repeat_after_a_clean_up(warehouse: PostgresWarehouse) -> None:
    warehouse.insert("sales", [sale(D2, 9, 9)])
    for _ in range(3):
        perform(on_repeat="clean_up")
    assert once(warehouse)
    assert warehouse.rows("sales", where=f"WHERE day = '{D2}'") == [sale(D2, 9, 9)]
    assert warehouse.ledger("attempt", "state, rows_deleted, changed", "ORDER BY started_at") == [
        ("published", 0, True),
        ("published", 2, False),
        ("published", 2, False),
    ]


def test_a_repeat_of_a_writer_that_replaces(warehouse: PostgresWarehouse) -> None:
    sql = f"DELETE FROM sales WHERE day = '{D1}'; {APPEND}"
    for _ in range(2):
        perform(sql=sql, on_repeat="allow")
    assert once(warehouse)


def test_a_writer_that_fails_half_way(warehouse: PostgresWarehouse) -> None:
    """It has committed a part: that is known, refused, and healed where a clean-up is declared."""

    def half() -> None:
        warehouse.insert("sales", [sale(D1, 1, 10)])
        raise RuntimeError("out of memory")

    with pytest.raises(RuntimeError, match="out of memory"), partition_claim(*TARGET, context=task_run()):
        half()
    assert state(warehouse) == [("unconfirmed", None)]
    assert warehouse.ledger("attempt", "state, error_class") == [("failed", "RuntimeError")]
    assert warehouse.claims() == []
    assert raised(perform).facts == {"rows": 1, "state": "unconfirmed"}
    perform(on_repeat="clean_up")
    assert once(warehouse)
    assert state(warehouse) == [("published", 2)]


def test_a_writer_that_failed_before_it_wrote(warehouse: PostgresWarehouse) -> None:
    with pytest.raises(Exception, match="nowhere"):
        perform(sql="INSERT INTO nowhere SELECT 1")
    perform(try_number=2)
    assert once(warehouse)
    assert warehouse.states() == ["failed", "published"]


def test_what_one_day_does_to_its_month(warehouse: PostgresWarehouse) -> None:
    """Counts of an overlapping partition are forgotten before the writer begins, not after it has ended."""
    month = TimePartition("day", grain="month", start="2026-01-01", end="2026-02-01")
    warehouse.load(partition=month)
    key = "day=2026-01-01..2026-02-01"
    assert state(warehouse, key) == [("published", 3)]
    with partition_claim(*TARGET, context=task_run(), on_repeat="allow"):
        assert state(warehouse, key) == [("published", None)]
        assert state(warehouse) == [("unconfirmed", None)]


def test_checks_on_what_it_wrote(warehouse: PostgresWarehouse) -> None:
    twice = APPEND.replace("FROM raw_sales", "FROM (SELECT * FROM raw_sales UNION ALL SELECT * FROM raw_sales) AS r")
    refused = raised(lambda: perform(sql=twice, post_checks=[NoDuplicates("id")]))
    assert (refused.code, refused.why.count("unconfirmed")) == ("SO-110", 1)
    assert state(warehouse) == [("unconfirmed", None)]
    perform(on_repeat="clean_up", post_checks=[NoDuplicates("id"), RowCount(min=1)])
    assert once(warehouse)
    assert (
        warehouse.ledger("check", "phase, passed", "ORDER BY check_id")
        == [("post_check", False)] + [("post_check", True)] * 2
    )


def test_the_days_that_are_looked_back_at_are_one_range(warehouse: PostgresWarehouse) -> None:
    back = TimePartition("day", lookback=2)
    for _ in range(2):
        with partition_claim("warehouse", "sales", back, context=task_run(D2), on_repeat="clean_up") as write:
            assert write.scope.key == "day=2026-01-01..2026-01-04"
            warehouse.insert("sales", warehouse.rows("raw_sales"))
        assert state(warehouse, write.scope.key) == [("published", 3)]
    with pytest.raises(InvalidArgument, match="lookback"):
        guard("warehouse", "sales", back)


def test_what_others_make_of_an_unconfirmed_partition(warehouse: PostgresWarehouse) -> None:
    with pytest.raises(RuntimeError), partition_claim(*TARGET, context=task_run()):
        raise RuntimeError
    assert state(warehouse) == [("unconfirmed", None)]
    warehouse.load_twice(strategy="append_once")
    assert once(warehouse)
    assert state(warehouse) == [("published", 2)]


def test_a_clean_up_that_would_take_other_rows(warehouse: PostgresWarehouse) -> None:
    warehouse.create("sales", {"day": "date", "id": "int", "amount": "numeric"}, key=["id"])
    warehouse.execute("CREATE TABLE lines (sale int REFERENCES sales ON DELETE CASCADE)")
    assert raised(lambda: perform(on_repeat="clean_up")).code == "SO-305"
    perform()
    assert once(warehouse)


def test_a_writer_that_leaves_its_partition_empty(warehouse: PostgresWarehouse) -> None:
    """It has probably written another day than its guard's: the clean-up took one day, and the other was doubled."""
    perform()
    other_day = APPEND.replace("{{ data_interval_start | ds }}", D2.isoformat())
    refused = raised(lambda: perform(sql=other_day, on_repeat="clean_up"))
    assert (refused.code, refused.facts) == ("SO-101", {"rows": 2})
    assert state(warehouse) == [("unconfirmed", None)]
    assert warehouse.ledger("attempt", "state, rows_deleted", "ORDER BY started_at") == [
        ("published", 0),
        ("failed", 2),
    ]
    perform(sql="SELECT 1", on_repeat="clean_up")  # nothing was there, and nothing is: it is only warned of
    assert state(warehouse) == [("published", 0)]
    perform(D2, sql="SELECT 1", on_repeat="clean_up", on_empty="replace")
    assert warehouse.rows("sales") == []


def test_checks_may_use_the_bounds_and_are_understood_before_the_writer_starts(warehouse: PostgresWarehouse) -> None:
    good = SqlCheck("SELECT count(*) = 2 FROM {relation} WHERE day >= :partition_start")
    perform(post_checks=[good])
    assert once(warehouse)
    assert raised(lambda: perform(D2, post_checks=[SqlCheck("SELECT true WHERE :unknown")])).code == "SO-210"
    assert warehouse.rows("sales", where=f"WHERE day = '{D2}'") == []


def test_the_days_of_a_range_that_was_not_written_to_its_end(warehouse: PostgresWarehouse) -> None:
    """They were cleaned up with it: nobody knows what they hold, and nobody is said to have deleted it."""
    for day in (D1, D2):
        warehouse.load(day)
    both = TimePartition("day", lookback=1)
    with (
        pytest.raises(RuntimeError),
        partition_claim("warehouse", "sales", both, context=task_run(D2), on_repeat="clean_up"),
    ):
        raise RuntimeError
    states = warehouse.ledger("partition", "state", "ORDER BY partition_key")
    assert states == [("unconfirmed",)] * 3
    for day in (D1, D2):
        warehouse.load(day, strategy="append_once")
    assert once(warehouse)


def test_a_writer_that_changes_the_table(warehouse: PostgresWarehouse) -> None:
    """dbt may add a column, or take one away."""
    with partition_claim(*TARGET, context=task_run()):
        warehouse.execute("ALTER TABLE sales ADD COLUMN colour text; ALTER TABLE sales DROP COLUMN amount")
        warehouse.execute(f"INSERT INTO sales VALUES ('{D1}', 1, 'red')")
    assert state(warehouse) == [("published", 1)]
    with partition_claim(*TARGET, context=task_run(D2)):
        warehouse.execute("DROP TABLE sales; CREATE TABLE sales (day date)")
        warehouse.execute(f"INSERT INTO sales VALUES ('{D2}')")
    assert state(warehouse, "day=2026-01-03..2026-01-04") == [("published", 1)]

    def drop() -> None:
        with partition_claim(*TARGET, context=task_run(D2), on_repeat="allow"):
            warehouse.execute("DROP TABLE sales")

    refused = raised(drop)
    assert (refused.code, refused.why.count("has committed")) == ("SO-301", 1)
    assert state(warehouse, "day=2026-01-03..2026-01-04") == [("unconfirmed", None)]
