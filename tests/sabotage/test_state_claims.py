"""What the database holds after loads that met, or died, or lost their claim; whatever each of them reported."""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import psycopg
import pytest

from airflow_safe_ops.definition.load import Load
from airflow_safe_ops.definition.partition import ValuePartition, WholeTable
from airflow_safe_ops.definition.scope import TableScope, to_json
from airflow_safe_ops.execution.session import Session
from airflow_safe_ops.ledger import claims
from airflow_safe_ops.ledger.claims import Claim, FencedError, Patience
from airflow_safe_ops.ledger.migrations import init_ledger
from airflow_safe_ops.plan.model import Statement
from airflow_safe_ops.sql.dialect import dialect_for
from tests.crash.harness import Child, Job, eventually, holding, until_blocked
from tests.crash.warehouse import FIRST, ROWS, Shop, day, month
from tests.sabotage.scene import over, tried, waits_or_ends

if TYPE_CHECKING:
    from tests.conftest import Database

INSIDE = frozenset({"stage.fill:after"})
BETWEEN = frozenset({"claim:after"})


@pytest.mark.parametrize("second", ["day", "month", "table", "view"])
def test_who_comes_second_has_the_last_word(db: Database, second: str) -> None:
    """The first has read its source already when the source changes and the second comes."""
    shop = Shop(db, days=1)
    db.execute(f"CREATE VIEW seen AS SELECT day, id, amount, note FROM {shop.target}")
    first = Child(shop.job(pauses=INSIDE))
    first.until("stage.fill:after")
    shop.new_version()
    loads = {
        "day": shop.load(),
        "month": shop.load(month()),
        "table": shop.load(WholeTable()),
        "view": shop.load(table="seen"),
    }
    other = Child(shop.job(loads[second]))
    waits_or_ends(other)
    first.go()
    over(first, other)
    assert shop.rows() == shop.rows(shop.source)


def test_one_value_written_in_two_ways_is_one_partition(db: Database) -> None:
    """1.0 and 1.00 are the same rows of a numeric column: the second load waits."""
    db.execute("CREATE TABLE source (p numeric, v int); CREATE TABLE target (LIKE source)")
    db.execute("INSERT INTO source VALUES (1, 1)")
    loads = [
        Load(
            table="target",
            sql="SELECT p, v FROM source WHERE p = :p",
            partition=ValuePartition(p=value),
            on_unledgered="replace",
        )
        for value in ("1.0", "1.00")
    ]
    first = Child(Job(db.uri, (loads[0],), pauses=INSIDE))
    first.until("stage.fill:after")
    db.execute("UPDATE source SET v = 2")
    other = Child(Job(db.uri, (loads[1],)))
    waits_or_ends(other)
    first.go()
    over(first, other)
    assert db.execute("SELECT v FROM target") == [(2,)]


def test_an_owner_at_work_ends_before_the_next_begins(db: Database) -> None:
    """Its transaction lasts longer than claim_grace: no reason to take its claim away."""
    shop = Shop(db, days=1)
    owner = Child(shop.job(grace=0.2, pauses=INSIDE))
    owner.until("stage.fill:after")
    other = Child(shop.job(grace=0.2))
    eventually(other.ended, 1.0)
    owner.go()
    over(owner, other)
    first, second = shop.attempts()
    assert first["finished_at"] <= second["started_at"]


def test_of_two_that_come_at_once_one_holds(db: Database) -> None:
    shop = Shop(db, days=1)
    shop.run()
    points = frozenset({"claim:before", "claim:after"})
    both = [Child(shop.job(name=f"load{n}", grace=30.0, pauses=points)) for n in range(2)]
    for child in both:
        child.until("claim:before")
    with holding(db.uri, "SELECT 1 FROM safe_ops.safe_ops_target FOR UPDATE"):
        for child in both:
            child.go()
            until_blocked(child)
    eventually(lambda: len(shop.claims()) == 2)
    assert sorted(held for _owner, held in shop.claims()) == [False, True]
    over(*both)


def test_an_owner_about_to_begin_is_left_alone(db: Database) -> None:
    """It has its claim and not yet its data transaction, for less than claim_grace."""
    shop = Shop(db, days=1)
    owner = Child(shop.job(name="owner", grace=30.0, pauses=BETWEEN))
    owner.until("claim:after")
    other = Child(shop.job(name="other", grace=30.0))
    eventually(lambda: len(shop.claims()) == 2)
    eventually(other.ended, 1.0)
    assert dict(shop.claims()) == {"crash.owner test try 1": True, "crash.other test try 1": False}
    over(owner, other)


