"""The rows are not what the author declared: nothing was published."""

from __future__ import annotations

from airflow_safe_ops.errors.base import SafeOpsError
from airflow_safe_ops.errors.failure import FailureClass


class EmptySource(SafeOpsError):
    """The query returned no rows for a partition that has rows."""

    code = "SO-101"
    failure = FailureClass.LATE_INPUT
    why = "An empty result is more often a late source than an empty day. Nothing was published."
    fix = 'Wait for the source, or declare on_empty="replace" if empty is right.'


class UnledgeredRows(SafeOpsError):
    """The partition holds rows that no recorded load wrote."""

    code = "SO-102"
    failure = FailureClass.CONTRACT
    why = "Replacing rows that nobody recorded is a decision. Nothing was published."
    fix = (
        'Declare on_unledgered="replace" for the first load if the query can make these rows again, and take it out '
        "afterwards; or record them as they stand: airflow safe-ops adopt."
    )


class NullInPartition(SafeOpsError):
    """A staged row has NULL in a partition column."""

    code = "SO-103"
    failure = FailureClass.DATA
    why = "Such a row belongs to no partition, so no later run would ever replace it. Nothing was published."
    fix = "Filter the rows out in the query, or give them a value there."


class RowsOutsidePartition(SafeOpsError):
    """Staged rows lie outside the partition that this run owns."""

    code = "SO-104"
    failure = FailureClass.DATA
    why = "The run may only write what it may also delete. Nothing was published."
    fix = "Fix the query's WHERE clause (:partition_start, :partition_end), or the partition's column or time zone."


class NullInKey(SafeOpsError):
    """A staged row has NULL in a column of the unique key."""

    code = "SO-105"
    failure = FailureClass.DATA
    why = "NULL equals nothing, so the row would be added again by each run. Nothing was published."
    fix = "Filter the rows out, COALESCE the column in the query, or leave it out of unique_key."


class DuplicateKeys(SafeOpsError):
    """Two staged rows have the same unique key."""

    code = "SO-106"
    failure = FailureClass.DATA
    why = "One key, one row: which of them is right cannot be guessed. Nothing was published."
    fix = (
        'Deduplicate in the query, or declare on_duplicates="keep_latest" with a sequence_by column that '
        "orders them without ties."
    )


class KeysMoved(SafeOpsError):
    """A staged key stands in another partition of the target."""

    code = "SO-107"
    failure = FailureClass.DATA
    why = "Publishing it here would leave the same key in two partitions. Nothing was published."
    fix = (
        'Declare on_key_moved="move" to take the old rows away in the same load, or first reload the partitions '
        "named with a strategy that deletes what their source no longer has."
    )


class ColumnContract(SafeOpsError):
    """The query's columns are not the target's."""

    code = "SO-108"
    failure = FailureClass.CONTRACT
    why = "Columns are matched by name, case included; none is dropped or filled silently. Nothing was published."
    fix = (
        "Fix the query or the table, name a subset in columns=[…], or declare "
        'on_schema_change="append_new_columns" or "ignore".'
    )


class AuditFailed(SafeOpsError):
    """A check on the staged rows failed before publication."""

    code = "SO-109"
    failure = FailureClass.DATA
    why = "Audits run before readers see anything. Nothing was published."
    fix = "Look at the source, or change the audit if it is wrong."


class PostCheckFailed(SafeOpsError):
    """A check on the written partition failed; the transaction was rolled back."""

    code = "SO-110"
    failure = FailureClass.DATA
    why = "Post-checks run in the load's transaction, so it was rolled back: readers still see the old rows."
    fix = "Look at the source and the target, or change the check if it is wrong."


class TargetHasDuplicates(SafeOpsError):
    """The partition already holds a staged key more than once."""

    code = "SO-112"
    failure = FailureClass.DATA
    why = "A merge updates rows, it cannot tell which copy is the right one. The load was rolled back."
    fix = (
        'Load the partition once with strategy="delete_insert", which replaces all copies; a unique index keeps '
        "them from coming back."
    )


class OtherWriter(SafeOpsError):
    """The partition does not hold what this load wrote."""

    code = "SO-111"
    failure = FailureClass.CONTENTION
    why = (
        "Somebody else wrote the partition during the load, or a trigger, rule or row security changed rows. "
        "The load was rolled back."
    )
    fix = "It is tried again; find the other writer, or declare exclusive=True to lock the table."


class AppendedRowsDiffer(SafeOpsError):
    """The rows that were appended are not those that the query returns now."""

    code = "SO-113"
    failure = FailureClass.DATA
    why = 'strategy="append_once" never changes what it has appended. Nothing was published.'
    fix = (
        'Declare on_changed="skip" to keep what was appended first. To append other rows, delete these and run '
        "airflow safe-ops ledger invalidate; a source that is corrected again and again wants another strategy."
    )


class AppendedRowsGone(SafeOpsError):
    """The ledger says that the rows were appended, and the target does not hold them."""

    code = "SO-114"
    failure = FailureClass.DATA
    why = "Somebody deleted them or restored the table; appending them again is a decision. Nothing was published."
    fix = "Run airflow safe-ops ledger invalidate with a reason, then the load again."
