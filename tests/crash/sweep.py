"""A load that is ended at every point that it comes by, each time on tables of its own, and run again."""

from __future__ import annotations

import signal
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import count
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, Literal, TypeVar, cast

from airflow_safe_ops.definition.load import Load
from airflow_safe_ops.definition.partition import TimePartition
from tests import figures
from tests.crash.bazaar import Bazaar
from tests.crash.harness import Child, Job, Outcome, eventually, holding, run_apart, run_here, stopped, until_blocked
from tests.crash.warehouse import Desk, Shop

if TYPE_CHECKING:
    from tests.conftest import Database

T = TypeVar("T")
GRACE = 0.5
INSIDE = ("locked", "stopped")
HANDS = 6
FACTS = (
    "rows_read, rows_deleted, rows_inserted, rows_updated, rows_unchanged, rows_moved, rows_after, changed, checksum"
)
_TARGET = '(SELECT target_id FROM safe_ops.safe_ops_target WHERE identity = \'"public"."{target}"\')'

# What holds a step's statement inside the server. A server process that stands still holds any other.
LOCKS = {
    "prepare": "LOCK TABLE {source} IN ACCESS EXCLUSIVE MODE",
    "claim": f"SELECT 1 FROM safe_ops.safe_ops_target WHERE target_id = {_TARGET} FOR UPDATE",
    "claim.hold": f"SELECT 1 FROM safe_ops.safe_ops_claim WHERE target_id = {_TARGET} FOR UPDATE",
    "stage.create": "LOCK TABLE {target} IN ACCESS EXCLUSIVE MODE",
    "stage.fill": "LOCK TABLE {source} IN ACCESS EXCLUSIVE MODE",
    "target.lock": "LOCK TABLE {target} IN ROW EXCLUSIVE MODE",
    "target.delete": "SELECT 1 FROM {target} FOR UPDATE SKIP LOCKED",
    "target.update": "SELECT 1 FROM {target} FOR UPDATE SKIP LOCKED",
    "target.insert": "INSERT INTO {target} SELECT day, id FROM {source} WHERE id > 4",
    "ledger.publish": f"SELECT 1 FROM safe_ops.safe_ops_attempt WHERE target_id = {_TARGET} FOR UPDATE",
    "commit": f"SELECT pg_advisory_xact_lock({_TARGET})",
}
# A table that is being given a column is locked from there on, and its constraints are settled before the ledger.
LOCKS_IN_A_BAZAAR = {
    **{step: LOCKS[step] for step in ("prepare", "claim", "claim.hold", "stage.fill", "ledger.publish")},
    "target.add_column": "LOCK TABLE {target} IN ACCESS SHARE MODE",
    "audit.1": "LOCK TABLE before_{tag} IN ACCESS EXCLUSIVE MODE",
    "post_check.1": "LOCK TABLE after_{tag} IN ACCESS EXCLUSIVE MODE",
}
# With nothing loaded yet there are no rows to lock, but some that are about to come.
LOCKS_AT_FIRST = {
    **{step: lock for step, lock in LOCKS.items() if step not in ("target.delete", "target.update")},
    "claim": 'INSERT INTO safe_ops.safe_ops_target (identity) VALUES (\'"public"."{target}"\')',
}
# A deferred trigger on the ledger fires in COMMIT itself: one on the target would be settled before the count.
AT_COMMIT = """
CREATE FUNCTION wait_at_commit() RETURNS trigger LANGUAGE plpgsql AS
  $$ BEGIN PERFORM pg_advisory_xact_lock_shared(NEW.target_id); RETURN NULL; END $$;
CREATE CONSTRAINT TRIGGER wait AFTER UPDATE ON safe_ops.safe_ops_attempt
  DEFERRABLE INITIALLY DEFERRED FOR EACH ROW WHEN (NEW.state = 'published') EXECUTE FUNCTION wait_at_commit()
"""


Deed = Literal["kill", "cancel", "terminate"]


@dataclass(frozen=True)
class Point:
    """
    Where a load is ended.

    :param when: ``before`` or ``after`` the step; in it, ``locked`` by a lock or ``stopped`` with its server process.
    :param nth: the how many-eth time that it comes by.
    :param done: how many partitions are published by then.
    :param is_tried: whether the attempt is in the ledger already.
    """

    step: str
    when: str
    nth: int = 1
    done: int = 0
    is_tried: bool = True

    def __str__(self) -> str:
        return f"{self.step}:{self.when}:{self.nth}"


