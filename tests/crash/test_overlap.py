"""Several processes on one table at once: whoever overlaps waits, whoever does not runs beside."""

from __future__ import annotations

import random
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest

from airflow_safe_ops.definition.load import Load
from airflow_safe_ops.definition.partition import Partition, WholeTable
from tests import figures
from tests.crash.harness import Child, Job, Outcome, eventually, until_blocked
from tests.crash.storm import deadly_storm, side_by_side, storm
from tests.crash.warehouse import ROWS, Heap, Shop, day, month, no_stage_left, stages

if TYPE_CHECKING:
    from tests.conftest import Database

DRIVERS = ("psycopg", "psycopg2")
INSIDE = frozenset({"stage.fill:after"})
ISOLATION = pytest.mark.parametrize("isolation", ["read committed", "repeatable read"])


def _default_isolation(db: Database, isolation: str) -> None:
    db.execute(f"ALTER DATABASE {db.name} SET default_transaction_isolation = '{isolation}'")


def _source_rows(shop: Shop, days: int) -> list[tuple[Any, ...]]:
    return shop.rows(shop.source)[: days * ROWS]


def _one_behind_the_other(shop: Shop, one: Job, *others: Job) -> list[Outcome]:
    """The first stands in its data transaction while the others come; the source changes meanwhile."""
    first = Child(one)
    first.until("stage.fill:after")
    shop.new_version()
    behind = [Child(job) for job in others]
    for child in behind:
        until_blocked(child)
    first.go()
    return [child.outcome() for child in (first, *behind)]


@pytest.mark.parametrize(("strategy", "driver"), [("delete_insert", "psycopg"), ("merge", "psycopg2")])
@pytest.mark.parametrize("wider", ["day", "month", "table"])
def test_the_second_waits_for_the_first(db: Database, strategy: str, driver: str, wider: str) -> None:
    shop = Shop(db)
    partitions: dict[str, Partition] = {"day": day(), "month": month(), "table": WholeTable()}
    outcomes = _one_behind_the_other(
        shop,
        shop.job(shop.load(strategy=strategy), driver=driver, pauses=INSIDE),
        shop.job(shop.load(partitions[wider], strategy), driver=driver),
    )
    assert [outcome.error for outcome in outcomes] == ["", ""]
    assert shop.rows() == _source_rows(shop, 1 if wider == "day" else 31)
    one, two = shop.attempts()
    assert (one["outcome"], two["outcome"]) == ("published", "published")
    assert two["started_at"] > one["finished_at"]
    assert shop.claims() == []


@ISOLATION
def test_a_day_waits_for_its_month(db: Database, isolation: str) -> None:
    _default_isolation(db, isolation)
    shop = Shop(db)
    outcomes = _one_behind_the_other(shop, shop.job(shop.load(month()), pauses=INSIDE), shop.job(shop.load(day(7))))
    assert [outcome.error for outcome in outcomes] == ["", ""]
    newer = [row[0].day == 8 for row in shop.rows() if (row[3] or "").startswith("v2")]
    assert newer == [True] * (ROWS - 1)
    assert len(shop.rows()) == 31 * ROWS
    assert len(shop.partitions()) == 2


@pytest.mark.parametrize(("isolation", "driver"), [("read committed", "psycopg2"), ("repeatable read", "psycopg")])
def test_other_names_are_the_same_table(db: Database, isolation: str, driver: str) -> None:
    _default_isolation(db, isolation)
    shop = Shop(db)
    db.execute(f"CREATE VIEW seen AS SELECT day, id, amount, note FROM {shop.target}")
    names = [shop.target, f"public.{shop.target}", f'"public"."{shop.target}"', "seen"]
    first, *others = [shop.load(table=name) for name in names]
    outcomes = _one_behind_the_other(
        shop, shop.job(first, driver=driver, pauses=INSIDE), *(shop.job(load, driver=driver) for load in others)
    )
    assert [outcome.error for outcome in outcomes] == [""] * len(names)
    assert shop.wrong() == []
    assert len(shop.attempts()) == len(names)
    assert db.execute("SELECT count(*) FROM safe_ops.safe_ops_target") == [(2,)]


