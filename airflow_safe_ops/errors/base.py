"""The base of every error: code, what happened, why, what to do."""

from __future__ import annotations

from typing import Any, ClassVar

from airflow_safe_ops.errors.failure import FailureClass


class SafeOpsError(Exception):
    """
    An error that says what is wrong and what to do about it.

    A class is one kind of fault. Its ``code`` never changes its meaning; its ``failure`` says what heals it, and so
    whether Airflow's retries are spent on it: ``terminal`` follows from that.

    :param what: one sentence with the names and numbers of this case.
    :param why: the reason the package refuses it; default: the class's own ``why``.
    :param fix: what to do; default: the class's own ``fix``.
    :param facts: the same names and numbers as attributes (``error.facts["rows"]``).
    """

    code: ClassVar[str] = "SO-000"
    failure: FailureClass = FailureClass.CONTRACT
    terminal: bool = True
    asks_cause: ClassVar[bool] = False
    """Whether what the database said, its cause, knows the class of failure better."""
    why: str = ""
    fix: str = ""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "terminal" in vars(cls) and "failure" not in vars(cls):
            cls.failure = FailureClass.CONTRACT if cls.terminal else FailureClass.TRANSIENT
        cls.terminal = cls.failure.is_terminal

    def __init__(self, what: str, *, why: str | None = None, fix: str | None = None, **facts: Any) -> None:
        super().__init__(what)
        self.what = what
        if why is not None:
            self.why = why
        if fix is not None:
            self.fix = fix
        self.facts: dict[str, Any] = facts

    def __str__(self) -> str:
        return " ".join(part for part in (self.code, self.what, self.why, self.fix) if part)
