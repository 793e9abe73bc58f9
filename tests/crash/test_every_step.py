"""A process killed before, in and after every step of its plan; run again, all is as after one clean run."""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from airflow_safe_ops.definition.checks import RowCount
from airflow_safe_ops.sql.ledger import LedgerSql
from airflow_safe_ops.sql.ledger_tables import MIGRATIONS
from tests import figures
from tests.crash.bazaar import Bazaar
from tests.crash.harness import Child, holding, run_apart, until_blocked
from tests.crash.steps import every_step
from tests.crash.sweep import GRACE, Case, Clean, Deed, by_hands, differences, sweep
from tests.crash.warehouse import FIRST, ROWS, STRATEGIES, Heap, Shop, day, no_stage_left, stages

if TYPE_CHECKING:
    from tests.conftest import Database, PgServer

DRIVERS = ("psycopg", "psycopg2")
# Before a step is after the one before it: where many kinds of load are tried, one of the two is enough.
EVERYWHERE = ("before", "locked", "stopped", "after")
# One driver for each strategy in the short tier, and the other one in the long tier.
SHORT = [(strategy, DRIVERS[n % 2]) for n, strategy in enumerate(STRATEGIES)]
LONG = [(strategy, DRIVERS[1 - n % 2]) for n, strategy in enumerate(STRATEGIES)]


def _nothing_is_wrong(db: Database, case: Case, whens: Sequence[str] = EVERYWHERE) -> None:
    assert sweep(db, case, whens) == {}
    assert no_stage_left(db), stages(db)


@pytest.mark.parametrize(("strategy", "driver"), SHORT)
def test_killed_anywhere_it_can_be_run_again(db: Database, strategy: str, driver: str) -> None:
    _nothing_is_wrong(db, Case(strategy, driver), ("locked", "after"))


@pytest.mark.long
@pytest.mark.parametrize(
    ("strategy", "driver", "whens"),
    [*((*case, "before locked after") for case in LONG), *((*case, "before") for case in SHORT)],
)
def test_killed_anywhere_with_the_other_driver(db: Database, strategy: str, driver: str, whens: str) -> None:
    """What the short tier leaves out: the other driver, and what comes before each step."""
    _nothing_is_wrong(db, Case(strategy, driver), whens.split())


@pytest.mark.parametrize("step", ["target.count", "ledger.publish", "commit"])
@pytest.mark.parametrize(("strategy", "driver"), LONG)
def test_a_statement_that_outlives_its_client(db: Database, strategy: str, driver: str, step: str) -> None:
    """The server begins the statement when the client is already dead."""
    assert sweep(db, Case(strategy, driver), ("stopped",), lambda point: point.step == step) == {}


@pytest.mark.long
@pytest.mark.parametrize("driver", DRIVERS)
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_every_statement_outlives_its_client(db: Database, strategy: str, driver: str) -> None:
    _nothing_is_wrong(db, Case(strategy, driver), ("stopped",))


@pytest.mark.long
@pytest.mark.parametrize(("strategy", "driver"), SHORT)
def test_the_very_first_load_killed_anywhere(db: Database, strategy: str, driver: str) -> None:
    """Neither table nor ledger know anything yet."""
    _nothing_is_wrong(db, Case(strategy, driver, first=True), EVERYWHERE[1:])


@pytest.mark.long
@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize(("strategy", "driver"), LONG)
def test_killed_anywhere_over_a_table_without_a_key(db: Database, strategy: str, driver: str, first: bool) -> None:
    """Nothing but the load keeps rows from standing twice."""
    _nothing_is_wrong(db, Case(strategy, driver, Heap, first=first), ("after",))


@pytest.mark.long
@pytest.mark.parametrize(
    ("strategy", "driver", "whens"),
    [*((*case, "after") for case in SHORT), *((*case, "locked stopped") for case in LONG)],
)
def test_killed_anywhere_in_a_load_that_does_everything(db: Database, strategy: str, driver: str, whens: str) -> None:
    """Keys that move, duplicates, a new column, late constraints, a trigger, checks; each point each time."""
    first = not STRATEGIES[strategy].source_changes
    _nothing_is_wrong(db, Case(strategy, driver, Bazaar, first=first), whens.split())


