"""Writes that are not ours, under the guard: a plain SQL operator, a function, a block."""

from __future__ import annotations

import asyncio
import inspect
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, date, datetime, timedelta
from functools import partial
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from airflow.providers.common.sql.operators.sql import SQLExecuteQueryOperator
from airflow.providers.standard.triggers.temporal import TimeDeltaTrigger
from airflow.sdk import DAG, BaseOperator

from airflow_safe_ops import NoDuplicates, RowCount, SqlCheck, TimePartition
from airflow_safe_ops.errors import (
    ClaimTimeout,
    InvalidArgument,
    SafeOpsError,
    Unfenced,
    WriteRepeated,
)
from airflow_safe_ops.operators.guard import guard, guarded, partition_claim
from tests.contract.harness import D0, D1, D2, DAY, Context, raised, run, sale
from tests.crash.harness import eventually

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from airflow_safe_ops.definition.guard import OnRepeat
    from tests.contract.postgres import PostgresWarehouse

D1_KEY = "day=2026-01-02..2026-01-03"
APPEND = "INSERT INTO sales SELECT * FROM raw_sales WHERE day = '{{ data_interval_start | ds }}'"
TARGET = ("warehouse", "sales", DAY)


def task_run(day: date = D1, **facts: Any) -> Context:
    """The context of one try, as an operator's hooks get it."""
    return {**run(day, **facts), "task": BaseOperator(task_id="dbt")}


def perform(day: date = D1, *, sql: str = APPEND, try_number: int = 1, **options: Any) -> None:
    """A dbt-like task: a plain SQL operator with the guard's arguments, driven as Airflow's task runner drives it."""
    sql = sql.replace("{{ data_interval_start | ds }}", day.isoformat())
    dbt: Any = SQLExecuteQueryOperator(task_id="dbt", conn_id="warehouse", sql=sql, **guard(*TARGET, **options))
    context: Any = {**run(day, try_number=try_number), "task": dbt}
    try:
        dbt._pre_execute_hook(context)
        dbt._post_execute_hook(context, dbt.execute(context))
    except Exception as error:
        for callback in dbt.on_failure_callback:
            callback({**context, "exception": error})
        raise


@pytest.fixture
def warehouse(postgres: PostgresWarehouse) -> PostgresWarehouse:
    postgres.sales([sale(D1, 1, 10), sale(D1, 2, 20), sale(D2, 3, 30)])
    return postgres


def once(warehouse: PostgresWarehouse, day: date = D1) -> bool:
    """Whether the day stands there as one clean run leaves it, and nobody holds it."""
    where = f"WHERE day = '{day}'"
    return warehouse.rows("sales", where=where) == warehouse.rows("raw_sales", where=where) and not warehouse.claims()


def state(warehouse: PostgresWarehouse, key: str = D1_KEY) -> list[tuple[Any, ...]]:
    return warehouse.ledger("partition", "state, row_count", f"WHERE partition_key = '{key}'")


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


def test_a_second_writer_is_refused(warehouse: PostgresWarehouse) -> None:
    """Two runs of one task at once (apache/airflow#23520): the second never starts, whatever it writes."""
    with partition_claim(*TARGET, context=task_run()):
        started = time.monotonic()
        assert "sales.load" in str(elsewhere(lambda: perform(lock_timeout=0)))
        month = TimePartition("day", grain="month", start="2026-01-01", end="2026-02-01")
        with pytest.raises(ClaimTimeout):
            warehouse.operator(partition=month, lock_timeout=0.1).execute(run(D1))
        assert time.monotonic() - started < 5
        perform(D2)
        warehouse.insert("sales", [sale(D1, 1, 10), sale(D1, 2, 20)])
    assert once(warehouse)
    assert once(warehouse, D2)


def elsewhere(work: Callable[[], object]) -> SafeOpsError:
    """What is refused on another thread, as in another process: one's own guard would be told from another's."""
    with ThreadPoolExecutor(1) as other:
        return raised(lambda: other.submit(work).result(30))


@pytest.mark.parametrize("on_repeat", ["fail", "clean_up"])
def test_a_second_writer_waits(warehouse: PostgresWarehouse, on_repeat: str) -> None:
    with ThreadPoolExecutor(1) as other:
        with partition_claim(*TARGET, context=task_run()):
            second = other.submit(lambda: perform(on_repeat=on_repeat))
            time.sleep(0.5)
            assert warehouse.rows("sales") == []
            warehouse.insert("sales", [sale(D1, 1, 10), sale(D1, 2, 20)])
        if on_repeat == "fail":
            assert raised(lambda: second.result(20)).code == "SO-731"
        else:
            second.result(20)
    assert once(warehouse)


