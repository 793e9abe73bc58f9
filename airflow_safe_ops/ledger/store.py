"""What the ledger keeps of a load, and what it knows of a target."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from airflow_safe_ops.definition.checks import CheckResult
from airflow_safe_ops.definition.identity import RunIdentity
from airflow_safe_ops.definition.scope import Scope, TimeScope, from_json, overlaps, to_json
from airflow_safe_ops.errors import LoadCancelled, SafeOpsError
from airflow_safe_ops.ledger.claims import Claim, FencedError, release
from airflow_safe_ops.plan.model import Database, Executor, Facts, LoadTask
from airflow_safe_ops.sql.ledger import LedgerSql

_MESSAGE = 2000


@dataclass(frozen=True)
class Recorded:
    """One partition as the ledger knows it."""

    key: str
    scope: Scope
    row_count: int | None
    checksum: str | None
    checksum_of: str | None

    @property
    def content(self) -> Facts:
        """What can be compared with a later load."""
        return {"row_count": self.row_count, "checksum": self.checksum, "checksum_of": self.checksum_of}


def recorded(tx: Executor, sql: LedgerSql, target_id: int, scope: Scope) -> list[Recorded]:
    """The recorded partitions of a target that overlap a scope."""
    rows = tx.run(sql.partitions(target_id, *_range(scope))).named
    found = [
        Recorded(r["partition_key"], from_json(r["scope"]), r["row_count"], r["checksum"], r["checksum_of"])
        for r in rows
    ]
    return [record for record in found if overlaps(record.scope, scope)]


def _range(scope: Scope) -> tuple[str | None, datetime | None, datetime | None]:
    """What a time range is drawn on, and its ends; nothing of any other scope."""
    if isinstance(scope, TimeScope):
        return f"{scope.column} {scope.kind}", scope.lo, scope.hi
    return None, None, None


def known_scopes(tx: Executor, sql: LedgerSql, identity: str, scope: Scope) -> list[Scope]:
    """The scopes of a target that some recorded load wrote, as far as they overlap one; none without a target."""
    rows = tx.run(sql.find_target(identity)).rows
    return [record.scope for record in recorded(tx, sql, int(rows[0][0]), scope)] if rows else []


def attempt_row(task: LoadTask, run: RunIdentity) -> dict[str, Any]:
    """The attempt as it is written when its claim is held: what is loaded, who runs it, from which code."""
    return {
        "attempt_id": task.attempt_id,
        "partition_key": task.scope.key,
        "scope": to_json(task.scope),
        "strategy": task.load.strategy,
        "instance": run.instance,
        "dag_id": run.dag_id,
        "task_id": run.task_id,
        "map_index": run.map_index,
        "run_id": run.run_id,
        "run_type": run.run_type,
        "try_number": run.try_number,
        "clear_number": run.clear_number,
        "logical_date": run.logical_date,
        "user_name": run.user,
        "code_version": run.code_version,
        "parameters": json.dumps(run.params, default=str, sort_keys=True),
        "sql_hash": hashlib.sha256(task.load.sql.encode()).hexdigest(),
    }


def publish(tx: Executor, sql: LedgerSql, claim: Claim, scope: Scope, facts: Facts) -> None:
    """
    Record the load as published and give its claim back, in the transaction of its data.

    Other recorded partitions that overlap what was written (a month over its days, days from which keys moved
    away) keep their state but no longer their counts and checksum.

    :raises FencedError: the attempt is not there as ``started``, or its claim is gone.
    """
    touched = {record.key for part in claim.scopes for record in recorded(tx, sql, claim.target_id, part)}
    for key in sorted(touched - {scope.key}):  # one order for all loads: no deadlock
        tx.run(sql.touch_partition(claim.target_id, key))
    if tx.run(sql.publish_attempt(claim.attempt_id, facts)).rowcount != 1:
        raise FencedError
    tx.run(
        sql.put_partition(
            {
                "target_id": claim.target_id,
                "partition_key": scope.key,
                "scope": to_json(scope),
                **dict(zip(("range_of", "lo", "hi"), _range(scope), strict=True)),
                "attempt_id": claim.attempt_id,
                "row_count": facts["rows_after"],
                "checksum": facts.get("checksum"),
                "checksum_of": facts.get("checksum_of"),
            }
        )
    )
    put_checks(tx, sql, claim, facts.get("checks", ()))
    release(tx, sql, claim)


def changed_in_run(tx: Executor, sql: LedgerSql, run: RunIdentity) -> bool:
    """Whether any published attempt of this run changed its partition: a try that was killed may have told nobody."""
    return bool(tx.run(sql.changed_in_run(run)).rows)


def put_checks(tx: Executor, sql: LedgerSql, claim: Claim, results: Sequence[CheckResult]) -> None:
    """Record the results of audits and post-checks."""
    for result in results:
        tx.run(
            sql.put_check(
                {
                    "target_id": claim.target_id,
                    "attempt_id": claim.attempt_id,
                    "partition_key": claim.attempt["partition_key"],
                    "phase": result.phase,
                    "name": result.name,
                    "passed": result.passed,
                    "observed": None if result.observed is None else str(result.observed),
                    "required": result.required,
                }
            )
        )


def fail(database: Database, sql: LedgerSql, claim: Claim, error: BaseException) -> None:
    """
    Record the attempt as failed, also one that never held its claim, with the checks that refused it.

    The claim is given back; all in a transaction of its own.
    """
    what = {
        "error_code": _code(error),
        "error_class": type(error).__name__,
        "error_message": str(error)[:_MESSAGE],
    }
    with database.transaction(lock=2.0) as tx:
        if claim.target_id:
            tx.run(sql.start_attempt({**claim.attempt, "target_id": claim.target_id}))
        tx.run(sql.fail_attempt(claim.attempt_id, what))
        tx.run(sql.release_claim(claim.attempt_id))
        if isinstance(error, SafeOpsError):
            put_checks(tx, sql, claim, error.facts.get("results", ()))


def _code(error: BaseException) -> str | None:
    """What is no Exception and ends the task all the same (its time-out, the interpreter's end) cancels the load."""
    if isinstance(error, SafeOpsError):
        return error.code
    return None if isinstance(error, Exception) else LoadCancelled.code


def outcome(database: Database, sql: LedgerSql, attempt_id: str, wait: float) -> dict[str, Any]:
    """
    What became of an attempt whose COMMIT was not answered.

    Our own claim's row is waited for first, so that a commit still in flight is seen.

    :param wait: longest wait, in seconds.
    """
    with database.transaction(lock=wait, waits=True) as tx:
        tx.run(sql.lock_claim(attempt_id, held=False))
        rows = tx.run(sql.attempt_state(attempt_id)).named
        return rows[0] if rows else {"state": "missing"}
