"""What a rule is: how it knows an error, of which class that is, why, and what to do."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from dataclasses import dataclass
from fnmatch import fnmatchcase

from airflow_safe_ops.errors import FailureClass
from airflow_safe_ops.failures.evidence import Link

log = logging.getLogger(__name__)
_raised: set[str] = set()

ADVICE = {
    FailureClass.TRANSIENT: "Nothing, if it passes; look at network and server if it comes again.",
    FailureClass.CONTENTION: "Nothing, if it passes; if it comes often, let fewer writers meet on one table.",
    FailureClass.RESOURCE: "Free what is short, or ask for less at once: a pool, fewer runs side by side.",
    FailureClass.LATE_INPUT: "Wait for the input with a sensor; clear the task when it is there.",
    FailureClass.PERMISSION: "Grant the right or renew the login, then clear the task.",
    FailureClass.CONTRACT: "Correct the statement, the schema or the setting, then clear the task.",
    FailureClass.DATA: "Look at the rows; correct them or the query, then clear the task.",
    FailureClass.CANCELLED: "Find who or what stopped it; raise the limit if it was one.",
    FailureClass.UNKNOWN: "Read the whole error; a rule in [safe_ops] failure_rules can name its class.",
}


@dataclass(frozen=True)
class Rule:
    """
    How an error is known, and what it means. All that is given has to fit.

    :param failure: the class of failure.
    :param reason: in words, as people read it.
    :param advice: what to do; default: what the class says.
    :param codes: ``kind:code`` of any of these kinds: sqlstate, mysql, sqlite, databricks, run, http, errno, dns, tls,
        aws, so; ``*`` stands for any end.
    :param exceptions: ``package.Class`` of the error or a base of it, any of these; modules between are not compared.
    :param message: a regular expression that is searched in the error's words.
    :param is_direct: only the error itself, or what it was raised from; not what was being handled when it arose.
    :param is_wrapper: the error only holds another one: whatever is known of that comes first.
    :param when: a function that says whether it is the error; where it raises, it is not.
    """

    failure: FailureClass
    reason: str
    advice: str = ""
    codes: tuple[str, ...] = ()
    exceptions: tuple[str, ...] = ()
    message: str = ""
    is_direct: bool = False
    is_wrapper: bool = False
    when: Callable[[BaseException], bool] | None = None

    @property
    def to_do(self) -> str:
        """What to do."""
        return self.advice or ADVICE[self.failure]

    def fits(self, link: Link, codes: tuple[str, ...]) -> bool:
        """
        Whether it knows an error.

        :param codes: those of the error's codes that count.
        """
        return (
            (not self.codes or any(fnmatchcase(code, form) for form in self.codes for code in codes))
            and (not self.exceptions or any(is_named(name, form) for form in self.exceptions for name in link.names))
            and (not self.message or re.search(self.message, link.text) is not None)
            and (self.when is None or (link.error is not None and _says_yes(self.when, link.error)))
            and not (self.is_direct and not link.is_direct)
        )

    def covers(self, other: Rule) -> bool:
        """Whether every error that the other rule knows is known by this one already."""
        return (
            (not self.codes or (bool(other.codes) and all(_any(fnmatchcase, c, self.codes) for c in other.codes)))
            and (
                not self.exceptions
                or (bool(other.exceptions) and all(_any(is_named, e, self.exceptions) for e in other.exceptions))
            )
            and self.message in ("", other.message)
            and (self.when is None or self.when == other.when)
            and not (self.is_direct and not other.is_direct)
        )


def is_named(name: str, form: str) -> bool:
    """Whether ``module.Class`` is what a rule calls ``Class`` or ``package.Class``."""
    if name == form:
        return True
    root, _, rest = form.partition(".")
    if not rest:
        return name.rpartition(".")[2] == form
    return name.partition(".")[0] == root and name.rpartition(".")[2] == form.rpartition(".")[2]


def _says_yes(when: Callable[[BaseException], bool], error: BaseException) -> bool:
    """What a user's function says; a failed load must be recorded all the same if the function fails, said once."""
    try:
        return bool(when(error))
    except Exception:
        name = f"{getattr(when, '__module__', '')}.{getattr(when, '__qualname__', type(when).__qualname__)}"
        if name not in _raised:
            _raised.add(name)
            log.warning("a failure rule's function %s raised; its rule does not fit", name, exc_info=True)
        return False


def _any(test: Callable[[str, str], bool], value: str, forms: tuple[str, ...]) -> bool:
    return any(test(value, form) for form in forms)