@contextmanager
def watched(monkeypatch: pytest.MonkeyPatch, every: float) -> Iterator[None]:
    """The claim is asked for so often, in seconds."""
    with monkeypatch.context() as patched:
        patched.setattr("airflow_safe_ops.execution.held.EVERY", every)
        yield


def lose_the_claim(warehouse: PostgresWarehouse) -> None:
    """End the server process that holds a guard's claim."""
    held = "application_name LIKE 'safe_ops % guard' AND state LIKE 'idle in%'"
    ended = warehouse.execute(f"SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE {held}")
    assert ended == [(True,)]


def test_a_writer_that_lost_its_claim(warehouse: PostgresWarehouse) -> None:
    """T02: a late writer is told so; what others may have written meanwhile is unknown, and the ledger says it."""

    def write_late() -> None:
        warehouse.insert("sales", [sale(D1, 1, 10), sale(D1, 2, 20)])
        lose_the_claim(warehouse)
        warehouse.load(D1, on_unledgered="replace")
        assert state(warehouse) == [("published", 2)]

    with pytest.raises(Unfenced) as lost, partition_claim(*TARGET, context=task_run()):
        write_late()
    assert not lost.value.terminal
    assert state(warehouse) == [("unconfirmed", None)]
    assert warehouse.states() == ["unfenced", "published"]
    assert warehouse.claims() == []


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


