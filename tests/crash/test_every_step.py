"""A process killed before, in and after every step of its plan; run again, all is as after one clean run."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

import pytest

from airflow_safe_ops.definition.load import Load
from tests.crash.harness import Child, eventually, holding, run_here, stopped, until_blocked
from tests.crash.warehouse import FIRST, Shop, no_stage_left, stages

if TYPE_CHECKING:
    from tests.conftest import Database

GRACE = 0.5
HANDS = 4

# What holds a step's statement inside the server; the others are met by a server process that stands still.
LOCKS = {
    "prepare": "LOCK TABLE {source} IN ACCESS EXCLUSIVE MODE",
    "claim": "SELECT 1 FROM safe_ops.safe_ops_target WHERE identity LIKE '%{target}%' FOR UPDATE",
    "claim.hold": "SELECT 1 FROM safe_ops.safe_ops_claim FOR UPDATE SKIP LOCKED",
    "stage.create": "LOCK TABLE {target} IN ACCESS EXCLUSIVE MODE",
    "stage.fill": "LOCK TABLE {source} IN ACCESS EXCLUSIVE MODE",
    "target.delete": "SELECT 1 FROM {target} FOR UPDATE SKIP LOCKED",
    "target.update": "SELECT 1 FROM {target} FOR UPDATE SKIP LOCKED",
    "target.insert": "INSERT INTO {target} SELECT day, id FROM {source} WHERE id > 5",
    "ledger.publish": "SELECT 1 FROM safe_ops.safe_ops_partition FOR UPDATE",
    "commit": "SELECT pg_advisory_xact_lock(target_id) FROM safe_ops.safe_ops_target WHERE identity LIKE '%{target}%'",
}
# A deferred trigger on the ledger fires in COMMIT itself: one on the target would be settled before the count.
AT_COMMIT = """
CREATE FUNCTION wait_at_commit() RETURNS trigger LANGUAGE plpgsql AS
  $$ BEGIN PERFORM pg_advisory_xact_lock_shared(NEW.target_id); RETURN NULL; END $$;
CREATE CONSTRAINT TRIGGER wait AFTER INSERT OR UPDATE ON safe_ops.safe_ops_partition
  DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION wait_at_commit()
