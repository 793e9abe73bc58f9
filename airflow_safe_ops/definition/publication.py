"""A side effect outside the database: its name, what is meant, and what a receiver can say of it."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, TypeAlias

from airflow_safe_ops.errors import InvalidPublication

_LONGEST_KEY = 512
_LONGEST_IN_BYTES = 1024  # two of them go into one index, which takes 2,700
_LARGEST_INTENT = 1_000_000
_LONGEST_WAIT = timedelta(days=30).total_seconds()
_OUTCOME, _BEGINNING = 8000, 2000
SETTLE = 60.0
"""Seconds after a send whose answer was lost before "not there" is believed."""


class NotSent(Exception):
    """
    Raised by ``send``: nothing has reached the receiver. It is tried again with the same Idempotency-Key.

    Not where it was raised from an error that no retry heals: its class counts (``raise NotSent(…) from error``).
    Raise it only where it is certain: the connection was refused, the name is not known.
    """


@contextmanager
def not_sent(*kinds: type[Exception]) -> Iterator[None]:
    """
    What fails in the block fails before the first byte.

    :raises NotSent: from the error, by which it is classed.
    """
    try:
        yield
    except kinds as error:
        raise NotSent(f"{type(error).__name__}: {error}") from error


class Refused(Exception):
    """
    Raised by ``send``: the receiver answered that it did not do it; the next send has a new Idempotency-Key.

    :param again: whether the same payload may be taken later (429): a failure of class resource; else the refusal is
        final.
    :param retry_after: seconds that the receiver asks to wait; default: it does not say
    """

    def __init__(self, said: str, *, again: bool = False, retry_after: float | None = None) -> None:
        super().__init__(said)
        self.again = again
        self.headers = wait_as_header(retry_after)
        if again:
            self.status_code = 429  # by it and the header the failure is classed, like an HTTP library's


class AlreadyThere(Exception):
    """Raised by ``send``: the receiver says that it has something under this key (409). It is then looked up."""


@dataclass(frozen=True)
class Found:
    """
    What ``lookup`` returns where the receiver has something under the key; None where it has nothing.

    Neither ``payload`` nor ``same``: it is there and cannot be compared, which a person has to decide.

    :param payload: what the receiver has. It is the same if it holds all of the intent; what the receiver adds,
        such as a number of its own, does no harm.
    :param same: whether it is what the intent says, or a function of the intent that tells; in place of ``payload``.
    :param outcome: what to record as outcome; default ``payload``.
    """

    payload: Any = None
    same: bool | Callable[[Any], bool] | None = None
    outcome: Any = None

    def is_same(self, intent: Any) -> bool | None:
        """Whether the receiver has this intent; None where that cannot be told."""
        if callable(self.same):
            return bool(self.same(intent))
        if self.same is not None:
            return self.same
        return None if self.payload is None else holds(self.payload, intent)


def outcome_text(outcome: Any) -> str:
    """A receiver's answer as JSON; what JSON does not have as text, and the beginning alone of what is too long."""
    with suppress(Exception):  # whatever the author's objects raise when they are told: it was sent
        text = json.dumps(outcome, default=str, skipkeys=True)
        return text if len(text) <= _OUTCOME else json.dumps({"truncated": text[:_BEGINNING]})
    with suppress(Exception):
        return json.dumps(repr(outcome)[:_BEGINNING])
    return json.dumps(type(outcome).__name__)


def wait_as_header(seconds: Any) -> dict[str, str]:
    """Seconds that a receiver asks to wait as the header that says so, up to 30 days; none where they are no number."""
    is_number = isinstance(seconds, int | float) and not isinstance(seconds, bool)
    return {"Retry-After": str(math.ceil(min(seconds, _LONGEST_WAIT)))} if is_number and seconds >= 0 else {}


Lookup: TypeAlias = Callable[[str], Found | None]
Send: TypeAlias = Callable[[str, Any, str], Any]


