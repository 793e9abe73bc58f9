"""What is to be done with a publication, by what the ledger knows of it: decisions, without a database."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from airflow_safe_ops.definition.publication import Found, Publication
from airflow_safe_ops.errors import (
    InvalidPublication,
    OtherIntent,
    PublicationUndecided,
    ReceiverHasOther,
    SafeOpsError,
)

INTENT, LOCK, ASK, BEGIN = "publish.intent", "publish.lock", "publish.ask", "publish.begin"
SEND, OUTCOME = "publish.send", "publish.outcome"


class State(StrEnum):
    """What the ledger knows of a publication."""

    INTENDED = "intended"
    """It is to be sent, and certainly was not."""
    SENDING = "sending"
    """A send was begun; without a living publisher its outcome is unknown."""
    UNKNOWN = "unknown"
    """It was sent, and the answer was lost or says nothing."""
    DONE = "done"
    """The receiver has it."""
    REFUSED = "refused"
    """The receiver answered that it did not do it."""
    UNDECIDED = "undecided"
    """Unknown, and a person has to find out."""


IN_DOUBT = (State.SENDING, State.UNKNOWN, State.UNDECIDED)


class Move(StrEnum):
    """What to do next."""

    WAIT = "wait"
    TELL = "tell"
    ASK = "ask"


@dataclass(frozen=True)
class Known:
    """
    One publication as the ledger has it.

    :param token: names the send that was begun last: only its publisher may record its outcome.
    :param in_doubt: the send that was begun last repeats one whose outcome is unknown.
    :param idle: seconds since that send was begun, by the server's clock; None where there was none.
    :param quiet: seconds since anything was heard of it: that send began, or ended without a clear answer.
    :param key_age: seconds since the Idempotency-Key was first sent; None where it was not.
    :param owner: who began that send, ``dag.task run try n``.
    """

    state: str
    intent_hash: str
    idempotency_key: str
    token: str | None = None
    sends: int = 0
    in_doubt: bool = False
    idle: float | None = None
    quiet: float | None = None
    key_age: float | None = None
    how: str | None = None
    outcome: str | None = None
    owner: str = ""

    @property
    def is_unknown(self) -> bool:
        """Whether an earlier send may have happened."""
        return self.state in IN_DOUBT

    @classmethod
    def from_row(cls, row: Mapping[str, Any]) -> Known:
        """From the ledger's row, which has more columns."""
        return cls(**{name: row[name] for name in cls.__dataclass_fields__})


def next_move(known: Known, publication: Publication, grace: float) -> Move:
    """
    What to do with a publication whose row is locked by us.

    A send that was begun a moment ago is left to its publisher, who is about to lock the row.

    :param grace: for how long, in seconds.
    :raises OtherIntent: what was or may have been sent under this key is something else.
    """
    if known.state == State.SENDING and known.idle is not None and known.idle < grace:
        return Move.WAIT
    if known.intent_hash != publication.intent_hash and (known.is_unknown or known.state == State.DONE):
        raise OtherIntent(
            f"{publication.name} is {known.state} with intent {known.intent_hash[:16]}…; this one is "
            f"{publication.intent_hash[:16]}….",
            key=publication.key,
            state=str(known.state),
            recorded_hash=known.intent_hash,
            intent_hash=publication.intent_hash,
        )
    return Move.TELL if known.state == State.DONE else Move.ASK


def is_key_known(known: Known, publication: Publication) -> bool:
    """Whether the receiver would see a repeat of the last send by its Idempotency-Key."""
    return (known.key_age or 0.0) < publication.keeps_keys_for


def seconds_to_settle(known: Known, publication: Publication) -> float:
    """
    How much longer a lookup that found nothing is not believed.

    Only after a send of unknown outcome, and where no Idempotency-Key makes a repeat harmless.
    """
    if not known.is_unknown or is_key_known(known, publication):
        return 0.0
    return max(0.0, publication.settle - (known.quiet or 0.0))


def can_repeat(known: Known, publication: Publication, *, was_asked: bool) -> bool:
    """
    Whether it may be sent now.

    :param was_asked: the receiver was looked up, and has nothing.
    """
    return not known.is_unknown or was_asked or is_key_known(known, publication)


def needs_new_key(known: Known, publication: Publication) -> bool:
    """A key is used again while its outcome is unknown; a refusal was answered, and receivers remember answers."""
    return known.state == State.REFUSED or known.intent_hash != publication.intent_hash


def stays_in_doubt(known: Known, publication: Publication, *, was_asked: bool) -> bool:
    """Whether a refusal of the next send would say nothing of the one before it."""
    return known.is_unknown and not (was_asked and not is_key_known(known, publication))


def judge_found(found: Found, publication: Publication) -> SafeOpsError | None:
    """Whether what the receiver has is what was to be sent: None; or what is wrong."""
    try:
        same = found.is_same(publication.intent)
    except Exception as error:  # noqa: BLE001 - a comparison of the author's
        return InvalidPublication(f"What the receiver has under {publication.name} cannot be compared: {error}.")
    if same:
        return None
    if same is None:
        return undecided(publication, "the receiver has something under this key, and nothing to compare it by")
    return ReceiverHasOther(
        f"The receiver has something else under {publication.name}.", key=publication.key, receiver=publication.receiver
    )


def undecided(publication: Publication, why: str) -> PublicationUndecided:
    """A person has to find out."""
    return PublicationUndecided(
        f"Whether {publication.name} was sent is not known: {why}.",
        key=publication.key,
        receiver=publication.receiver,
    )