def test_a_dead_owner_keeps_nobody_away(db: Database) -> None:
    shop = Shop(db, days=1)
    shop.run()
    shop.new_version()
    dead = Child(shop.job(pauses=BETWEEN))
    dead.until("claim:after")
    dead.kill()
    tried(db.uri, shop.load(), grace=0.3, lock_timeout=3.0)
    assert shop.wrong() == []


def test_the_next_day_waits_for_nobody(db: Database) -> None:
    shop = Shop(db, days=2)
    owner = Child(shop.job(pauses=INSIDE))
    owner.until("stage.fill:after")
    tried(db.uri, shop.load(day(1)), lock_timeout=2.0)
    assert shop.rows() == shop.rows(shop.source)[ROWS:]
    over(owner)


def test_a_month_that_waits_is_not_overtaken(db: Database) -> None:
    """A day that comes after the month waits behind it, though nobody writes that day now."""
    shop = Shop(db, days=2)
    owner = Child(shop.job(pauses=INSIDE))
    owner.until("stage.fill:after")
    wide = Child(shop.job(shop.load(month())))
    until_blocked(wide)
    late = Child(shop.job(shop.load(day(1))))
    waits_or_ends(late)
    owner.go()
    over(owner, wide, late)
    ends = sorted((a["finished_at"], a["partition_key"]) for a in shop.attempts())
    assert [key for _, key in ends] == [
        "day=2026-01-01..2026-01-02",
        "day=2026-01-01..2026-02-01",
        "day=2026-01-02..2026-01-03",
    ]


def test_a_key_is_moved_only_from_a_day_that_nobody_loads(db: Database) -> None:
    """A load of the day that the key has left still writes what it read before."""
    db.execute("CREATE TABLE source (day date, id int); CREATE TABLE target (LIKE source)")
    db.execute("INSERT INTO source VALUES ('2026-01-01', 1), ('2026-01-01', 2)")
    sql = "SELECT day, id FROM source WHERE day >= :partition_start AND day < :partition_end"
    options: dict[str, Any] = {"table": "target", "sql": sql, "unique_key": ("id",), "on_key_moved": "move"}
    loads = [Load(partition=day(n), **options) for n in range(2)]
    tried(db.uri, loads[0])
    left = Child(Job(db.uri, (loads[0],), pauses=INSIDE))
    left.until("stage.fill:after")
    db.execute("UPDATE source SET day = '2026-01-02' WHERE id = 1")
    entered = Child(Job(db.uri, (loads[1],)))
    waits_or_ends(entered)
    left.go()
    over(left, entered)
    assert db.execute("SELECT * FROM target ORDER BY id") == db.execute("SELECT * FROM source ORDER BY id")


def test_an_exclusive_load_waits_for_a_writer(db: Database) -> None:
    """What the writer was about to commit is replaced with the rest of the partition."""
    shop = Shop(db, days=1)
    writer = db.connect(autocommit=False)
    writer.execute(f"INSERT INTO {shop.target} VALUES (DATE '{FIRST}', 77, 0, 'by hand')".encode())
    load = Child(shop.job(shop.load(exclusive=True)))
    waits_or_ends(load)
    writer.commit()
    over(load)
    assert shop.wrong() == []


@pytest.mark.parametrize("fence", ["begin", "waits", "end"])
def test_who_lost_its_claim_commits_nothing(db: Database, fence: str) -> None:
    """Gone when its data transaction begins or ends, or only a place in the queue."""
    db.execute("CREATE TABLE written (n int)")
    dialect = dialect_for("postgresql")
    session = Session(partial(psycopg.connect, db.uri), dialect, label="safe_ops", comment="")
    session.open()
    init_ledger(session, dialect.ledger, dialect.sqlstate)
    scope = TableScope()
    attempt = {"attempt_id": str(uuid4()), "partition_key": scope.key, "scope": to_json(scope), "strategy": "merge"}
    claim = Claim('"public"."written"', attempt, (scope,), "owner")
    claims.take(session, dialect, claim, Patience())
    lost = (
        "UPDATE safe_ops.safe_ops_claim SET held = false" if fence == "waits" else "DELETE FROM safe_ops.safe_ops_claim"
    )
    db.execute(lost)
    with suppress(FencedError), session.transaction() as tx:
        if fence != "end":
            claims.hold(tx, dialect.ledger, claim)
        tx.run(Statement("INSERT INTO written VALUES (1)"))
        if fence == "end":
            claims.release(tx, dialect.ledger, claim)
    session.close()
    assert db.execute("SELECT n FROM written") == []
