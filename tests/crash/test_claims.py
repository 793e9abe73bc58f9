"""Claims alone, without a load: crowds that stall, are fenced, fail, widen and die where they may."""

from __future__ import annotations

import random
import threading
import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from datetime import date, timedelta
from typing import TYPE_CHECKING

import psycopg
import pytest

from airflow_safe_ops.definition.scope import Scope, TableScope, TimeScope, to_json
from airflow_safe_ops.execution.session import Session
from airflow_safe_ops.ledger import claims
from airflow_safe_ops.ledger.claims import Claim, FencedError, Patience
from airflow_safe_ops.ledger.migrations import init_ledger
from airflow_safe_ops.sql.dialect import dialect_for
from tests import figures
from tests.crash.storm import deadlocks

if TYPE_CHECKING:
    from tests.conftest import Database

FIRST = date(2026, 1, 1)
DAYS = 6
GRACE = 0.05
DIALECT = dialect_for("postgresql")


class Ground:
    """The days on which somebody stands now."""

    def __init__(self) -> None:
        self.turns = self.clashes = self.fenced = self.deaths = 0
        self._taken = [0] * DAYS
        self._lock = threading.Lock()

    def enter(self, days: range) -> None:
        """Step there, and count who stands there already."""
        with self._lock:
            self.turns += 1
            self.clashes += sum(self._taken[day] for day in days)
            for day in days:
                self._taken[day] += 1

    def leave(self, days: range) -> None:
        """Step aside."""
        with self._lock:
            for day in days:
                self._taken[day] -= 1


class DiedError(Exception):
    """It is gone, and leaves everything as it stands."""


def _session(db: Database) -> Session:
    session = Session(lambda: psycopg.connect(db.uri), DIALECT, label="safe_ops test", comment="")
    session.open()
    return session


def _scope(days: range) -> Scope:
    if len(days) == DAYS:
        return TableScope()
    return TimeScope("day", "date", FIRST + timedelta(days=days.start), FIRST + timedelta(days=days.stop))


def _claim(days: range) -> Claim:
    scope = _scope(days)
    attempt = {
        "attempt_id": str(uuid.uuid4()),
        "partition_key": scope.key,
        "scope": to_json(scope),
        "strategy": "merge",
    }
    return Claim('"public"."t"', attempt, (scope,), "somebody")


def _turn(session: Session, ground: Ground, chance: random.Random, days: range) -> None:
    """One load's way through the queue, until it gave its claim back or died."""
    claim = _claim(days)
    while True:
        claims.take(session, DIALECT, claim, Patience(lock_timeout=60, grace=GRACE))
        if chance.random() < 0.2:
            time.sleep(chance.uniform(0, 3 * GRACE))  # it stalls, and may lose its claim
        if chance.random() < 0.05:
            raise DiedError
        try:
            with session.transaction() as tx:
                claims.hold(tx, DIALECT.ledger, claim)
                ground.enter(days)
                try:
                    time.sleep(chance.uniform(0, 0.01))
                    if chance.random() < 0.05:
                        raise DiedError
                    if chance.random() < 0.1 and days.stop <= DAYS // 2 and len(days) == 1:
                        claim.widen((_scope(range(DAYS // 2)),))
                        raise FencedError
                    claims.release(tx, DIALECT.ledger, claim)
                finally:
                    ground.leave(days)
        except FencedError:
            ground.fenced += 1
            days = range(DAYS // 2) if len(claim.scopes) > 1 else days
        else:
            return


def _wander(db: Database, ground: Ground, seed: int, end: float) -> None:
    chance = random.Random(seed)  # noqa: S311
    session = _session(db)
    while time.monotonic() < end:
        one = chance.randrange(DAYS)
        days = chance.choice([range(one, one + 1), range(one, one + 1), range(DAYS // 2), range(DAYS)])
        try:
            _turn(session, ground, chance, days)
        except DiedError:
            ground.deaths += 1
    session.close()


@pytest.mark.long
def test_nobody_steps_where_somebody_stands(db: Database) -> None:
    ground, processes = Ground(), 10
    session = _session(db)
    init_ledger(session, DIALECT.ledger, DIALECT.sqlstate)
    session.close()
    end = time.monotonic() + 6
    with ThreadPoolExecutor(processes) as hands:
        list(hands.map(lambda seed: _wander(db, ground, seed, end), range(processes)))
    broken = deadlocks(db)
    figures.add("overlaps", loads=ground.turns, wrong=ground.clashes, deadlocks=broken)
    assert (ground.clashes, broken) == (0, 0)
    assert min(ground.turns, ground.fenced, ground.deaths) > 0
