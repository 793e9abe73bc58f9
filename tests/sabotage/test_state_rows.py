"""What a table holds after one load, or two: the rows of a clean run, or its old ones."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from airflow_safe_ops.definition.checks import RowCount
from airflow_safe_ops.definition.identity import RunIdentity
from airflow_safe_ops.definition.load import Load
from airflow_safe_ops.definition.partition import Partition, TimePartition, ValuePartition, WholeTable
from tests.sabotage.scene import D0, D1, D2, RUN, Sales, at, tried

if TYPE_CHECKING:
    from tests.conftest import Database

NEW_YORK = "America/New_York"
UNFILTERED = "SELECT day, id, amount FROM raw_sales"
MERGE: dict[str, Any] = {"strategy": "merge", "unique_key": ("id",)}


# --- what a load refuses -------------------------------------------------------------------------------------------


def test_an_empty_source_leaves_the_rows(db: Database) -> None:
    sales = Sales(db, [(D1, 1, 1)])
    sales.tried()
    sales.becomes()
    sales.tried()
    assert sales.rows() == [(D1, 1, 1)]


def test_rows_that_no_load_wrote_stay(db: Database) -> None:
    sales = Sales(db, [(D1, 1, 1)], held=[(D1, 7, 7)])
    sales.tried()
    assert sales.rows() == [(D1, 7, 7)]


def test_rows_of_a_day_that_no_load_wrote_stay_in_its_month(db: Database) -> None:
    """Its first day is recorded; that of the others nothing is known must not be forgotten."""
    sales = Sales(db, [(D0, 1, 1)], held=[(D1, 7, 7)])
    sales.tried(D0)
    sales.tried(D0, days=31)
    assert sales.rows() == [(D0, 1, 1), (D1, 7, 7)]


@pytest.mark.parametrize(("stray", "code"), [(None, "SO-103"), (D2, "SO-104")], ids=["null", "outside"])
def test_a_row_that_does_not_belong_is_the_reason(db: Database, stray: date | None, code: str) -> None:
    """The count after the load would notice it too, and call it another writer's: tried again in vain."""
    sales = Sales(db, [(D1, 1, 1), (stray, 2, 2)])
    sales.tried(sql=UNFILTERED)
    assert sales.rows() == []
    assert sales.attempts() == [("failed", code)]


@pytest.mark.parametrize(
    ("rows", "options"),
    [
        ([(D1, 1, 1), (D1, 1, 2)], {"unique_key": ("id",)}),
        ([(D1, None, 1)], {"unique_key": ("id",)}),
        (
            [(D1, 1, 4), (D1, 1, 4)],
            {"unique_key": ("id",), "sequence_by": "amount", "on_duplicates": "keep_latest"},
        ),
    ],
    ids=["twice", "null", "tie"],
)
def test_a_key_that_is_none_is_not_written(db: Database, rows: list[Any], options: dict[str, Any]) -> None:
    sales = Sales(db, rows)
    sales.tried(**options)
    assert sales.rows() == []


def test_a_failed_audit_keeps_readers_from_its_rows(db: Database) -> None:
    sales = Sales(db, [(D1, 1, 1)])
    sales.tried(audits=(RowCount(min=2),))
    assert sales.rows() == []


def test_rows_of_other_tables_do_not_go_along(db: Database) -> None:
    sales = Sales(db, [(D1, 1, 1)])
    sales.tried()
    db.execute("ALTER TABLE sales ADD PRIMARY KEY (id)")
    db.execute("CREATE TABLE child (sale int REFERENCES sales ON DELETE CASCADE); INSERT INTO child VALUES (1)")
    sales.tried()
    assert db.execute("SELECT sale FROM child") == [(1,)]


def test_a_query_that_writes_writes_nothing(db: Database) -> None:
    sales = Sales(db, [(D1, 1, 1)])
    db.execute(
        "CREATE TABLE log (n int);"
        "CREATE FUNCTION writes(n int) RETURNS int LANGUAGE sql VOLATILE AS 'INSERT INTO log VALUES (n); SELECT n'"
    )
    sales.tried(sql=f"{UNFILTERED} WHERE writes(id) > 0")
    assert db.execute("SELECT n FROM log") == []


# --- keys ----------------------------------------------------------------------------------------------------------


def test_a_key_that_moved_stands_once(db: Database) -> None:
    sales = Sales(db, [(D0, 1, 1)])
    sales.tried(D0, unique_key=("id",))
    sales.becomes((D1, 1, 1))
    sales.tried(D1, unique_key=("id",))
    assert [number for _, number, _ in sales.rows()] == [1]


def test_a_key_that_another_writer_brought_to_another_day(db: Database) -> None:
    """It comes before the insert: what is not written is not recorded as published."""
    sales = Sales(db, [(D1, 1, 1)])
    db.execute("CREATE UNIQUE INDEX ON sales (id)")
    bring = at("stage.analyze:after", lambda: db.execute(f"INSERT INTO sales VALUES ('{D0}', 1, 9)"))
    sales.tried(**MERGE, observe=bring)
    assert sales.partitions() == []


