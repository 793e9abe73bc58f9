"""What the ledger keeps of a load, and what it knows of a target."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from airflow_safe_ops.definition.checks import CheckResult
from airflow_safe_ops.definition.scope import Scope, TimeScope, from_json, overlaps, to_json
from airflow_safe_ops.ledger.claims import Claim, FencedError
from airflow_safe_ops.plan.model import Database, Executor, Facts
from airflow_safe_ops.sql.ledger import LedgerSql


@dataclass(frozen=True)
class Recorded:
    """One partition as the ledger knows it."""

    key: str
    scope: Scope
    row_count: int | None
    checksum: str | None
    checksum_of: str | None


def recorded(tx: Executor, sql: LedgerSql, target_id: int, scope: Scope) -> list[Recorded]:
    """The recorded partitions of a target that overlap a scope."""
    lo, hi = (scope.lo, scope.hi) if isinstance(scope, TimeScope) else (None, None)
    rows = tx.run(sql.partitions(target_id, lo, hi)).named
    found = [
        Recorded(r["partition_key"], from_json(r["scope"]), r["row_count"], r["checksum"], r["checksum_of"])
        for r in rows
    ]
    return [record for record in found if overlaps(record.scope, scope)]


def known_scopes(tx: Executor, sql: LedgerSql, identity: str, scope: Scope) -> list[Scope]:
    """The scopes of a target that some recorded load wrote, as far as they overlap one; none without a target."""
    rows = tx.run(sql.find_target(identity)).rows
    return [record.scope for record in recorded(tx, sql, int(rows[0][0]), scope)] if rows else []


def publish(
    tx: Executor,
    sql: LedgerSql,
    *,
    target_id: int,
    attempt_id: str,
    scope: Scope,
    also: Sequence[Scope],
    facts: Facts,
) -> None:
    """
    Record the load as published, in the transaction of its data.

    Other recorded partitions that overlap it (a month over its days, days from which keys moved away) keep
    their state but no longer their counts and checksum.

    :param also: other scopes that this load wrote.
    :raises FencedError: the attempt is not there as ``started``.
    """
    touched = {record.key for written in (scope, *also) for record in recorded(tx, sql, target_id, written)}
    for key in sorted(touched - {scope.key}):  # one order for all loads: no deadlock
        tx.run(sql.touch_partition(target_id, key))
    if tx.run(sql.publish_attempt(attempt_id, facts)).rowcount != 1:
        raise FencedError
    tx.run(
        sql.put_partition(
            {
                "target_id": target_id,
                "partition_key": scope.key,
                "scope": to_json(scope),
                "lo": scope.lo if isinstance(scope, TimeScope) else None,
                "hi": scope.hi if isinstance(scope, TimeScope) else None,
                "attempt_id": attempt_id,
                "row_count": facts["rows_after"],
                "checksum": facts.get("checksum"),
                "checksum_of": facts.get("checksum_of"),
            }
        )
    )
    put_checks(tx, sql, target_id, attempt_id, scope, facts.get("checks", ()))


def put_checks(
    tx: Executor,
    sql: LedgerSql,
    target_id: int,
    attempt_id: str,
    scope: Scope,
    results: Sequence[CheckResult],
) -> None:
    """Record the results of audits and post-checks."""
    for result in results:
        tx.run(
            sql.put_check(
                {
                    "target_id": target_id,
                    "attempt_id": attempt_id,
                    "partition_key": scope.key,
                    "phase": result.phase,
                    "name": result.name,
                    "passed": result.passed,
                    "observed": None if result.observed is None else str(result.observed),
                    "required": result.required,
                }
            )
        )


def fail(database: Database, sql: LedgerSql, claim: Claim, error: Mapping[str, Any]) -> None:
    """Record the attempt as failed, also one that never held its claim, and give the claim back."""
    with database.transaction(lock=2.0) as tx:
        if claim.target_id:
            tx.run(sql.start_attempt({**claim.attempt, "target_id": claim.target_id}))
        tx.run(sql.fail_attempt(claim.attempt_id, error))
        tx.run(sql.release_claim(claim.attempt_id))


def outcome(database: Database, sql: LedgerSql, attempt_id: str, wait: float) -> dict[str, Any]:
    """
    What became of an attempt whose COMMIT was not answered.

    Our own claim's row is waited for first, so that a commit still in flight is seen.

    :param wait: longest wait, in seconds.
    """
    with database.transaction(lock=wait) as tx:
        tx.run(sql.lock_claim(attempt_id, held=False))
        rows = tx.run(sql.attempt_state(attempt_id)).named
        return rows[0] if rows else {"state": "missing"}
