"""A side effect outside the database: what stands in the way of its happening once."""

from __future__ import annotations

from airflow_safe_ops.errors.base import SafeOpsError
from airflow_safe_ops.errors.failure import FailureClass


class InvalidPublication(SafeOpsError):
    """A publication's key, intent or receiver is not usable, or its lookup does not say what the receiver has."""

    code = "SO-721"
    failure = FailureClass.CONTRACT
    why = "Nothing was sent."
    fix = "Correct it; the docstring of publish_once says what it takes, and what lookup returns."


class OtherIntent(SafeOpsError):
    """The ledger has another intent under this key, and it was sent or may have been."""

    code = "SO-722"
    failure = FailureClass.CONTRACT
    why = "One key names one side effect; a second one under the same name could not be told from a repeat."
    fix = (
        "Give what is new a key of its own. To send anew under this key, say so: airflow safe-ops publications settle "
        "KEY --as not-sent, with a reason. A receiver that can be looked up must drop what it has first: else the "
        "next try finds that, and sends nothing."
    )


class ReceiverHasOther(SafeOpsError):
    """The receiver has another payload under this key."""

    code = "SO-723"
    failure = FailureClass.DATA
    why = "Somebody else sent it, or the receiver changed it; sending over it is a decision. Nothing was sent."
    fix = (
        "Compare both. If what the receiver has is right, record it: airflow safe-ops publications settle KEY --as "
        "done, with a reason; else have it taken away there, or give this one a key of its own."
    )


class PublicationUndecided(SafeOpsError):
    """It was sent or not, and neither a lookup nor an Idempotency-Key tells which."""

    code = "SO-724"
    failure = FailureClass.DATA
    why = "Sending it again could make it happen twice, so it is never sent again by itself."
    fix = (
        "Ask the receiver whether it has it, then say so: airflow safe-ops publications settle KEY --as done or --as "
        "not-sent, with a reason. A lookup, or idempotent=True where the receiver takes the key, decides it without "
        "a person."
    )


class PublicationRefused(SafeOpsError):
    """The receiver answered that it does not take it."""

    code = "SO-725"
    failure = FailureClass.CONTRACT
    why = "The answer is final: the same payload would be refused again. It did not happen."
    fix = "Correct the intent or the right that is missing, and clear the task; it is sent with a new Idempotency-Key."


class PublicationNotSent(SafeOpsError):
    """It certainly did not happen: the receiver was not reached, or said that it has no time for it."""

    code = "SO-726"
    failure = FailureClass.TRANSIENT
    asks_cause = True
    fix = "It is tried again, unless its cause says that this cannot help; correct that then."


class PublicationUnknown(SafeOpsError):
    """It was sent, and the answer was lost or says nothing."""

    code = "SO-727"
    failure = FailureClass.TRANSIENT
    why = "Whether it happened, only the receiver knows."
    fix = "It is tried again, which asks the receiver first, or sends the same Idempotency-Key."


class LookupFailed(SafeOpsError):
    """The receiver could not be asked whether it has it."""

    code = "SO-728"
    failure = FailureClass.TRANSIENT
    asks_cause = True
    why = "Nothing is sent before the receiver was asked. Nothing was sent."
    fix = "It is tried again; correct the lookup if it can never succeed."


class PublisherBusy(SafeOpsError):
    """Another publisher held the key for longer than lock_timeout."""

    code = "SO-729"
    failure = FailureClass.CONTENTION
    why = "One key has one publisher at a time. Nothing was sent."
    fix = "Look at that task; raise lock_timeout, or let Airflow retry."
