"""Which class a failure is of, from the text that a person pastes: an error's line, a log, a whole traceback."""

from __future__ import annotations

import re
from collections.abc import Callable

from airflow_safe_ops import errors
from airflow_safe_ops.errors import FailureClass, SafeOpsError
from airflow_safe_ops.failures.classify import Verdict, by_added_rules, decide, of_own
from airflow_safe_ops.failures.evidence import Link, names_of
from airflow_safe_ops.failures.words import codes_in

_NAME = re.compile(
    r"\b((?:[A-Za-z_]\w*\.)+[A-Z]\w+|[A-Z]\w*(?:Error|Exception|Exit|Interrupt|Timeout|Reset|Refused))(?=[:\s()'\"]|$)"
)
Resolve = Callable[[str], "tuple[type[BaseException], str] | None"]


def explain(text: str, resolve: Resolve) -> Verdict:
    """
    Say which class the text tells of.

    Of a traceback the last error is the outermost, as Python prints it.

    :param resolve: the class of that name and its SQLSTATE or "", or None where it is not known here: its bases and
        its state tell more than its name.
    """
    links = [_link(name, line, resolve) for line in reversed(text.splitlines()) for name in _NAME.findall(line)]
    links.append(Link(None, True, (), codes_in(text), (), text))
    by_code = {cls.code: cls for cls in vars(errors).values() if _is_own(cls)}
    own = next((by_code[c[3:]] for c in codes_in(text) if c.startswith("so:") and c[3:] in by_code), None)
    verdict = by_added_rules(links)
    if verdict is None and own is not None and not own.asks_cause and own.failure is not FailureClass.UNKNOWN:
        verdict = of_own(own)
    verdict = verdict or decide(links)
    return of_own(own) if verdict.failure is FailureClass.UNKNOWN and own is not None else verdict


def _link(name: str, line: str, resolve: Resolve) -> Link:
    known = resolve(name)
    names = names_of(known[0]) if known is not None else (name,)
    codes = (f"sqlstate:{known[1]}",) if known is not None and known[1] else ()
    return Link(None, True, names, (*codes, *codes_in(line)), (), line)


def _is_own(cls: object) -> bool:
    return isinstance(cls, type) and issubclass(cls, SafeOpsError) and cls is not SafeOpsError