@dataclass(frozen=True)
class Publication:
    """
    One side effect that is to happen once.

    :param key: its business key: the same for every run that means the same, 1 to 512 characters and 1,024 bytes.
    :param intent: what is sent, as JSON: dicts, lists, text, numbers, booleans, None. No secrets: it is kept.
    :param receiver: to whom, where one ledger serves several: keys are unique within it.
    :param idempotent: whether the receiver takes an Idempotency-Key, or for how long it keeps one.
    :param settle: seconds after a send whose answer was lost before a lookup that finds nothing is believed.
    """

    key: str
    intent: Any
    receiver: str = ""
    idempotent: bool | timedelta = False
    settle: float = SETTLE
    text: str = field(init=False)

    def __post_init__(self) -> None:
        check_name("key", self.key, least=1)
        check_name("receiver", self.receiver, least=0)
        _check_seconds("settle", self.settle)
        _check_idempotent(self.idempotent)
        object.__setattr__(self, "text", intent_text(self.intent))

    @property
    def intent_hash(self) -> str:
        """SHA-256 of the intent; the order of keys does not matter."""
        return hashlib.sha256(self.text.encode()).hexdigest()

    @property
    def keeps_keys_for(self) -> float:
        """How long the receiver knows an Idempotency-Key, in seconds."""
        if isinstance(self.idempotent, timedelta):
            return self.idempotent.total_seconds()
        return math.inf if self.idempotent else 0.0

    @property
    def name(self) -> str:
        """How people write it."""
        return f"{self.key!r} for {self.receiver!r}" if self.receiver else repr(self.key)


def check_name(what: str, name: Any, *, least: int) -> None:
    """
    Refuse what is no name.

    :raises InvalidPublication: it is no text, too short, too long, or has blanks at its ends or unseen characters.
    """
    if not isinstance(name, str):
        raise InvalidPublication(f"{what} is {name!r}, not text.")
    is_seen = name == name.strip() and name.isprintable()
    if not is_seen or not least <= len(name) <= _LONGEST_KEY or len(name.encode()) > _LONGEST_IN_BYTES:
        raise InvalidPublication(
            f"{what} is {name[:80]!r} ({len(name):,} characters).",
            fix=f"Give {least} to {_LONGEST_KEY} characters that can be seen, without blanks at the ends, and no more "
            f"than {_LONGEST_IN_BYTES:,} bytes.",
        )


def intent_text(intent: Any) -> str:
    """
    The intent as JSON, one text for one meaning.

    :raises InvalidPublication: it is None, no JSON, or larger than 1 MB.
    """
    if intent is None:
        raise InvalidPublication("intent is None.", fix="Say what is sent: a dict, a list, text, a number.")
    try:
        _check_json(intent, "intent")
        text = json.dumps(intent, sort_keys=True, separators=(",", ":"), allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidPublication(f"intent is no JSON: {error}.") from error
    if len(text) > _LARGEST_INTENT:
        raise InvalidPublication(
            f"intent has {len(text):,} bytes.", fix="Give at most 1 MB: name the file and its hash, not its content."
        )
    return text


def _check_json(value: Any, where: str) -> None:
    """Text as keys, and nothing that JSON would turn into something else."""
    if isinstance(value, Mapping):
        for key, inner in value.items():
            if not isinstance(key, str):
                raise InvalidPublication(f"{where} has the key {key!r}, which is no text.", fix="Give it as text.")
            _check_json(inner, f"{where}.{key}")
    elif isinstance(value, list | tuple):
        for at, inner in enumerate(value):
            _check_json(inner, f"{where}[{at}]")
    elif value is not None and not isinstance(value, str | bool | int | float):
        raise InvalidPublication(
            f"{where} is a {type(value).__name__}, which JSON does not have.",
            fix="Give it as text or a number, for example a date as isoformat() writes it.",
        )


def _check_seconds(what: str, seconds: Any) -> None:
    is_number = isinstance(seconds, int | float) and not isinstance(seconds, bool)
    if not is_number or not 0 <= seconds < math.inf:
        raise InvalidPublication(f"{what} is {seconds!r}, which is no number of seconds.", fix="Give 0 or more.")


def _check_idempotent(idempotent: Any) -> None:
    if isinstance(idempotent, bool) or (isinstance(idempotent, timedelta) and idempotent > timedelta(0)):
        return
    raise InvalidPublication(
        f"idempotent is {idempotent!r}.", fix="Give True, False, or how long the receiver keeps a key as timedelta."
    )


def holds(there: Any, intent: Any) -> bool:
    """Whether what is there has all that the intent says; keys that the receiver added are left out."""
    if isinstance(intent, Mapping):
        return isinstance(there, Mapping) and all(k in there and holds(there[k], v) for k, v in intent.items())
    if isinstance(intent, list | tuple):
        same_length = isinstance(there, list | tuple) and len(there) == len(intent)
        return same_length and all(holds(t, i) for t, i in zip(there, intent, strict=True))
    if isinstance(intent, bool) or isinstance(there, bool):
        return there is intent
    return bool(there == intent)
