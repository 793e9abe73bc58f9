"""Which class a failure is of: the most telling error of its chain decides."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from airflow_safe_ops.errors import FailedInTrigger, FailureClass, SafeOpsError
from airflow_safe_ops.failures.evidence import Link, chain, facts_of, names_of, seconds_of
from airflow_safe_ops.failures.registry import added_rules
from airflow_safe_ops.failures.rules import ADVICE, Rule
from airflow_safe_ops.failures.table import RULES

# Of several errors that were raised together: a retry helps only if it helps against each of them.
_MOST_SERIOUS = (
    FailureClass.PERMISSION,
    FailureClass.CONTRACT,
    FailureClass.DATA,
    FailureClass.LATE_INPUT,
    FailureClass.RESOURCE,
    FailureClass.CONTENTION,
    FailureClass.TRANSIENT,
    FailureClass.CANCELLED,
    FailureClass.UNKNOWN,
)
_GROUPS = 3
_ERRORS = 500  # of one failure, with all its groups
log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Verdict:
    """
    Which class a failure is of.

    :param rule: the rule that knew it; None for the package's own errors and where nothing is known.
    :param error: which error of the chain decided, ``module.Class``; "" where none did.
    :param reason: in words.
    :param advice: what to do.
    :param retry_after: seconds that a server asked to wait.
    :param code: the code that decided, ``kind:code``; "" where a name or words did.
    """

    failure: FailureClass
    rule: Rule | None
    error: str
    reason: str
    advice: str
    retry_after: float | None = None
    code: str = ""


_UNKNOWN = Verdict(FailureClass.UNKNOWN, None, "", "no rule knows this error", ADVICE[FailureClass.UNKNOWN])


def classify(error: BaseException) -> Verdict:
    """
    Say which class a failure is of.

    Asked in this order, and in each step from the outermost error inwards: rules that a user added; the package's own
    errors; the errors of a group, of which the most serious counts; codes that an error carries; names of errors;
    codes and phrases in words. An error that only holds another one (AirflowFailException) is asked last.

    It never raises, so that a failure is recorded and retried whatever the error object does.
    """
    try:
        return _classify(error, 0, set())
    except Exception:
        log.warning("an error of %s could not be read; its class is unknown", type(error), exc_info=True)
        return _UNKNOWN


def decide(links: Sequence[Link]) -> Verdict:
    """The same for what is known of a chain."""
    steps: tuple[Callable[[Sequence[Link]], Verdict | None], ...] = (by_added_rules, _by_own_error, _by_rules)
    for step in steps:
        verdict = step(links)
        if verdict is not None:
            return verdict
    return _UNKNOWN


def _classify(error: BaseException, depth: int, seen: set[int]) -> Verdict:
    links = chain(error, seen)
    verdict = by_added_rules(links) or _by_own_error(links) or _by_group(links, depth, seen) or decide(links)
    if verdict.retry_after is None:
        asked = next((link.retry_after for link in links if link.retry_after is not None), None)
        return replace(verdict, retry_after=asked)
    return verdict


def by_added_rules(links: Sequence[Link]) -> Verdict | None:
    """What the rules say that users added."""
    for rule in added_rules():
        for link in links:
            if rule.fits(link, (*link.codes, *link.said)):
                return _verdict(rule, link, (*link.codes, *link.said))
    return None


def _by_own_error(links: Sequence[Link]) -> Verdict | None:
    """An error of ours says its class, unless it says that its cause knows it better."""
    for link in links:
        own = link.error
        if isinstance(own, SafeOpsError) and not own.asks_cause and own.failure is not FailureClass.UNKNOWN:
            return of_own(own)
    return None


def _by_group(links: Sequence[Link], depth: int, seen: set[int]) -> Verdict | None:
    """Of the members that were not looked at yet: they may lead back to their group and to each other."""
    if depth >= _GROUPS:
        return None
    members = [
        _classify(member, depth + 1, seen)
        for link in links
        if isinstance(link.error, BaseExceptionGroup)
        for member in link.error.exceptions
        if id(member) not in seen and len(seen) < _ERRORS
    ]
    return min(members, key=lambda verdict: _MOST_SERIOUS.index(verdict.failure), default=None)


def _by_rules(links: Sequence[Link]) -> Verdict | None:
    return next(_found(links), None) or _by_asking(links) or next(_holders(links), None)


def _found(links: Sequence[Link]) -> Iterator[Verdict]:
    coded = [rule for rule in RULES if rule.codes]
    named = [rule for rule in RULES if rule.exceptions and not rule.is_wrapper]
    for link in links:
        yield from _by_codes(coded, link, link.codes)
    for link in links:
        yield from (_verdict(rule, link, ()) for rule in named if rule.fits(link, link.codes))
    for link in links:
        yield from _by_codes(coded, link, link.said)


def _by_codes(rules: Sequence[Rule], link: Link, codes: Sequence[str]) -> Iterator[Verdict]:
    """The error's most exact code first, whatever rule comes first."""
    for code in codes:
        yield from (_verdict(rule, link, (code,)) for rule in rules if rule.fits(link, (code,)))


def _by_asking(links: Sequence[Link]) -> Verdict | None:
    """An error of ours whose cause says nothing."""
    own = next((link.error for link in links if isinstance(link.error, SafeOpsError) and link.error.asks_cause), None)
    return of_own(own) if isinstance(own, SafeOpsError) else None


def _holders(links: Sequence[Link]) -> Iterator[Verdict]:
    wrappers = [rule for rule in RULES if rule.is_wrapper]
    for link in links:
        yield from (_verdict(rule, link, ()) for rule in wrappers if rule.fits(link, link.codes))


def of_own(own: SafeOpsError | type[SafeOpsError]) -> Verdict:
    """What an error of ours says of itself."""
    cls = own if isinstance(own, type) else type(own)
    name = names_of(cls)[0]
    if isinstance(own, FailedInTrigger):
        told = facts_of(own)
        asked = seconds_of(told.get("retry_after"))
        return Verdict(own.failure, None, name, told.get("reason", ""), own.fix, asked, told.get("code", ""))
    reason = " ".join((cls.__doc__ or "").split()).rstrip(".")
    return Verdict(own.failure, None, name, f"{own.code}: {reason}", own.fix, code=f"so:{own.code}")


def _verdict(rule: Rule, link: Link, codes: tuple[str, ...]) -> Verdict:
    code = next((code for code in codes if replace(rule, message="", when=None).fits(link, (code,))), "")
    return Verdict(
        rule.failure,
        rule,
        link.names[0] if link.names else "",
        rule.reason,
        rule.to_do,
        link.retry_after,
        code if rule.codes else "",
    )