def test_a_function(warehouse: PostgresWarehouse, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("airflow.sdk.get_current_context", task_run)

    @guarded(*TARGET)
    def load(number: int, *, amount: int) -> str:
        warehouse.insert("sales", [sale(D1, number, amount)])
        return "done"

    assert load(1, amount=10) == "done"
    assert raised(lambda: load(2, amount=20)).code == "SO-731"
    assert warehouse.rows("sales") == [sale(D1, 1, 10)]


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


def test_templates(warehouse: PostgresWarehouse) -> None:
    context = {**task_run(), "where": "sales", "ds": D1.isoformat()}
    partition = {"day": "{{ ds }}"}
    with partition_claim("ware{{ 'house' }}", "{{ where }}", partition, context=context) as write:
        assert write.scope.key == "day=2026-01-02"
    assert warehouse.ledger("partition", "partition_key") == [("day=2026-01-02",)]


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


def test_a_guard_inside_a_guard_is_refused_and_does_not_wait(warehouse: PostgresWarehouse) -> None:
    with partition_claim(*TARGET, context=task_run()):
        assert raised(perform).code == "SO-201"
        warehouse.insert("sales", [sale(D1, 1, 10), sale(D1, 2, 20)])
    assert once(warehouse)
    perform(D1, on_repeat="clean_up")
    assert once(warehouse)


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


def test_a_clean_up_that_would_take_other_rows(warehouse: PostgresWarehouse) -> None:
    warehouse.create("sales", {"day": "date", "id": "int", "amount": "numeric"}, key=["id"])
    warehouse.execute("CREATE TABLE lines (sale int REFERENCES sales ON DELETE CASCADE)")
    assert raised(lambda: perform(on_repeat="clean_up")).code == "SO-305"
    perform()
    assert once(warehouse)


def test_it_is_asked_again_and_again_whether_the_claim_is_held(
    warehouse: PostgresWarehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = "SELECT state_change FROM pg_stat_activity WHERE application_name LIKE 'safe_ops % guard'"
    with watched(monkeypatch, 0.1), partition_claim(*TARGET, context=task_run()):
        before = warehouse.execute(asked)
        time.sleep(0.5)
        assert warehouse.execute(asked) > before


def test_a_lost_claim_is_seen_while_it_writes(warehouse: PostgresWarehouse, monkeypatch: pytest.MonkeyPatch) -> None:

    def see(watch: Any) -> None:
        lose_the_claim(warehouse)
        watch.join(5)
        assert not watch.is_alive()

    with watched(monkeypatch, 0.1), pytest.raises(Unfenced), partition_claim(*TARGET, context=task_run()) as write:
        see(write._claim._watch)
    assert warehouse.states() == ["unfenced"]


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


def test_a_guard_that_is_lost_while_it_cleans_up(warehouse: PostgresWarehouse) -> None:
    """Nothing is cleaned up then, and the writer is not started."""
    warehouse.insert("sales", [sale(D1, 1, 10)])
    blocker = warehouse.database.connect(autocommit=False)
    blocker.execute("SELECT 1 FROM sales FOR UPDATE")
    with ThreadPoolExecutor(1) as other:
        writer = other.submit(lambda: perform(on_repeat="clean_up"))
        guards = (
            "SELECT {} FROM pg_stat_activity WHERE application_name LIKE 'safe_ops % guard' AND query LIKE '%DELETE%'"
        )
        assert eventually(lambda: warehouse.execute(guards.format("pid") + " AND wait_event_type = 'Lock'"))
        assert warehouse.execute(guards.format("pg_terminate_backend(pid, 5000)")) == [(True,)]
        blocker.rollback()
        with pytest.raises(SafeOpsError, match="not started"):
            writer.result(30)
    assert warehouse.rows("sales", where=f"WHERE day = '{D1}'") == [sale(D1, 1, 10)]
    perform(on_repeat="clean_up")
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


def test_a_writer_that_lost_its_claim_and_failed(warehouse: PostgresWarehouse) -> None:
    """What another load published meanwhile is not what stands there now."""

    def write_late() -> None:
        lose_the_claim(warehouse)
        warehouse.load(D1)
        warehouse.insert("sales", [sale(D1, 9, 9)])
        raise RuntimeError("late")

    with pytest.raises(RuntimeError, match="late"), partition_claim(*TARGET, context=task_run()):
        write_late()
    assert state(warehouse) == [("unconfirmed", None)]
    assert warehouse.states() == ["unfenced", "published"]


def test_a_writer_beside_one_that_lost_its_claim(warehouse: PostgresWarehouse) -> None:
    """The second held its claim to the end; the rows that the first brought late are no rows of its own."""
    late, begun = threading.Event(), threading.Event()

    def first() -> None:
        with partition_claim(*TARGET, context=task_run(), on_repeat="clean_up"):
            lose_the_claim(warehouse)
            begun.set()
            late.wait(20)
            warehouse.insert("sales", [sale(D1, 1, 10)])

    with ThreadPoolExecutor(1) as other:
        lost = other.submit(first)
        begun.wait(20)

        def second() -> None:
            with partition_claim(*TARGET, context=task_run(), on_repeat="clean_up"):
                late.set()
                assert isinstance(lost.exception(20), Unfenced)

        assert raised(second).code == "SO-732"
    assert state(warehouse) == [("unconfirmed", None)]
    assert warehouse.states() == ["unfenced", "unfenced"]
    perform(on_repeat="clean_up")
    assert once(warehouse)


def test_checks_may_use_the_bounds_and_are_understood_before_the_writer_starts(warehouse: PostgresWarehouse) -> None:
    good = SqlCheck("SELECT count(*) = 2 FROM {relation} WHERE day >= :partition_start")
    perform(post_checks=[good])
    assert once(warehouse)
    assert raised(lambda: perform(D2, post_checks=[SqlCheck("SELECT true WHERE :unknown")])).code == "SO-210"
    assert warehouse.rows("sales", where=f"WHERE day = '{D2}'") == []


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


def test_no_patience_at_all(warehouse: PostgresWarehouse) -> None:
    """Other partitions of the table are none of its business, however many are claimed at this moment."""
    days = [D0 + timedelta(days=n) for n in range(24)]
    with ThreadPoolExecutor(6) as hands:
        list(hands.map(lambda day: perform(day, sql="SELECT 1", lock_timeout=0), days))
        list(hands.map(lambda day: warehouse.operator(lock_timeout=0).execute(run(day)), days))
    assert set(warehouse.states()) == {"published"}


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


def test_a_limit_on_transactions_is_not_the_guards(
    warehouse: PostgresWarehouse, new_postgres: PostgresWarehouse
) -> None:
    """``transaction_timeout``, which servers have since 17."""
    database = new_postgres.database.name
    new_postgres.sales([sale(D1, 1, 10)])
    if new_postgres.execute("SELECT current_setting('server_version_num')::int >= 170000") == [(True,)]:
        new_postgres.execute(f"ALTER DATABASE {database} SET transaction_timeout = 700")
    with partition_claim(*TARGET, context=task_run()):
        time.sleep(1.5)
        new_postgres.insert("sales", [sale(D1, 1, 10)])
    assert once(new_postgres)
