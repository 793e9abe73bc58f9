"""The database, the ledger or another load stood in the way."""

from __future__ import annotations

from airflow_safe_ops.errors.base import SafeOpsError
from airflow_safe_ops.errors.failure import FailureClass


class ClaimTimeout(SafeOpsError):
    """Another load held an overlapping partition for longer than lock_timeout."""

    code = "SO-401"
    failure = FailureClass.CONTENTION
    fix = "Look at that load; raise lock_timeout, or let Airflow retry."


class ClaimTooContended(SafeOpsError):
    """The claim was taken away again and again before the load could begin."""

    code = "SO-402"
    failure = FailureClass.CONTENTION
    why = "A claim whose owner does not begin within claim_grace is given to the next in the queue."
    fix = "Airflow retries it; if it happens often, raise [safe_ops] claim_grace."


class CommitNotConfirmed(SafeOpsError):
    """The answer to COMMIT was lost, and the ledger says that it did not take place."""

    code = "SO-403"
    failure = FailureClass.TRANSIENT
    why = "The connection broke at COMMIT; a new connection looked and found the old rows."
    fix = "Airflow retries it."


class LoadCancelled(SafeOpsError):
    """The task was killed, marked or timed out; the statement was cancelled and the transaction rolled back."""

    code = "SO-404"
    failure = FailureClass.CANCELLED
    why = "Nothing was published."
    fix = "Airflow retries it where the task has retries; raise execution_timeout if that was the limit."


class OutcomeUnknown(SafeOpsError):
    """The answer to COMMIT was lost, and the ledger could not be asked what happened."""

    code = "SO-405"
    failure = FailureClass.TRANSIENT
    why = "The load is published or rolled back as a whole; which, only the database knows."
    fix = "Airflow retries it, which ends well in both cases; the attempt is in the ledger."


class NoLedger(SafeOpsError):
    """There is no ledger in this database."""

    code = "SO-500"
    failure = FailureClass.CONTRACT
    fix = "Run `airflow safe-ops ledger init`, or let the first load make it."


class OutdatedLedger(SafeOpsError):
    """The ledger was made by an older version of the package."""

    code = "SO-504"
    failure = FailureClass.CONTRACT
    why = "It lacks columns that this version reads. Loads bring it up to date by themselves, if their login may."
    fix = "Run `airflow safe-ops ledger init`."


class LedgerDenied(SafeOpsError):
    """The ledger's schema or tables cannot be made or written with this login."""

    code = "SO-501"
    failure = FailureClass.PERMISSION
    fix = (
        "Let somebody with the rights run `airflow safe-ops ledger init` (or the output of "
        "`airflow safe-ops ledger init --print-sql`) and grant this login USAGE on the schema and SELECT, INSERT, "
        "UPDATE and DELETE on its tables."
    )


class SecondLedger(SafeOpsError):
    """The database already has a ledger in another schema."""

    code = "SO-502"
    failure = FailureClass.CONTRACT
    why = "Two ledgers are no mutual exclusion: two loads could hold one partition."
    fix = "Set [safe_ops] ledger_schema to the schema named, everywhere that loads into this database."


class ReadOnlyServer(SafeOpsError):
    """The server or session only reads."""

    code = "SO-503"
    failure = FailureClass.CONTRACT
    why = "It is a standby, or default_transaction_read_only is on."
    fix = "Point the connection at the primary."


class StatementFailed(SafeOpsError):
    """A statement of the plan failed for a reason that may pass: connection, lock, deadlock, resources."""

    code = "SO-601"
    failure = FailureClass.TRANSIENT
    asks_cause = True
    why = "The transaction was rolled back; nothing was published."
    fix = "Correct what the database names; what may heal by itself is tried again."


class StatementRefused(StatementFailed):
    """A statement of the plan failed on the data or the schema: a constraint, a cast, a missing right."""

    code = "SO-602"
    failure = FailureClass.DATA
