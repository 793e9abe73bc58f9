"""
Who may write a partition now: a queue of claim rows, one a load.

A claim is held by the row lock of its owner's data transaction and by nothing else, so a dead owner's claim is
free the moment the database notices. Everybody waits for rows of earlier tickets or for rows that are held, and
who holds waits for nobody: there is no circle. A waiter keeps its row locked while it waits, so those behind it
wait for it and a large partition is not starved by small ones.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from airflow_safe_ops.definition.scope import Scope, from_json, overlaps, to_json
from airflow_safe_ops.errors import ClaimTimeout, ClaimTooContended, SafeOpsError
from airflow_safe_ops.plan.model import Database, Executor
from airflow_safe_ops.sql.dialect import Dialect
from airflow_safe_ops.sql.ledger import LedgerSql

log = logging.getLogger(__name__)
_PAUSES = (0.05, 0.1, 0.2, 0.5)
_SHORT = 5.0
TRIES = 20


class FencedError(Exception):
    """Our claim was taken from us: nothing may be written until it is held again."""


@dataclass(frozen=True)
class Patience:
    """
    How long a claim is waited for, in seconds.

    :param lock_timeout: all in all.
    :param grace: how long an owner that does not begin is left alone, by the server's clock.
    """

    lock_timeout: float = 600.0
    grace: float = 5.0

    @property
    def statement(self) -> float:
        """How long one statement waits for a lock: the ledger's own short ones are waited for by the impatient too."""
        return max(self.lock_timeout, _SHORT)


@dataclass
class Claim:
    """
    One load's place in the queue of its target.

    :param attempt: the attempt's row as it is written when the claim is held; ``target_id`` is added.
    :param scopes: what the load will write.
    """

    identity: str
    attempt: Mapping[str, Any]
    scopes: tuple[Scope, ...]
    owner: str
    ticket: int | None = None
    target_id: int = 0
    waited: float = field(default=0.0)

    @property
    def attempt_id(self) -> str:
        """The attempt that holds it."""
        return str(self.attempt["attempt_id"])

    def widen(self, scopes: tuple[Scope, ...]) -> None:
        """
        Claim more, from the end of the queue: those who hold parts of it were there first.

        Our old row goes, so that those who wait for it look again instead of waiting for us while we wait for
        them.
        """
        self.scopes = tuple(dict.fromkeys((*self.scopes, *scopes)))
        self.ticket = None


@dataclass(frozen=True)
class _Queued:
    claim_id: int
    ticket: int
    attempt_id: str
    scopes: tuple[Scope, ...]
    held: bool
    owner: str


def taken(database: Database, dialect: Dialect, claim: Claim, patience: Patience) -> Iterator[None]:
    """
    Take the claim, and again each time that it was lost before it was held.

    :raises ClaimTooContended: it was lost again and again.
    """
    for _ in range(TRIES):
        take(database, dialect, claim, patience)
        yield
    raise too_contended(claim)


def too_contended(claim: Claim) -> ClaimTooContended:
    """It was lost so often that something is wrong."""
    return ClaimTooContended(f"The claim on {claim.scopes[0].key} of {claim.identity} was lost {TRIES} times.")


def take(database: Database, dialect: Dialect, claim: Claim, patience: Patience) -> None:
    """
    Wait for the claim and hold it; the attempt is then ``started``.

    :raises ClaimTimeout: an overlapping load did not end in time; it is named.
    """
    sql = dialect.ledger
    began = time.monotonic()
    waits_for, looks = 0, 0
    while True:
        ahead = _enter(database, sql, claim)
        if ahead is None:
            claim.waited = time.monotonic() - began
            return
        left = patience.lock_timeout - (time.monotonic() - began)
        if left <= 0:
            raise _timeout(claim, ahead, patience)
        looks = looks + 1 if ahead.claim_id == waits_for else 0
        waits_for = ahead.claim_id
        if not looks:
            log.info("%s waits for %s, which holds an overlapping partition", claim.owner, ahead.owner)
        try:
            if _wait(database, sql, claim, ahead, left, patience.grace):
                time.sleep(_PAUSES[min(looks, len(_PAUSES) - 1)])
        except SafeOpsError as error:
            if dialect.is_lock_timeout(error):
                raise _timeout(claim, ahead, patience) from error
            if not dialect.is_deadlock(error):  # a deadlock is broken by the server: look again
                raise


