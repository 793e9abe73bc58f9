"""A write that is not ours, under a claim, was refused or could not be watched to its end."""

from __future__ import annotations

from airflow_safe_ops.errors.base import SafeOpsError
from airflow_safe_ops.errors.failure import FailureClass


class WriteRepeated(SafeOpsError):
    """A guarded writer would write into a partition that holds rows already."""

    code = "SO-731"
    failure = FailureClass.CONTRACT
    why = "What it writes is not ours to undo: rows that are there could stand there twice. It was not started."
    fix = (
        'Declare on_repeat="clean_up": the partition\'s rows are deleted before the writer starts. Or '
        'on_repeat="allow" if the writer itself replaces or merges.'
    )


class Unfenced(SafeOpsError):
    """The claim was lost while a guarded writer wrote."""

    code = "SO-732"
    failure = FailureClass.CONTENTION
    why = (
        "The writer went on without it, so another one may have written the partition at the same time; the ledger "
        "has it as unconfirmed."
    )
    fix = 'Let it run again: with on_repeat="clean_up" or "allow" a retry heals it. Else look at the rows first.'
