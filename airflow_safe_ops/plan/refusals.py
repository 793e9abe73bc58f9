"""The decisions of a load: from counts that the database gave to a refusal, or none."""

from __future__ import annotations

from collections.abc import Mapping

from airflow_safe_ops.definition.checks import Check
from airflow_safe_ops.definition.scope import Scope
from airflow_safe_ops.errors import (
    AuditFailed,
    DuplicateKeys,
    EmptySource,
    KeysMoved,
    NullInKey,
    NullInPartition,
    OtherWriter,
    PostCheckFailed,
    RowsOutsidePartition,
    SafeOpsError,
    TargetHasDuplicates,
    UnledgeredRows,
)
from airflow_safe_ops.plan.model import Facts, Refusal, Samples


def shown(samples: Samples) -> str:
    """Sample rows as one phrase; nothing where there are none."""
    if not samples:
        return ""
    rows = "; ".join(", ".join(f"{column}={value}" for column, value in row.items()) for row in samples)
    return f" For example: {rows}."


def no_null_in_partition(scope: Scope) -> Refusal:
    """No staged row has NULL in a partition column."""

    def decide(facts: Facts, samples: Samples) -> SafeOpsError | None:
        if not facts["null_in_partition"]:
            return None
        return NullInPartition(
            f"{facts['null_in_partition']:,} of {facts['rows_staged']:,} staged rows have NULL in "
            f"{', '.join(scope.columns)}.{shown(samples)}",
            rows=facts["null_in_partition"],
            staged=facts["rows_staged"],
        )

    return Refusal(NullInPartition, decide)


def no_rows_outside(scope: Scope) -> Refusal:
    """Every staged row lies in the partition."""

    def decide(facts: Facts, samples: Samples) -> SafeOpsError | None:
        if not facts["rows_outside"]:
            return None
        counted = f"{facts['rows_outside']:,} of {facts['rows_staged']:,} staged rows"
        return RowsOutsidePartition(
            f"{counted} lie outside {scope.key}.{shown(samples)}",
            rows=facts["rows_outside"],
            staged=facts["rows_staged"],
            partition=scope.key,
        )

    return Refusal(RowsOutsidePartition, decide)


def no_null_in_key(key: tuple[str, ...]) -> Refusal:
    """No staged row has NULL in a key column; the refusal names the columns."""

    def decide(facts: Facts, samples: Samples) -> SafeOpsError | None:
        counts = {column: facts[f"null_key_{n}"] for n, column in enumerate(key) if facts[f"null_key_{n}"]}
        if not counts:
            return None
        named = ", ".join(f"{column} ({rows:,} rows)" for column, rows in counts.items())
        return NullInKey(f"NULL in unique_key column {named}.{shown(samples)}", columns=list(counts))

    return Refusal(NullInKey, decide)


def no_duplicates(key: tuple[str, ...], what: str) -> Refusal:
    """No key is staged twice."""

    def decide(facts: Facts, samples: Samples) -> SafeOpsError | None:
        if not facts.get("duplicate_keys"):
            return None
        return DuplicateKeys(f"{what} unique_key ({', '.join(key)}).{shown(samples)}", keys=samples)

    return Refusal(DuplicateKeys, decide)


def no_accidental_empty(key: str, table: str) -> Refusal:
    """No rows for a partition that has rows."""

    def decide(facts: Facts, _samples: Samples) -> SafeOpsError | None:
        if facts["rows_staged"] or not facts["rows_before"]:
            return None
        return EmptySource(f"The query returned no rows for {key}, where {table} has rows.", partition=key)

    return Refusal(EmptySource, decide)


def only_ledgered_rows(scope: Scope, table: str) -> Refusal:
    """The partition holds no row that no recorded load wrote."""

    def decide(facts: Facts, _samples: Samples) -> SafeOpsError | None:
        if not facts["unledgered"]:
            return None
        return UnledgeredRows(f"{table} has rows in {scope.key} that no load in the ledger wrote.", partition=scope.key)

    return Refusal(UnledgeredRows, decide)


def no_moved_keys(key: tuple[str, ...], *, appends: bool = False) -> Refusal:
    """No staged key stands in another partition, nor in another slice of this one."""

    def decide(facts: Facts, samples: Samples) -> SafeOpsError | None:
        if not facts["keys_moved"]:
            return None
        return KeysMoved(
            f"{facts['keys_moved']:,} staged keys ({', '.join(key)}) stand in another partition.{shown(samples)}",
            fix="Leave them out of the query, or load with a strategy that can move them." if appends else None,
            rows=facts["keys_moved"],
            samples=samples,
        )

    return Refusal(KeysMoved, decide)


def rows_as_written(key: str, table: str, *, keeps: bool) -> Refusal:
    """The partition holds what was staged or, where the strategy keeps rows, what was inserted and left there."""

    def decide(facts: Facts, _samples: Samples) -> SafeOpsError | None:
        if keeps:
            expected = facts["rows_before"] - facts.get("rows_deleted", 0) + facts.get("rows_inserted", 0)
        else:
            expected = facts["rows_staged"]
        if facts["rows_after"] == expected:
            return None
        return OtherWriter(
            f"{table} holds {facts['rows_after']:,} rows in {key}, where this load left {expected:,}.",
            found=facts["rows_after"],
            expected=expected,
        )

    return Refusal(OtherWriter, decide)


def one_row_a_key(scope: Scope, table: str) -> Refusal:
    """Every staged key stands in the partition, once."""

    def decide(facts: Facts, _samples: Samples) -> SafeOpsError | None:
        arrived, staged = facts["rows_arrived"], facts["rows_staged"]
        if arrived == staged:
            return None
        found = f"{table} holds {arrived:,} rows in {scope.key} for {staged:,} staged keys."
        if arrived > staged:
            return TargetHasDuplicates(found, found=arrived, expected=staged)
        return OtherWriter(found, found=arrived, expected=staged)

    return Refusal(TargetHasDuplicates, decide)


def no_copies(scope: Scope, table: str) -> Refusal:
    """No staged key stands in the partition twice."""

    def decide(facts: Facts, _samples: Samples) -> SafeOpsError | None:
        there, keys = facts["rows_there"], facts["keys_there"]
        if there == keys:
            return None
        found = f"{table} holds {there:,} rows in {scope.key} for {keys:,} staged keys."
        return TargetHasDuplicates(found, found=there, expected=keys)

    return Refusal(TargetHasDuplicates, decide)


def checks_pass(checks: Mapping[str, Check], phase: str) -> Refusal:
    """Every check's value satisfies its rule; all are judged, the refusal names each that failed."""
    error = AuditFailed if phase == "audit" else PostCheckFailed

    def decide(facts: Facts, _samples: Samples) -> SafeOpsError | None:
        results = [check.judge(facts.get(fact), phase) for fact, check in checks.items()]
        facts.setdefault("checks", []).extend(results)
        failed = [result for result in results if not result.passed]
        if not failed:
            return None
        return error(f"{'; '.join(map(str, failed))}.", failed=[result.name for result in failed], results=results)

    return Refusal(error, decide)