def test_a_merge_deletes_in_its_own_partition(db: Database) -> None:
    sales = Sales(db, [(D0, 1, 1), (D1, 2, 2), (D1, 3, 3)])
    sales.tried(D0, **MERGE)
    sales.tried(D1, **MERGE)
    sales.becomes((D0, 1, 1), (D1, 2, 2))
    sales.tried(D1, **MERGE, not_matched_by_source="delete")
    assert sales.rows() == [(D0, 1, 1), (D1, 2, 2)]


# --- values and bounds ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("kind", "value"), [("int", "7"), ("text", None)], ids=["number", "null"])
def test_a_value_is_the_columns(db: Database, kind: str, value: str | None) -> None:
    db.execute(f"CREATE TABLE source (p {kind}, v int); CREATE TABLE target (LIKE source)")
    db.execute("INSERT INTO source VALUES (%s, 1)", (value,))
    sql = "SELECT p, v FROM source WHERE p IS NOT DISTINCT FROM :p"
    load = Load(table="target", sql=sql, partition=ValuePartition(p=value))
    for version in (1, 2):
        db.execute(f"UPDATE source SET v = {version}")
        tried(db.uri, load)
    assert db.execute("SELECT v FROM target") == [(2,)]


def test_bounds_are_instants_in_every_session(db: Database) -> None:
    """A session in Chicago, a day in UTC."""
    first = datetime(2026, 1, 2, tzinfo=UTC)
    rows = _moments(db, "timestamptz", [first + timedelta(hours=n) for n in range(24)])
    uri = f"{db.uri}&options=-c%20timezone%3DAmerica/Chicago"
    tried(uri, _events(TimePartition("at", start=first, end=first + timedelta(days=1))))
    assert db.execute("SELECT count(*) FROM events") == [(rows,)]


def test_a_day_of_25_hours(db: Database) -> None:
    """The clocks went back: the run at the next midnight owns all of it."""
    first = datetime(2013, 11, 3, 4, tzinfo=UTC)
    rows = _moments(db, "timestamptz", [first + timedelta(hours=n) for n in range(25)])
    next_midnight = RunIdentity(**{**vars(RUN), "logical_date": first + timedelta(hours=25)})
    tried(db.uri, _events(TimePartition("at", timezone=NEW_YORK)), run=next_midnight)
    assert db.execute("SELECT count(*) FROM events") == [(rows,)]


def test_an_hour_that_comes_twice_has_no_wall_clock(db: Database) -> None:
    """01:30 in summer time and 01:30 after it look alike: no run may own one of them."""
    _moments(db, "timestamp", [datetime(2013, 11, 3, 1, 30)])
    for start in ("2013-11-03T05:00:00+00:00", "2013-11-03T06:00:00+00:00"):
        end = (datetime.fromisoformat(start) + timedelta(hours=1)).isoformat()
        tried(db.uri, _events(TimePartition("at", grain="hour", timezone=NEW_YORK, start=start, end=end)))
    assert db.execute("SELECT at FROM events") == []


def test_a_day_that_has_not_ended_is_not_loaded(db: Database) -> None:
    today = datetime.now(UTC).date()
    sales = Sales(db, [(today, 1, 1)])
    sales.tried(today)
    assert sales.rows() == []


def _moments(db: Database, kind: str, moments: list[datetime]) -> int:
    """A source of moments and an empty target; how many there are."""
    db.execute(f"CREATE TABLE raw_events (at {kind}); CREATE TABLE events (LIKE raw_events)")
    for moment in moments:
        db.execute("INSERT INTO raw_events VALUES (%s)", (moment,))
    return len(moments)


def _events(partition: Partition) -> Load:
    sql = "SELECT at FROM raw_events WHERE at >= :partition_start AND at < :partition_end"
    return Load(table="events", sql=sql, partition=partition)


# --- what is recorded -----------------------------------------------------------------------------------------------


def test_a_day_takes_back_what_was_counted_of_the_table(db: Database) -> None:
    sales = Sales(db, [(D1, 1, 1)])
    sales.tried(partition=WholeTable(), sql=UNFILTERED)
    sales.tried(on_unledgered="replace")
    assert sales.partitions() == [("*", None), ("day=2026-01-02..2026-01-03", 1)]


@pytest.mark.parametrize(
    ("first", "then"),
    [
        ([(D1, 1, 1), (D1, 1, 1), (D1, 2, 2)], [(D1, 3, 3), (D1, 3, 3), (D1, 2, 2)]),
        ([(D1, 1, 1), (D1, 2, 2)], [(D1, 2, 1), (D1, 1, 2)]),
    ],
    ids=["pairs", "swapped"],
)
def test_another_content_of_the_same_size_is_recorded_as_a_change(
    db: Database, first: list[tuple[Any, ...]], then: list[tuple[Any, ...]]
) -> None:
    """Pairs of rows cancel in an XOR; a sum of columns does not see two values change places."""
    sales = Sales(db, first)
    sales.tried()
    sales.becomes(*then)
    sales.tried()
    changed = db.execute("SELECT changed FROM safe_ops.safe_ops_attempt ORDER BY started_at")
    assert changed == [(True,), (True,)]
