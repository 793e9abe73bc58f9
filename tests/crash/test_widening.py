"""Two loads that each find that they have to claim the other's partition too."""

from __future__ import annotations

import uuid
from concurrent.futures import ThreadPoolExecutor
from datetime import date, timedelta
from typing import TYPE_CHECKING

import psycopg

from airflow_safe_ops.definition.scope import TimeScope, to_json
from airflow_safe_ops.execution.session import Session
from airflow_safe_ops.ledger import claims
from airflow_safe_ops.ledger.claims import Claim, Patience
from airflow_safe_ops.ledger.migrations import init_ledger
from airflow_safe_ops.sql.dialect import Dialect, dialect_for

if TYPE_CHECKING:
    from tests.conftest import Database

FIRST = date(2026, 1, 1)


def _scope(number: int) -> TimeScope:
    start = FIRST + timedelta(days=number)
    return TimeScope("day", "date", start, start + timedelta(days=1))


def _session(db: Database, dialect: Dialect) -> Session:
    session = Session(lambda: psycopg.connect(db.uri), dialect, label="safe_ops test", comment="")
    session.open()
    return session


def _claim(number: int) -> Claim:
    scope = _scope(number)
    attempt = {
        "attempt_id": str(uuid.uuid4()),
        "partition_key": scope.key,
        "scope": to_json(scope),
        "strategy": "merge",
    }
    return Claim('"public"."t"', attempt, (scope,), f"load {number}")


def _take_and_release(session: Session, dialect: Dialect, claim: Claim) -> str:
    claims.take(session, dialect, claim, Patience(lock_timeout=20, grace=1))
    with session.transaction() as tx:
        claims.hold(tx, dialect.ledger, claim)
        claims.release(tx, dialect.ledger, claim)
    return claim.owner


def test_both_get_in_one_after_the_other(db: Database) -> None:
    """Each holds what the other needs: they queue anew, and nobody waits in a circle."""
    dialect = dialect_for("postgresql")
    sessions = [_session(db, dialect) for _ in range(2)]
    init_ledger(sessions[0], dialect.ledger, dialect.sqlstate)
    for _ in range(5):
        both = [_claim(number) for number in (0, 1)]
        for session, claim in zip(sessions, both, strict=True):
            claims.take(session, dialect, claim, Patience())
        for claim in both:
            claim.widen((_scope(0), _scope(1)))
        with ThreadPoolExecutor(2) as pool:
            done = [
                pool.submit(_take_and_release, session, dialect, claim)
                for session, claim in zip(sessions, both, strict=True)
            ]
            assert [future.result(30) for future in done] == ["load 0", "load 1"]
        assert db.execute("SELECT count(*) FROM safe_ops.safe_ops_claim") == [(0,)]
    for session in sessions:
        session.close()
