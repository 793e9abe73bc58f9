"""The way to the receiver: ask it, send to it, and judge what it says. Knows no ledger."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from airflow_safe_ops.definition.publication import (
    AlreadyThere,
    Found,
    Lookup,
    NotSent,
    Publication,
    Refused,
    Send,
    outcome_text,
)
from airflow_safe_ops.errors import (
    InvalidPublication,
    LookupFailed,
    PublicationNotSent,
    PublicationRefused,
    PublicationUndecided,
    PublicationUnknown,
    ReceiverHasOther,
    SafeOpsError,
)
from airflow_safe_ops.plan.publication import Known, State, can_repeat, is_key_known, judge_found, undecided


@dataclass(frozen=True)
class Answer:
    """
    What came of a send.

    :param error: what is raised once it is recorded.
    """

    state: State
    how: str | None = None
    outcome: str | None = None
    error: SafeOpsError | None = None


@dataclass(frozen=True)
class Courier:
    """
    Sends one publication, and asks for it.

    :param not_sent: what ``send`` raises where nothing has reached the receiver, besides :class:`NotSent`.
    """

    publication: Publication
    lookup: Lookup | None
    send: Send
    not_sent: tuple[type[Exception], ...] = ()

    @property
    def can_ask(self) -> bool:
        """Whether the receiver can be looked up."""
        return self.lookup is not None

    def look_up(self) -> Found | None:
        """
        What the receiver has under the key.

        :raises LookupFailed: it could not be asked.
        :raises InvalidPublication: the lookup does not say what it has.
        """
        if self.lookup is None:
            return None
        try:
            found: Any = self.lookup(self.publication.key)
        except Exception as error:
            raise LookupFailed(f"Looking up {self.publication.name} failed: {_said(error)}.") from error
        if found is None or isinstance(found, Found):
            return found
        raise InvalidPublication(
            f"lookup({self.publication.key!r}) returned {type(found).__name__} {found!r:.80}.",
            fix="Return None where the receiver has nothing under the key, Found(payload=…) where it has.",
        )

    def judged(self, known: Known, found: Found | None) -> Answer | None:
        """What the receiver's answer to the lookup decides; None: it is to be sent."""
        if found is None:
            if can_repeat(known, self.publication, was_asked=self.lookup is not None):
                return None
            why = "an earlier send was never answered, and the receiver can neither be looked up nor knows the key"
            return Answer(State.UNDECIDED, error=undecided(self.publication, why))
        error = judge_found(found, self.publication)
        if error is None:
            return Answer(State.DONE, "found", _outcome(found))
        if isinstance(error, PublicationUndecided):
            return Answer(State.UNDECIDED, error=error)
        return Answer(State.UNKNOWN if known.is_unknown else State(known.state), error=error)

    def deliver(self, known: Known) -> Answer:
        """Call ``send``, and say what came of it."""
        name = self.publication.name
        not_sent: tuple[type[Exception], ...] = (NotSent, *self.not_sent)
        try:
            said = self.send(self.publication.key, json.loads(self.publication.text), known.idempotency_key)
        except not_sent as error:
            wrong: SafeOpsError = PublicationNotSent(f"{name} was not sent: {_said(error)}.")
            return self._did_nothing(known, State.INTENDED, _caused(wrong, error))
        except Refused as error:
            kind = PublicationNotSent if error.again else PublicationRefused
            wrong = kind(f"The receiver did not take {name}: {_said(error)}.")
            return self._did_nothing(known, State.REFUSED, _caused(wrong, error))
        except AlreadyThere as error:
            return self._already_there(known, error)
        except Exception as error:  # noqa: BLE001 - whatever it is, it says nothing of the receiver
            return self._unknown(known, error)
        return Answer(State.DONE, "sent", outcome_text(said))

    def _did_nothing(self, known: Known, state: State, wrong: SafeOpsError) -> Answer:
        """What a send that did nothing is told as: not as that where it repeats one that may have done it."""
        if not known.in_doubt:
            return Answer(state, error=wrong)
        cause = wrong.__cause__
        why = f"this send did nothing ({_said(cause)}), and an earlier one, whose answer was lost, is still open"
        if self.lookup is None and isinstance(wrong, PublicationRefused):
            return Answer(State.UNDECIDED, error=_caused(undecided(self.publication, why), cause))
        wrong = PublicationUnknown(f"Whether {self.publication.name} was sent is not known: {why}.")
        return Answer(State.UNKNOWN, error=_caused(wrong, cause))

    def _already_there(self, known: Known, error: AlreadyThere) -> Answer:
        """A lost reply to an earlier send looks like this, and so does another sender."""
        if self.lookup is None:
            return self._unknown(known, error)
        try:
            found = self.look_up()
        except SafeOpsError as failed:
            return self._unknown(known, failed)
        if found is None:
            return self._unknown(known, error)
        wrong = judge_found(found, self.publication)
        if wrong is None:
            return Answer(State.DONE, "found", _outcome(found))
        if not isinstance(wrong, ReceiverHasOther):
            return Answer(State.UNDECIDED, error=_caused(wrong, error))
        return Answer(State.UNKNOWN if known.in_doubt else State.REFUSED, error=_caused(wrong, error))

    def _unknown(self, known: Known, error: Exception) -> Answer:
        name, said = self.publication.name, _said(error)
        if self.lookup is None and not is_key_known(known, self.publication):
            wrong: SafeOpsError = undecided(self.publication, f"the answer to a send was lost ({said})")
            return Answer(State.UNDECIDED, error=_caused(wrong, error))
        wrong = PublicationUnknown(f"{name} was sent, and the answer is not known: {said}.")
        return Answer(State.UNKNOWN, error=_caused(wrong, error))


def _outcome(found: Found) -> str:
    return outcome_text(found.payload if found.outcome is None else found.outcome)


def _caused(error: SafeOpsError, cause: BaseException | None) -> SafeOpsError:
    error.__cause__ = cause
    return error


def _said(error: BaseException | None) -> str:
    try:
        words = str(error)
    except Exception:  # noqa: BLE001 - an error of the author's that cannot be told
        words = ""
    return f"{type(error).__name__}: {words}".strip().rstrip(".:")
