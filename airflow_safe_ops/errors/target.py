"""The target cannot be loaded safely as it stands: refused before anything is written."""

from __future__ import annotations

from airflow_safe_ops.errors.base import SafeOpsError
from airflow_safe_ops.errors.failure import FailureClass


class UnknownTable(SafeOpsError):
    """The target does not exist, or the connection may not see it."""

    code = "SO-301"
    failure = FailureClass.CONTRACT
    fix = "Create the table first (the operator never creates a target), or correct the name: schema.table."


class UnknownColumn(SafeOpsError):
    """A declared column is not in the target."""

    code = "SO-302"
    failure = FailureClass.CONTRACT
    fix = "Correct the name; case counts."


class UnsupportedTarget(SafeOpsError):
    """The target is not a table, nor a view that the database can write through."""

    code = "SO-303"
    failure = FailureClass.CONTRACT
    fix = "Load the base table."


class AmbiguousTarget(SafeOpsError):
    """Which table stands behind the name cannot be told."""

    code = "SO-304"
    failure = FailureClass.CONTRACT
    why = "Two names for one table must share one claim."
    fix = "Load the base table by its own name."


class CascadeForeignKey(SafeOpsError):
    """A foreign key would delete or change rows of another table with the partition's rows."""

    code = "SO-305"
    failure = FailureClass.CONTRACT
    why = "The load deletes rows before it inserts, and the children would go with them."
    fix = (
        'Use strategy="merge" with not_matched_by_source="keep" and on_key_moved="fail", which updates rows in place, '
        "or change the foreign key to NO ACTION DEFERRABLE."
    )


class ReferencedRows(SafeOpsError):
    """Rows of another table point at rows of this partition."""

    code = "SO-306"
    failure = FailureClass.DATA
    why = "They cannot be deleted while they are referenced. Nothing was published."
    fix = 'Use strategy="merge", which updates rows in place, or make the foreign key DEFERRABLE.'


class UnsupportedConnection(SafeOpsError):
    """No dialect knows this kind of connection."""

    code = "SO-307"
    failure = FailureClass.CONTRACT
    fix = "Use a connection to a database that has a dialect: PostgreSQL."


class TargetChanged(SafeOpsError):
    """The target was altered or replaced while the load waited for its claim."""

    code = "SO-309"
    failure = FailureClass.CONTENTION
    why = "What was decided of it no longer holds. Nothing was published."
    fix = "It is tried again, with the target as it is then."


class UnsupportedServer(SafeOpsError):
    """The server is older than the dialect was proven on."""

    code = "SO-308"
    failure = FailureClass.CONTRACT
    fix = "Upgrade the server."
