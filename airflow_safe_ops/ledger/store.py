"""What the ledger keeps of a load, and what it knows of a target."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from airflow_safe_ops.definition.checks import CheckResult
from airflow_safe_ops.definition.identity import RunIdentity
from airflow_safe_ops.definition.scope import Scope, TimeScope, covers, from_json, overlaps, to_json
from airflow_safe_ops.errors import LoadCancelled, SafeOpsError
from airflow_safe_ops.failures.classify import classify
from airflow_safe_ops.failures.evidence import facts_of, words_of
from airflow_safe_ops.ledger.claims import Claim, FencedError, release
from airflow_safe_ops.ledger.text import storable
from airflow_safe_ops.plan.model import Database, Executor, Facts, LoadTask, Recorded
from airflow_safe_ops.sql.ledger import ATTEMPT_FACTS, LedgerSql

_MESSAGE = 2000


def recorded(tx: Executor, sql: LedgerSql, target_id: int, scope: Scope) -> list[Recorded]:
    """The recorded partitions of a target that overlap a scope."""
    rows = tx.run(sql.partitions(target_id, *_range(scope))).rows
    found = [Recorded(key, from_json(text), *facts) for key, text, *facts in rows]
    return [record for record in found if overlaps(record.scope, scope)]


def _range(scope: Scope) -> tuple[str | None, datetime | None, datetime | None]:
    """What a time range is drawn on, and its ends; nothing of any other scope."""
    if isinstance(scope, TimeScope):
        return f"{scope.column} {scope.kind}", scope.lo, scope.hi
    return None, None, None


def recorded_of(tx: Executor, sql: LedgerSql, identity: str, scope: Scope) -> list[Recorded]:
    """The same by the target's identity; none where the ledger does not know the target."""
    rows = tx.run(sql.find_target(identity)).rows
    return recorded(tx, sql, int(rows[0][0]), scope) if rows else []


def attempt_row(task: LoadTask, run: RunIdentity) -> dict[str, Any]:
    """The attempt as it is written when its claim is held: what is loaded, who runs it, from which code."""
    load = task.load
    what = attempt_of(run, task.attempt_id, task.key, task.scope, load.source_slice, load.strategy)
    return {**what, "sql_hash": hashlib.sha256(load.sql.encode()).hexdigest()}


def attempt_of(
    run: RunIdentity, attempt_id: str, key: str, scope: Scope, source_slice: str | None, doing: str
) -> dict[str, Any]:
    """
    Any attempt: what is done with which partition, and by whom.

    :param doing: a load's strategy, ``guarded``, ``adopt`` or ``invalidate``.
    """
    return {
        "attempt_id": attempt_id,
        "partition_key": key,
        "scope": to_json(scope),
        "source_slice": source_slice,
        "strategy": doing,
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
    }


def publish(tx: Executor, sql: LedgerSql, claim: Claim, scope: Scope, state: str | None, facts: Facts) -> None:
    """
    Record the load as published and give its claim back, in the transaction of its data.

    Other recorded partitions that overlap what was written (a month over its days, days from which keys moved
    away) keep their state but no longer their counts and checksum; other slices of one partition keep all.

    :param state: what the partition's record says now: ``published``; ``adopted``, rows that were there; None where
        nothing was written and it stays as it is.
    :raises FencedError: the attempt is not there as ``started``, or its claim is gone.
    """
    if state == "published":
        _touch(tx, sql, claim, scope)
    end(tx, sql, claim, "published", {name: facts.get(name) for name in ATTEMPT_FACTS})
    if state is not None:
        put_partition(tx, sql, claim, scope, state, facts)
    put_checks(tx, sql, claim, facts.get("checks", ()))
    release(tx, sql, claim)


def put_unconfirmed(tx: Executor, sql: LedgerSql, claim: Claim, scope: Scope) -> None:
    """
    A writer whose commits are not ours begins: until it has ended well, nobody knows what the partition holds.

    Nor what is in those inside it; of those that it is a part of, only the counts are not known any more.
    """
    put_partition(tx, sql, claim, scope, "unconfirmed", {"rows_after": None})
    for key, record in _others(tx, sql, claim):
        tx.run(sql.forget_counts(claim.target_id, key, "unconfirmed" if covers(scope, record.scope) else record.state))


def confirm(tx: Executor, sql: LedgerSql, claim: Claim, scope: Scope, facts: Facts) -> None:
    """
    The writer has ended well, and was alone: record its partition as published and give its claim back.

    :raises FencedError: its claim is gone, or another writer that had lost its own wrote into the partition meanwhile.
    """
    if not tx.run(sql.still_unconfirmed(claim.target_id, claim.attempt["partition_key"], claim.attempt_id)).rows:
        raise FencedError("another writer that had lost its claim has written too")
    publish(tx, sql, claim, scope, "published", facts)