@dataclass(frozen=True)
class Case:
    """
    A kind of load that is ended.

    :param kind: the tables, and what is declared on them.
    :param deed: ``kill`` its process, ``cancel`` it as Airflow does by SIGTERM, ``terminate`` its server process.
    :param first: nothing was loaded before.
    :param lookback: earlier days that it loads too, each in a transaction of its own.
    :param exclusive: it locks the table from the beginning.
    """

    strategy: str
    driver: str = "psycopg"
    kind: type[Shop] = Shop
    first: bool = False
    lookback: int = 0
    exclusive: bool = False
    deed: Deed = "kill"

    @property
    def locks(self) -> dict[str, str]:
        """What can hold its steps."""
        locks = LOCKS_AT_FIRST if self.first else LOCKS
        return {**LOCKS_IN_A_BAZAAR, "claim": locks["claim"]} if self.kind is Bazaar else locks

    def shop(self, db: Database, tag: str) -> Shop:
        """Tables as they are when the load begins that is ended."""
        shop = self.kind(db, tag, days=self.lookback + 2)
        if self.first:
            shop.new_version()
        else:
            shop.begin(self.strategy)
            shop.goes_on(self.strategy)
        return shop

    def load(self, shop: Shop) -> Load:
        """The load."""
        load = shop.load(strategy=self.strategy, exclusive=self.exclusive)
        return replace(load, partition=TimePartition("day", lookback=self.lookback)) if self.lookback else load

    def job(self, shop: Shop, **more: Any) -> Job:
        """The load as a process runs it; the last of its days is the first one and ``lookback``."""
        last = datetime(2026, 1, 2 + self.lookback, tzinfo=UTC) if self.lookback else None
        return shop.job(self.load(shop), driver=self.driver, grace=GRACE, logical_date=last, **more)


@dataclass(frozen=True)
class Clean:
    """What one clean run of a case does: the points that it comes by, and what it leaves."""

    points: tuple[str, ...]
    rows: list[tuple[Any, ...]]
    partitions: list[tuple[Any, ...]]
    facts: list[tuple[Any, ...]]
    attempts: int

    @classmethod
    def of(cls, db: Database, case: Case) -> Clean:
        """Run it here."""
        shop = case.shop(db, f"clean_{next(_numbers)}")
        before = len(shop.attempts()) if not case.first else 0
        (outcome,) = run_here(case.job(shop))
        assert outcome.published, outcome.error
        assert shop.unsettled() == []
        return cls(outcome.points, shop.rows(), shop.partitions(), _facts(shop, len(outcome.partitions)), before)

    @property
    def steps(self) -> list[str]:
        """Its steps, as it takes them."""
        return list(dict.fromkeys(point.rpartition(":")[0] for point in self.points))

    def each(self, case: Case, whens: Iterable[str]) -> list[Point]:
        """Every point that it can be ended at."""
        wanted, seen, found = tuple(whens), Counter[str](), []
        done, is_tried = 0, False
        for point in self.points:
            step, _, at = point.rpartition(":")
            seen[point] += 1
            is_tried = is_tried or point == "claim:after"
            done, is_tried = (done + 1, False) if point == "commit:after" else (done, is_tried)
            here = [when for when in ((at, *INSIDE) if at == "before" else (at,)) if when in wanted]
            found += [Point(step, when, seen[point], done, is_tried) for when in here if _possible(case, step, when)]
        return found


_numbers = count(1)


def _possible(case: Case, step: str, when: str) -> bool:
    if when == "locked":
        return step in case.locks
    # Before the first statement of a load there is no server process; a judgement has no statement.
    if when == "stopped":
        return step != "prepare" and not step.endswith(".judge")
    return (step, when, case.deed) != ("prepare", "before", "terminate")


def by_hands(db: Database, items: Sequence[T], work: Callable[[Database, T], list[str]]) -> list[list[str]]:
    """Some at a time, each hand with a connection of its own to look and to prepare by."""
    desks = SimpleQueue[Desk]()
    for _ in range(HANDS):
        desks.put(Desk(db))

    def at_a_desk(item: T) -> list[str]:
        desk = desks.get()
        try:
            return work(cast("Database", desk), item)
        finally:
            desks.put(desk)

    with ThreadPoolExecutor(HANDS) as hands:
        return list(hands.map(at_a_desk, items))


def sweep(db: Database, case: Case, whens: Iterable[str], only: Callable[[Point], bool] = bool) -> dict[str, list[str]]:
    """End it at each point, some at a time; what is wrong, by point."""
    clean = Clean.of(db, case)
    db.execute(AT_COMMIT)
    points = [point for point in clean.each(case, whens) if only(point)]
    assert points
    found = by_hands(db, points, lambda desk, point: complaints(desk, case, clean, point))
    return {str(point): wrong for point, wrong in zip(points, found, strict=True) if wrong}