def test_disjoint_days_run_side_by_side(db: Database, driver: str) -> None:
    shop = Shop(db)
    one = Child(shop.job(shop.load(day(0)), driver=driver, pauses=INSIDE))
    one.until("stage.fill:after")
    outcomes = [Child(shop.job(shop.load(day(n)), driver=driver)).outcome() for n in (1, 2)]
    one.go()
    outcomes.append(one.outcome())
    assert [outcome.error for outcome in outcomes] == ["", "", ""]
    assert max(outcome.waited for outcome in outcomes) < 0.5
    around, *inside = shop.attempts()
    for attempt in inside:
        assert around["started_at"] < attempt["started_at"]
        assert attempt["finished_at"] < around["finished_at"]
    assert shop.rows() == _source_rows(shop, 3)
    assert shop.claims() == []


@pytest.mark.parametrize("index", [True, False])
def test_one_key_comes_to_two_days_at_once(db: Database, driver: str, index: bool) -> None:
    """One after the other, the second is refused; beside each other they must not both put the key there."""
    shop = Shop(db)
    db.execute("CREATE TABLE one_key (day date, id int)")
    if index:
        db.execute("CREATE UNIQUE INDEX ON one_key (id)")
    query = "SELECT CAST(:partition_start AS date) AS day, 1 AS id"
    first, second = [Load(table="one_key", sql=query, partition=day(n), unique_key=("id",)) for n in (0, 1)]
    one = Child(shop.job(first, driver=driver, pauses=frozenset({"commit:before"})))
    one.until("commit:before")
    other = Child(shop.job(second, driver=driver))
    eventually(lambda: other.ended() or other.is_blocked(), 10)
    one.go()
    outcomes = [child.outcome() for child in (one, other)]
    assert db.execute("SELECT count(*) FROM one_key") == [(1,)]
    assert [outcome.published for outcome in outcomes] == [True, False]
    assert outcomes[1].code == "SO-107"


@pytest.mark.parametrize("seed", [1, 2])
def test_two_days_step_by_step_in_turns(db: Database, seed: int) -> None:
    """Both have a stage of their own, whichever of them goes on next."""
    turns = random.Random(seed)  # noqa: S311
    shop = Shop(db)
    everywhere = frozenset({"*"})
    both = [
        Child(shop.job(shop.load(day(n), strategy), name=f"day{n}", pauses=everywhere))
        for n, strategy in enumerate(("delete_insert", "merge"))
    ]
    going = list(both)
    while going:
        child = turns.choice(going)
        if child.until_anywhere():
            child.go()
        if child.ended():
            going.remove(child)
    assert [child.outcome().error for child in both] == ["", ""]
    assert shop.rows() == _source_rows(shop, 2)
    assert no_stage_left(db), stages(db)


def _all_outcomes(crowd: list[Child]) -> list[list[Outcome]]:
    with ThreadPoolExecutor(len(crowd)) as readers:
        return list(readers.map(lambda child: child.outcomes(), crowd))


def _accounted_for(shop: Shop, outcomes: list[Outcome]) -> None:
    """Every load that was reported is one attempt, and the other way round."""
    assert {outcome.error for outcome in outcomes} == {""}
    ids = {outcome.partitions[0]["attempt_id"] for outcome in outcomes}
    assert ids == {a["attempt_id"] for a in shop.attempts() if a["outcome"] == "published"}
    assert len(ids) == len(outcomes) == len(shop.attempts())
    assert shop.claims() == []


