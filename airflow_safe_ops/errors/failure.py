"""What kind of failure it was: the kind decides whether trying again can help."""

from __future__ import annotations

from enum import StrEnum
from typing import Self


class FailureClass(StrEnum):
    """The classes of failure, by what heals them."""

    means: str
    """What the class is, in words."""

    TRANSIENT = "transient", "Network, time-out, a server that goes down or fails over: time heals it."
    CONTENTION = "contention", "Deadlock, serialization, lock wait, commit conflict: the whole unit is tried again."
    RESOURCE = "resource", "Disk, quota, too many connections: time may heal it, more load makes it worse."
    LATE_INPUT = "late_input", "The source is not there yet: it is waited for, not tried against."
    PERMISSION = "permission", "Login, right, certificate: a person grants it."
    CONTRACT = "contract", "Schema, statement, setting, code: a person changes it."
    DATA = "data", "The rows are not what they must be: a person looks at them."
    CANCELLED = "cancelled", "Somebody or a limit stopped it."
    UNKNOWN = "unknown", "No rule knows it."

    def __new__(cls, value: str, means: str = "") -> Self:
        """A member is its name's text, and has a meaning."""
        member = str.__new__(cls, value)
        member._value_, member.means = value, means
        return member

    @property
    def is_terminal(self) -> bool:
        """Whether trying again without a change by a person, or without waiting for the input, cannot help."""
        return self in _TERMINAL


_TERMINAL = frozenset(
    {FailureClass.LATE_INPUT, FailureClass.PERMISSION, FailureClass.CONTRACT, FailureClass.DATA},
)