def complaints(db: Database, case: Case, clean: Clean, point: Point) -> list[str]:
    """What is wrong after an end there; one that cannot be tried does not hide what is wrong at the others."""
    try:
        found = _end_and_run_again(db, case, clean, point)
    except AssertionError as error:
        found = [f"not tried: {error}"]
    if case.deed != "cancel":
        figures.add("kills", tried=1, wrong=int(bool(found)))
    return found


def _end_and_run_again(db: Database, case: Case, clean: Clean, point: Point) -> list[str]:
    shop = case.shop(db, str(next(_numbers)))
    pauses = frozenset({f"{point.step}:before", f"{point.step}:after"})
    with closing(Child(case.job(shop, pauses=pauses))) as child:
        said = _end(case, shop, child, point)
    left = shop.claims() if said else []
    again = run_apart(case.job(shop))
    if not again.published:
        return [again.error]
    found = shop.unsettled() + differences(shop, clean)
    if left and not _is_unrecorded(point):
        found.append(f"it left its claim: {left}")
    if again.waited > 2 * GRACE + 2 or again.seconds > 20:
        found.append(f"waited {again.waited} of {again.seconds} s")
    outcomes = [attempt["outcome"] for attempt in shop.attempts()]
    last = len(again.partitions)
    expected = _what_became_of_it(case, point)
    ended = outcomes[clean.attempts : len(outcomes) - last]
    if ended not in expected or set(outcomes[: clean.attempts] + outcomes[-last:]) != {"published"}:
        found.append(f"attempts: {outcomes}, expected one of {expected} for the ended ones")
    if said and said.published != (ended == ["published"] * last):
        found.append(f"it said {said.error or 'published'}, and the ledger says {ended}")
    if said and said.terminal:
        found.append(f"no retry would follow: {said.error}")
    if "published" not in ended and _facts(shop, last) != clean.facts:
        found.append(f"counts: {_facts(shop, last)} instead of {clean.facts}")
    return found


def differences(shop: Shop, clean: Clean) -> list[str]:
    """Where table or ledger are not as after one clean run."""
    found = []
    if (rows := shop.rows()) != clean.rows:
        found.append(f"rows: {rows} instead of {clean.rows}")
    if (partitions := shop.partitions()) != clean.partitions:
        found.append(f"ledger: {partitions} instead of {clean.partitions}")
    return found


def _facts(shop: Shop, number: int) -> list[tuple[Any, ...]]:
    """What the last attempts counted."""
    rows = shop.db.execute(
        f"SELECT {FACTS} FROM safe_ops.safe_ops_attempt JOIN safe_ops.safe_ops_target USING (target_id) "
        "WHERE identity = %s ORDER BY started_at DESC LIMIT %s",
        (f'"public"."{shop.target}"', number),
    )
    return rows[::-1]


def _end(case: Case, shop: Shop, child: Child, point: Point) -> Outcome | None:
    """End it there; what it says of it, if it still can."""
    with ExitStack() as inside:
        if point.when in INSIDE:
            child.until(f"{point.step}:before", nth=point.nth)
            inside.enter_context(_hold_inside(case, shop, child, point))
        else:
            child.until(f"{point.step}:{point.when}", nth=point.nth)
        if case.deed == "kill":
            child.kill()
            return None
        if case.deed == "cancel":
            child.signal(signal.SIGTERM)
        else:
            shop.db.execute("SELECT pg_terminate_backend(%s, 5000)", (child.backends[-1],))
        return child.outcome()


@contextmanager
def _hold_inside(case: Case, shop: Shop, child: Child, point: Point) -> Iterator[None]:
    """The child goes on into the step and is held there."""
    if point.when == "locked":
        names = {"source": shop.source, "target": shop.target, "tag": shop.tag}
        with holding(shop.db.uri, case.locks[point.step].format(**names)):
            child.go()
            until_blocked(child)
            yield
        return
    with stopped(child.backends[-1]):
        child.go()
        assert not eventually(lambda: child.at or child.ended(), 0.1), "it was over before it was killed"
        yield


def _what_became_of_it(case: Case, point: Point) -> list[list[str]]:
    """What the ledger may say of the attempts that were ended there; a COMMIT under way may come through."""
    earlier = ["published"] * point.done
    over = "lost" if case.deed == "kill" or _is_unrecorded(point) else "failed"
    if not point.is_tried:
        return [earlier]
    if point.step == "commit" and point.when != "before":
        return [[*earlier, "published"], [*earlier, over]]
    return [[*earlier, over]]


def _is_unrecorded(point: Point) -> bool:
    """Whether what holds the step holds the rows too in which a failure would be recorded."""
    return point.when == "locked" and point.step in ("claim.hold", "ledger.publish")