def is_claimed(database: Database, sql: LedgerSql, claim: Claim) -> bool:
    """Whether the claim's row is still there: then nobody else has held the partition."""
    with database.transaction(lock=2.0) as tx:
        return bool(tx.run(sql.lock_claim(claim.attempt_id, held=True)).rows)


def end_unfenced(
    database: Database,
    sql: LedgerSql,
    claim: Claim,
    scope: Scope,
    error: BaseException,
    seconds: float,
    counted: Facts,
) -> None:
    """The writer went on without its claim: whatever was recorded meanwhile, nobody knows what it left."""
    with database.transaction(lock=2.0) as tx:
        tx.run(sql.end_attempt(claim.attempt_id, "unfenced", {**_failure(error, seconds), **counted}))
        tx.run(sql.release_claim(claim.attempt_id))  # it may be there, and free
        put_unconfirmed(tx, sql, claim, scope)


def invalidate(tx: Executor, sql: LedgerSql, claim: Claim) -> None:
    """The partition is to be loaded again; those that overlap it lose what was counted in them."""
    tx.run(sql.forget_counts(claim.target_id, claim.attempt["partition_key"], "missing"))
    for key, record in _others(tx, sql, claim):
        tx.run(sql.forget_counts(claim.target_id, key, record.state))


def _touch(tx: Executor, sql: LedgerSql, claim: Claim, scope: Scope) -> None:
    for key, record in _others(tx, sql, claim):
        # Rows that nobody loaded or that are not valid count as loaded only where all of them were written.
        stays = record.state in ("missing", "adopted", "unconfirmed") and not covers(scope, record.scope)
        tx.run(sql.forget_counts(claim.target_id, key, record.state if stays else "published"))


def _others(tx: Executor, sql: LedgerSql, claim: Claim) -> list[tuple[str, Recorded]]:
    """The other recorded partitions that overlap the claim; not the other slices of an appended one."""
    mine, source_slice = claim.attempt["partition_key"], claim.attempt["source_slice"]
    found = {
        record.key: record
        for part in claim.scopes
        for record in recorded(tx, sql, claim.target_id, part)
        if record.key != mine and (source_slice is None or record.source_slice is None)
    }
    return sorted(found.items(), key=lambda pair: pair[0])  # one order for all loads: no deadlock


def end(tx: Executor, sql: LedgerSql, claim: Claim, state: str, values: Facts) -> None:
    """
    The attempt is over, in the transaction of what it did.

    :raises FencedError: it is not there as ``started``.
    """
    if tx.run(sql.end_attempt(claim.attempt_id, state, values)).rowcount != 1:
        raise FencedError


def forget(tx: Executor, sql: LedgerSql, claim: Claim) -> None:
    """The attempt found nothing to do, and leaves no trace."""
    tx.run(sql.forget_attempt(claim.attempt_id))


def put_partition(tx: Executor, sql: LedgerSql, claim: Claim, scope: Scope, state: str, facts: Facts) -> None:
    """Record the partition as this attempt left it."""
    tx.run(
        sql.put_partition(
            {
                "target_id": claim.target_id,
                "partition_key": claim.attempt["partition_key"],
                "scope": to_json(scope),
                "source_slice": claim.attempt["source_slice"],
                **dict(zip(("range_of", "lo", "hi"), _range(scope), strict=True)),
                "state": state,
                "attempt_id": claim.attempt_id,
                "row_count": facts["rows_after"],
                "checksum": facts.get("checksum"),
                "checksum_of": facts.get("checksum_of"),
            }
        )
    )


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


def fail(
    database: Database,
    sql: LedgerSql,
    claim: Claim,
    error: BaseException,
    seconds: float | None = None,
    counted: Facts | None = None,
) -> None:
    """
    Record the attempt as failed, also one that never held its claim, with the checks that refused it.

    The claim is given back; all in a transaction of its own.

    :param seconds: what the try took, with its wait for the claim; None where nobody measured it.
    :param counted: what it did all the same: of a writer whose commits are not ours.
    """
    what = {**_failure(error, seconds), **(counted or {})}
    with database.transaction(lock=2.0) as tx:
        if claim.target_id:
            tx.run(sql.start_attempt({**claim.attempt, "target_id": claim.target_id}))
        tx.run(sql.end_attempt(claim.attempt_id, "failed", what))
        tx.run(sql.release_claim(claim.attempt_id))
        if isinstance(error, SafeOpsError):
            put_checks(tx, sql, claim, facts_of(error).get("results", ()))


def _failure(error: BaseException, seconds: float | None = None) -> Facts:
    """What is kept of a failure, whatever the error object does: an attempt without it would keep its claim."""
    verdict = classify(error)
    return {
        "error_code": _code(error),
        "error_class": type(error).__name__,
        "error_message": storable(words_of(error))[:_MESSAGE],
        "failure_class": str(verdict.failure),
        "failure_reason": storable(verdict.reason),
        **({} if seconds is None else {"seconds": seconds}),
    }


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