"""


def _names(shop: Shop) -> dict[str, Any]:
    return {"source": shop.source, "target": shop.target}


def _steps(shop: Shop, load: Load) -> list[str]:
    """Every step that a re-load takes, as it takes it."""
    points = run_here(shop.job(load))[0].points
    steps = list(dict.fromkeys(point.rpartition(":")[0] for point in points))
    assert steps[:2] == ["prepare", "claim"]
    assert steps[-2:] == ["ledger.publish", "commit"]
    return steps


@contextmanager
def _hold_inside(shop: Shop, child: Child, step: str, *, by_lock: bool) -> Iterator[None]:
    """The child goes on into the step and is held there."""
    if by_lock:
        with holding(shop.db.uri, LOCKS[step].format(**_names(shop))):
            child.go()
            until_blocked(child)
            yield
        return
    with stopped(child.backends[-1]):
        child.go()
        assert not eventually(lambda: child.at or child.ended(), 0.1), f"{step} was over before it was killed"
        yield


def _kill(shop: Shop, child: Child, step: str, when: str) -> None:
    with ExitStack() as inside:
        if when in ("locked", "stopped"):
            child.until(f"{step}:before")
            inside.enter_context(_hold_inside(shop, child, step, by_lock=when == "locked"))
        else:
            child.until(f"{step}:{when}")
        child.kill()


def _kill_and_run_again(db: Database, strategy: str, driver: str, step: str, when: str) -> list[str]:
    shop = Shop(db, f"{strategy}_{driver}_{step.replace('.', '_')}_{when}", days=2)
    load = shop.load(strategy=strategy)
    shop.run(load)
    shop.new_version()
    job = shop.job(load, driver=driver, grace=GRACE, pauses=frozenset({f"{step}:before", f"{step}:after"}))
    _kill(shop, Child(job), step, when)
    again = Child(shop.job(load, driver=driver, grace=GRACE)).outcome()
    if not again.published:
        return [again.error]
    found = shop.wrong()
    if again.waited > GRACE + 2 or again.seconds > 20:
        found.append(f"waited {again.waited} of {again.seconds} s")
    outcomes = [attempt["outcome"] for attempt in shop.attempts()]
    first, *killed, last = outcomes
    expected = _what_became_of_the_killed(step, when)
    if (first, last) != ("published", "published") or killed not in expected:
        found.append(f"attempts: {outcomes}, expected one of {expected} for the killed one")
    if len(shop.partitions()) != 1:
        found.append(f"partitions: {shop.partitions()}")
    return found


def _complaints(db: Database, strategy: str, driver: str, step: str, when: str) -> list[str]:
    """One point that cannot be tried does not hide what is wrong at the others."""
    try:
        return _kill_and_run_again(db, strategy, driver, step, when)
    except AssertionError as error:
        return [f"not tried: {error}"]


def _what_became_of_the_killed(step: str, when: str) -> list[list[str]]:
    """What the ledger may say of the attempt that was killed there; a COMMIT under way may come through."""
    if step == "prepare" or (step == "claim" and when != "after"):
        return [[]]
    if step == "commit" and when != "before":
        return [["published"]] if when == "after" else [["published"], ["lost"]]
    return [["lost"]]


def _sweep(db: Database, strategy: str, driver: str, whens: tuple[str, ...]) -> dict[str, list[str]]:
    """Kill at each point, four at a time, each on tables of its own; what is wrong, by point."""
    shop = Shop(db, f"plain_{strategy}")
    load = shop.load(strategy=strategy)
    shop.run(load)
    steps = _steps(shop, load)
    db.execute(AT_COMMIT)
    points = [(step, when) for step in steps for when in whens if _possible(step, when)]
    with ThreadPoolExecutor(HANDS) as hands:
        found = list(hands.map(lambda p: _complaints(db, strategy, driver, *p), points))
    assert len(found) >= (len(steps) - 3) * len(set(whens) - {"locked"})
    return {f"{step}:{when}": wrong for (step, when), wrong in zip(points, found, strict=True) if wrong}


def _possible(step: str, when: str) -> bool:
    if when == "locked":
        return step in LOCKS
    # Before the first statement of a load there is no server process that could stand still; a judgement has none.
    return when != "stopped" or (step != "prepare" and not step.endswith(".judge"))


@pytest.mark.parametrize(("strategy", "driver"), [("delete_insert", "psycopg"), ("merge", "psycopg2")])
def test_killed_anywhere_it_can_be_run_again(db: Database, strategy: str, driver: str) -> None:
    assert _sweep(db, strategy, driver, ("before", "locked", "after")) == {}
    assert no_stage_left(db), stages(db)


@pytest.mark.long
@pytest.mark.parametrize(("strategy", "driver"), [("delete_insert", "psycopg2"), ("merge", "psycopg")])
def test_killed_anywhere_with_the_other_driver(db: Database, strategy: str, driver: str) -> None:
    assert _sweep(db, strategy, driver, ("before", "locked", "after")) == {}
    assert no_stage_left(db), stages(db)


@pytest.mark.parametrize("step", ["target.count", "ledger.publish", "commit"])
@pytest.mark.parametrize(("strategy", "driver"), [("delete_insert", "psycopg2"), ("merge", "psycopg")])
def test_a_statement_that_outlives_its_client(db: Database, strategy: str, driver: str, step: str) -> None:
    """The server begins the statement when the client is already dead."""
    assert _kill_and_run_again(db, strategy, driver, step, "stopped") == []


@pytest.mark.long
@pytest.mark.parametrize("driver", ["psycopg", "psycopg2"])
@pytest.mark.parametrize("strategy", ["delete_insert", "merge"])
def test_every_statement_outlives_its_client(db: Database, strategy: str, driver: str) -> None:
    assert _sweep(db, strategy, driver, ("stopped",)) == {}
    assert no_stage_left(db), stages(db)


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
    assert shop.wrong() == []
    assert [a["outcome"] for a in shop.attempts()] == ["published"]


def test_killed_again_and_again(db: Database, driver: str) -> None:
    """A load that dies at one point after the other; each death is told, and the last run counts alone."""
    shop = Shop(db)
    shop.run()
    shop.new_version()
    deaths = ("claim:after", "stage.fill:after", "target.delete:after", "target.insert:after", "commit:before")
    for point in deaths:
        child = Child(shop.job(driver=driver, grace=GRACE, pauses=frozenset({point})))
        child.until(point)
        child.kill()
    assert shop.rows()[0][0] == FIRST
    assert {row[3] for row in shop.rows()} >= {"v1 1", "v1 2"}, "readers see the old rows until the new are there"
    assert Child(shop.job(driver=driver, grace=GRACE)).outcome().published
    assert shop.wrong() == []
    assert [a["outcome"] for a in shop.attempts()] == ["published", *["lost"] * len(deaths), "published"]
    assert no_stage_left(db), stages(db)


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
    assert shop.wrong() == []