@pytest.mark.long
@pytest.mark.parametrize("deed", ["cancel", "terminate"])
@pytest.mark.parametrize(("strategy", "driver"), SHORT)
def test_stopped_or_cut_off_anywhere(db: Database, strategy: str, driver: str, deed: Deed) -> None:
    """The task is killed, or its server process: what it says is what the ledger says, and it leaves no claim."""
    _nothing_is_wrong(db, Case(strategy, driver, deed=deed), ("locked", "after"))


@pytest.mark.long
@pytest.mark.parametrize(("strategy", "driver"), LONG)
def test_killed_while_it_locks_the_table(db: Database, strategy: str, driver: str) -> None:
    case = Case(strategy, driver, exclusive=True)
    assert sweep(db, case, EVERYWHERE, lambda point: point.step in ("claim.hold", "target.lock", "commit")) == {}


@pytest.mark.long
@pytest.mark.parametrize(("strategy", "driver"), SHORT)
def test_killed_in_the_second_of_three_days(db: Database, strategy: str, driver: str) -> None:
    """The first day is published, the third one was not begun."""
    case = Case(strategy, driver, lookback=2)
    assert sweep(db, case, ("stopped", "after"), lambda point: point.done == 1) == {}


@pytest.mark.long
@pytest.mark.parametrize("kind", [Shop, Bazaar])
@pytest.mark.parametrize(("strategy", "driver"), LONG)
def test_killed_at_any_moment(db: Database, strategy: str, driver: str, kind: type[Shop]) -> None:
    """Between the points too, wherever it happens to be."""
    case = Case(strategy, driver, kind)
    clean = Clean.of(db, case)
    chance = random.Random(len(driver))  # noqa: S311

    def kill(desk: Database, moment: float) -> list[str]:
        shop = case.shop(desk, f"any_{int(moment * 1e6)}")
        with closing(Child(case.job(shop))) as child:
            child.until_connected()
            time.sleep(moment)
        again = run_apart(case.job(shop))
        wrong = [again.error] if again.error else shop.unsettled() + differences(shop, clean)
        if len(shop.attempts()) not in (clean.attempts + 1, clean.attempts + 2):
            wrong.append(f"attempts: {shop.attempts()}")
        figures.add("kills", tried=1, wrong=int(bool(wrong)))
        return wrong

    assert by_hands(db, [chance.uniform(0, 0.2) for _ in range(20)], kill) == [[]] * 20
    assert no_stage_left(db), stages(db)


def test_no_step_is_left_out(db: Database) -> None:
    """The loads that are killed at every point take every step that any plan can have."""
    cases = [Case(strategy, kind=kind, first=kind is Shop) for strategy in STRATEGIES for kind in (Shop, Bazaar)]
    killed = {step for case in cases for step in Clean.of(db, case).steps}
    assert every_step() | {"prepare", "claim"} == killed


def test_killed_while_the_ledger_is_made(db: Database, driver: str) -> None:
    """The very first load of a database dies while it makes the ledger's schema."""
    shop = Shop(db)
    child = Child(shop.job(driver=driver, pauses=frozenset({"prepare:before"})))
    child.until("prepare:before")
    with holding(db.uri, "CREATE SCHEMA safe_ops"):
        child.go()
        until_blocked(child)
        child.kill()
    assert Child(shop.job(driver=driver)).outcome().published
    wrong = shop.wrong()
    figures.add("kills", tried=1, wrong=int(bool(wrong)))
    assert wrong == []
    assert [a["outcome"] for a in shop.attempts()] == ["published"]


@pytest.mark.long
@pytest.mark.parametrize("version", [0, 1])
def test_killed_at_any_moment_while_the_ledger_is_made(pg_server: PgServer, version: int) -> None:
    """In a database without a ledger, and in one with an older version's; others make it at the same time."""
    moments = random.Random(version)  # noqa: S311
    sql = LedgerSql("safe_ops")
    old = [statement.text for statement in sql.create_schema()]
    old += [text.format(s="safe_ops") for migration in MIGRATIONS[:version] for text in migration.statements]
    old += [sql.record_literally(migration) for migration in MIGRATIONS[:version]]
    for number in range(8):
        db = pg_server.create()
        db.execute(";".join(old) if version else "SELECT 1")
        shop = Heap(db)
        with closing(Child(shop.job(driver=DRIVERS[number % 2], grace=GRACE))) as child:
            child.until_connected()
            others = [Child(shop.job(shop.load(day(n)), grace=GRACE)) for n in (1, 2)]
            time.sleep(moments.uniform(0, 0.1))
        again = run_apart(shop.job(driver=DRIVERS[number % 2], grace=GRACE))
        wrong = [outcome.error for outcome in (again, *(child.outcome() for child in others)) if outcome.error]
        wrong += shop.unsettled() + ([] if len(shop.rows()) == len(set(shop.rows())) == 3 * ROWS else ["rows"])
        figures.add("kills", tried=1, wrong=int(bool(wrong)))
        assert wrong == []
        numbers = [(migration.number,) for migration in MIGRATIONS]
        assert db.execute("SELECT number FROM safe_ops.safe_ops_schema ORDER BY 1") == numbers
        for child in others:
            child.close()
        pg_server.drop(db)


