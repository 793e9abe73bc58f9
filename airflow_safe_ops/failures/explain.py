"""Which class a failure is of, from the text that a person pastes: an error's line, a log, a whole traceback."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from itertools import islice

from airflow_safe_ops import errors
from airflow_safe_ops.errors import FailureClass, SafeOpsError
from airflow_safe_ops.failures.classify import Verdict, by_added_rules, decide, of_own
from airflow_safe_ops.failures.evidence import Link, names_of
from airflow_safe_ops.failures.words import (
    codes_pasted,
    codes_said,
    own_code,
    without_statements,
    without_values,
)

# A name begins where no other goes on, and is of a bounded length: a log may be of any.
_NAME = re.compile(
    r"(?<![\w.])((?:[A-Za-z_]\w{0,99}\.){1,9}[A-Z]\w{1,99}|"
    r"[A-Z]\w{0,99}(?:Error|Exception|Exit|Interrupt|Timeout|Reset|Refused))(?=[:\s()'\"]|$)"
)
_HEAD, _TAIL, _NAMES = 10_000, 40_000, 100
Resolve = Callable[[str], "tuple[type[BaseException], str] | None"]


def explain(text: str, resolve: Resolve) -> Verdict:
    """
    Say which class the text tells of.

    Of a traceback the last error is the outermost, as Python prints it. What stands in quotes, a statement or a row's
    details is passed over: it names other things than the failure. Of a very long text the head and the end count.

    :param resolve: the class of that name and its SQLSTATE or "", or None where it is not known here: its bases and
        its state tell more than its name.
    """
    if len(text) > _HEAD + _TAIL:
        text = f"{text[:_HEAD]}\n{text[-_TAIL:]}"
    told = without_statements(text)
    found = list(islice(_links(told, resolve), _NAMES))
    links, known = [link for link, _ in found], {link.text for link, is_known in found if is_known}
    rest = "\n".join(line for line in told.splitlines() if line not in known)
    links.append(Link(None, True, (), (), codes_pasted(rest), text))
    by_code = {cls.code: cls for cls in vars(errors).values() if _is_own(cls)}
    own = by_code.get(own_code(told))
    verdict = by_added_rules(links)
    if verdict is None and own is not None and not own.asks_cause and own.failure is not FailureClass.UNKNOWN:
        verdict = of_own(own)
    verdict = verdict or decide(links)
    return of_own(own) if verdict.failure is FailureClass.UNKNOWN and own is not None else verdict


def _links(text: str, resolve: Resolve) -> Iterator[tuple[Link, bool]]:
    """The errors that are named, the last one first, and whether their class is known here."""
    seen: set[tuple[str, str]] = set()
    for line in reversed(text.splitlines()):
        for found in _NAME.finditer(without_values(line)):
            if (found[1], line) not in seen:
                seen.add((found[1], line))
                yield _link(found[1], line, line[found.end() :], resolve)


def _link(name: str, line: str, after: str, resolve: Resolve) -> tuple[Link, bool]:
    """
    One error that a line names.

    :param after: what stands behind its name: ``: words``, ``) words`` or ``('words')``.
    """
    known = resolve(name)
    names = names_of(known[0]) if known is not None else (name,)
    state = (f"sqlstate:{known[1]}",) if known is not None and known[1] else ()
    said = codes_said(re.sub(r"\A(?:\)?:?\s*|\(['\"])(?=\S)", "", after), names)
    return Link(None, True, names, (*state, *said), (), line), known is not None


def _is_own(cls: object) -> bool:
    return isinstance(cls, type) and issubclass(cls, SafeOpsError) and cls is not SafeOpsError