def _month_among_days(db: Database, writers: int, seconds: float, limit: float) -> None:
    shop = Shop(db)
    shop.run(shop.load(month()))
    shop.new_version()
    days = [Child(shop.job(shop.load(day(n)), shop.load(day(n + 1)), seconds=seconds)) for n in range(writers)]
    for child in days:
        child.outcome()
    wide = Child(shop.job(shop.load(month(), "merge"), name="month"))
    outcomes = [outcome for each in _all_outcomes([wide, *days]) for outcome in each]
    assert outcomes[0].waited < limit
    _accounted_for(shop, [Outcome(partitions=[{"attempt_id": shop.attempts()[0]["attempt_id"]}]), *outcomes])
    mine = outcomes[0].partitions[0]["attempt_id"]
    attempts = shop.attempts()
    got_in = next(a for a in attempts if a["attempt_id"] == mine)
    assert [a for a in attempts if a["started_at"] > got_in["finished_at"]], "the days were over before it got in"
    assert shop.rows() == _source_rows(shop, 31)


def test_a_month_gets_in_among_days(db: Database) -> None:
    _month_among_days(db, writers=4, seconds=5, limit=5)


@pytest.mark.long
def test_a_month_gets_in_among_many_days(db: Database) -> None:
    _month_among_days(db, writers=8, seconds=40, limit=30)


def _storm(db: Database, isolation: str, drivers: tuple[str, ...], processes: int, seconds: float) -> None:
    written = storm(db, isolation, drivers, processes, seconds)
    assert len(written) > processes
    in_common, apart = side_by_side(written)
    assert in_common == 0, "two loads of one day were at work at once"
    assert apart > 0, "loads of different days waited for each other"
    assert no_stage_left(db), stages(db)


@pytest.mark.parametrize(
    ("isolation", "driver"),
    [("read committed", "psycopg"), ("repeatable read", "psycopg2"), ("serializable", "psycopg")],
)
def test_everything_at_once(db: Database, isolation: str, driver: str) -> None:
    """Days, months and the whole table, by several names and logins; what a day holds tells who wrote it last."""
    _storm(db, isolation, (driver,), processes=6, seconds=2)


@pytest.mark.long
@ISOLATION
def test_everything_at_once_for_longer(db: Database, isolation: str) -> None:
    _storm(db, isolation, ("psycopg", "psycopg2"), processes=8, seconds=60)


@pytest.mark.long
def test_everything_at_once_while_some_die(db: Database) -> None:
    deadly_storm(db, DRIVERS, processes=6, seconds=15)
    assert no_stage_left(db), stages(db)


def _at_once(shop: Shop, *jobs: Job) -> list[Outcome]:
    """All of them stand before their claim, and are let go."""
    crowd = [Child(job) for job in jobs]
    for child in crowd:
        child.until("claim:before")
    for child in crowd:
        child.go()
    return [child.outcome() for child in crowd]


def test_many_append_one_day_once(db: Database) -> None:
    """Each of them has it to append, and nothing but the ledger says that it is there."""
    shop = Heap(db)
    before = frozenset({"claim:before"})
    jobs = [shop.job(shop.load(strategy="append_once"), driver=DRIVERS[n % 2], pauses=before) for n in range(8)]
    outcomes = _at_once(shop, *jobs)
    assert [outcome.error for outcome in outcomes] == [""] * 8
    added = sorted(outcome.partitions[0]["rows_inserted"] for outcome in outcomes)
    wrong = shop.wrong()
    figures.add("overlaps", loads=8, wrong=int(bool(wrong)), deadlocks=0)
    assert (added, wrong) == ([0] * 7 + [ROWS], [])


def test_days_are_appended_beside_their_month(db: Database) -> None:
    """A month that comes first has appended its days; a day that comes first has taken its month's place."""
    shop = Heap(db)
    before = frozenset({"claim:before"})
    loads = [shop.load(partition, "append_once") for partition in (month(), day(0), day(1), day(2))]
    outcomes = _at_once(shop, *(shop.job(load, pauses=before) for load in loads))
    assert {outcome.code for outcome in outcomes} <= {"", "SO-102"}
    assert any(outcome.published for outcome in outcomes)
    days = 31 if outcomes[0].published else sum(outcome.published for outcome in outcomes)
    assert len(shop.rows()) == len(set(shop.rows())) == days * ROWS
    assert shop.claims() == []