def test_killed_again_and_again(db: Database, driver: str) -> None:
    """A load that dies at one point after the other; each death is told, and the last run counts alone."""
    shop = Shop(db)
    shop.run()
    shop.new_version()
    deaths = ("claim:after", "stage.fill:after", "target.delete:after", "target.insert:after", "commit:before")
    for point in deaths:
        child = Child(shop.job(driver=driver, grace=0.1, pauses=frozenset({point})))
        child.until(point)
        child.kill()
    assert shop.rows()[0][0] == FIRST
    assert {row[3] for row in shop.rows()} >= {"v1 1", "v1 2"}, "readers see the old rows until the new are there"
    assert Child(shop.job(driver=driver, grace=GRACE)).outcome().published
    wrong = shop.wrong()
    figures.add("kills", tried=len(deaths), wrong=int(bool(wrong)))
    assert wrong == []
    assert [a["outcome"] for a in shop.attempts()] == ["published", *["lost"] * len(deaths), "published"]
    assert no_stage_left(db), stages(db)


@pytest.mark.parametrize(("point", "code"), [("commit:before", ""), ("commit:after", "SO-113")])
def test_an_append_that_died_and_another_source(db: Database, driver: str, point: str, code: str) -> None:
    """Until its commit nothing was appended, and another version may be; after it that one is refused."""
    shop = Heap(db)
    load = shop.load(strategy="append_once")
    child = Child(shop.job(load, driver=driver, grace=GRACE, pauses=frozenset({point})))
    child.until(point)
    child.kill()
    shop.new_version()
    again = Child(shop.job(load, driver=driver, grace=GRACE)).outcome()
    assert again.code == code, again.error
    version = {row[3].partition(" ")[0] for row in shop.rows() if row[3]}
    assert (len(shop.rows()), version) == (ROWS, {"v1"} if code else {"v2"})
    wrong = shop.unsettled()
    figures.add("kills", tried=1, wrong=int(bool(wrong)))
    assert wrong == []


def test_killed_while_its_failure_is_recorded(db: Database, driver: str) -> None:
    """It is refused, rolled back, and dies before the ledger has it: it reads as lost."""
    shop = Shop(db)
    shop.run()
    before = shop.rows()
    shop.new_version()
    refused = replace(shop.load(), audits=(RowCount(min=999),))
    child = Child(shop.job(refused, driver=driver, pauses=frozenset({"audit.judge:before"})))
    child.until("audit.judge:before")
    with holding(db.uri, "SELECT 1 FROM safe_ops.safe_ops_attempt FOR UPDATE"):
        child.go()
        until_blocked(child)
        child.kill()
    assert shop.rows() == before
    assert Child(shop.job(driver=driver, grace=GRACE)).outcome().published
    wrong = shop.wrong()
    figures.add("kills", tried=1, wrong=int(bool(wrong)))
    assert wrong == []
    assert [a["outcome"] for a in shop.attempts()] == ["published", "lost", "published"]


@pytest.mark.long
def test_the_default_grace_is_waited_once(db: Database) -> None:
    """A claim whose owner died before it began is free after claim_grace, by default 5 seconds."""
    shop = Shop(db)
    shop.run()
    child = Child(shop.job(grace=5.0, pauses=frozenset({"claim:after"})))
    child.until("claim:after")
    child.kill()
    again = Child(shop.job(grace=5.0)).outcome()
    assert again.published
    assert 3 < again.waited < 7
    wrong = shop.wrong()
    figures.add("kills", tried=1, wrong=int(bool(wrong)))
    assert wrong == []