def hold(tx: Executor, sql: LedgerSql, claim: Claim) -> None:
    """
    The data transaction begins: its lock on our row is the claim.

    :raises FencedError: the row is gone.
    """
    if not tx.run(sql.lock_claim(claim.attempt_id, held=True)).rows:
        raise FencedError


def release(tx: Executor, sql: LedgerSql, claim: Claim) -> None:
    """
    The data transaction ends: the claim goes with its commit.

    :raises FencedError: the row is gone.
    """
    if tx.run(sql.release_claim(claim.attempt_id)).rowcount != 1:
        raise FencedError


def _enter(database: Database, sql: LedgerSql, claim: Claim) -> _Queued | None:
    """Take our place; None when nobody is before us, and then the claim is held."""
    with database.transaction() as tx:
        found = tx.run(sql.lock_target(claim.identity)).rows
        if not found:
            tx.run(sql.add_target(claim.identity))
            found = tx.run(sql.lock_target(claim.identity)).rows
        claim.target_id = int(found[0][0])
        queue = [_queued(row) for row in tx.run(sql.claims(claim.target_id)).named]
        if claim.ticket is None:
            tx.run(sql.release_claim(claim.attempt_id))
        ticket = claim.ticket or int(tx.run(sql.next_ticket(claim.target_id)).rows[0][0])
        ahead = next((other for other in queue if _blocks(other, claim, ticket)), None)
        tx.run(sql.put_claim(_row(claim, ticket, held=ahead is None)))
        if ahead is None:
            tx.run(sql.start_attempt({**claim.attempt, "target_id": claim.target_id}))
    claim.ticket = ticket
    return ahead


def _wait(database: Database, sql: LedgerSql, claim: Claim, ahead: _Queued, left: float, grace: float) -> bool:
    """Wait until the owner's transaction ends; whether its claim is still there, to be looked at again."""
    with database.transaction(lock=left, waits=True) as tx:
        if not tx.run(sql.lock_claim(claim.attempt_id, held=False)).rows:
            return False  # our place was taken away: back into the queue before anything is waited for
        still_there = tx.run(sql.wait_for_claim(ahead.claim_id)).rows
        tx.run(sql.touch_claim(claim.attempt_id))
        if still_there and still_there[0][0] > grace:
            log.warning("%s did not begin or died; its claim is taken away", ahead.owner)
            tx.run(sql.delete_claim(ahead.claim_id))
            return False
    return bool(still_there)


def _blocks(other: _Queued, claim: Claim, ticket: int) -> bool:
    if other.attempt_id == claim.attempt_id or not (other.held or other.ticket < ticket):
        return False
    return any(overlaps(mine, theirs) for mine in claim.scopes for theirs in other.scopes)


def _queued(row: Mapping[str, Any]) -> _Queued:
    scopes = tuple(from_json(text) for text in json.loads(row["scopes"]))
    return _Queued(row["claim_id"], row["ticket"], row["attempt_id"], scopes, row["held"], row["owner"])


def _row(claim: Claim, ticket: int, *, held: bool) -> dict[str, Any]:
    return {
        "ticket": ticket,
        "target_id": claim.target_id,
        "attempt_id": claim.attempt_id,
        "scopes": json.dumps([to_json(scope) for scope in claim.scopes]),
        "held": held,
        "owner": claim.owner,
    }


def _timeout(claim: Claim, ahead: _Queued, patience: Patience) -> ClaimTimeout:
    return ClaimTimeout(
        f"{', '.join(scope.key for scope in claim.scopes)} of {claim.identity} is held by {ahead.owner} for longer "
        f"than lock_timeout ({patience.lock_timeout:g} s).",
        owner=ahead.owner,
        lock_timeout=patience.lock_timeout,
    )
