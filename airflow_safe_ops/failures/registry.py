"""Rules that a user adds: in ``[safe_ops] failure_rules`` or by :func:`register_rule`. They are asked first."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from airflow_safe_ops.errors import FailureClass, InvalidFailureRule
from airflow_safe_ops.failures.rules import Rule

_KEYS = frozenset({"exception", "sqlstate", "code", "message", "class", "reason", "advice"})
_KINDS = ("sqlstate", "mysql", "sqlite", "databricks", "run", "http", "errno", "dns", "tls", "aws", "so")
_SQLSTATE = re.compile(r"[0-9A-Z]{2}(?:[0-9A-Z]{3}|XXX|\*)?")
_NAME = re.compile(r"[^\W\d]\w*(?:\.[^\W\d]\w*)*")

_registered: list[Rule] = []
_configured: tuple[str, tuple[Rule, ...]] = ("", ())


def added_rules() -> tuple[Rule, ...]:
    """All of them: registered ones, then the configured."""
    return (*_registered, *_configured[1])


def register_rule(
    failure: FailureClass | str,
    *,
    exception: str | None = None,
    sqlstate: str | None = None,
    code: str | None = None,
    message: str | None = None,
    when: Callable[[BaseException], bool] | None = None,
    reason: str = "",
    advice: str = "",
) -> Rule:
    """
    Say of which class an error is; asked before every rule of the package, in the order of registration.

    Call it where every process that runs tasks gets by: a plugin, ``airflow_local_settings.py``, or the DAG's file.
    Registering the same rule again changes nothing, so a file may be parsed many times.

    :param failure: the class: transient, contention, resource, late_input, permission, contract, data, cancelled.
    :param exception: ``package.Class`` of the error or of a base; modules between are not compared.
    :param sqlstate: five characters, or the two of a class of states.
    :param code: another code, ``kind:code``: ``mysql:1213``, ``http:503``, ``errno:ENOSPC``, ``databricks:DELTA_*``.
    :param message: a regular expression, searched in the error's words.
    :param when: a function that gets the error and says whether it is this one; if it raises, it is not. All that is
        given has to fit.
    :param reason: in words, for logs and the ledger.
    :param advice: what to do.
    :raises InvalidFailureRule: it is not usable, or an earlier one knows all its errors already.
    """
    rule = _rule(failure, exception, sqlstate, code, message, when, reason, advice)
    same = [n for n, old in enumerate(_registered) if _is_same(old, rule)]
    if same:
        _registered[same[0]] = rule
        return rule
    _check_shadows([*_registered, rule])
    _registered.append(rule)
    return rule


def forget_rules() -> None:
    """Take all added rules away."""
    global _configured  # noqa: PLW0603 - one setting of one process
    _registered.clear()
    _configured = ("", ())


def use_configured(text: str) -> None:
    """
    Take the rules of the setting, once for each text.

    :raises InvalidFailureRule: it is not usable; those of before stay.
    """
    global _configured  # noqa: PLW0603 - one setting of one process
    if text != _configured[0]:
        _configured = (text, parse_rules(text))


def parse_rules(text: str) -> tuple[Rule, ...]:
    """
    The rules of the setting, a JSON list of objects.

    :raises InvalidFailureRule: no such list, or a rule that is not usable, never fits, or stands behind one that
        knows all its errors already.
    """
    if not text.strip():
        return ()
    try:
        given = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidFailureRule(f"failure_rules is no JSON: {error}.") from error
    if not isinstance(given, list) or not all(isinstance(item, dict) for item in given):
        raise InvalidFailureRule("failure_rules is no JSON list of objects.")
    rules = [_from_json(number, item) for number, item in enumerate(given, 1)]
    _check_shadows(rules)
    return tuple(rules)


def _from_json(number: int, item: Mapping[str, Any]) -> Rule:
    unknown = sorted(set(item) - _KEYS)
    if unknown:
        raise InvalidFailureRule(f"Rule {number} has {', '.join(unknown)}; it may have {', '.join(sorted(_KEYS))}.")
    wrong = [name for name, value in item.items() if not isinstance(value, str)]
    if wrong:
        raise InvalidFailureRule(f"Rule {number}: {', '.join(wrong)} is no text.")
    if "class" not in item:
        raise InvalidFailureRule(f"Rule {number} names no class.")
    exception, sqlstate, code, message = (item.get(name) for name in ("exception", "sqlstate", "code", "message"))
    why, to_do = item.get("reason", ""), item.get("advice", "")
    try:
        return _rule(item["class"], exception, sqlstate, code, message, None, why, to_do)
    except InvalidFailureRule as error:
        raise InvalidFailureRule(f"Rule {number}: {error.what}") from error


def _rule(
    failure: FailureClass | str,
    exception: str | None,
    sqlstate: str | None,
    code: str | None,
    message: str | None,
    when: Callable[[BaseException], bool] | None,
    reason: str,
    advice: str,
) -> Rule:
    named = _failure(failure)
    if not any((exception, sqlstate, code, message)) and when is None:
        raise InvalidFailureRule(
            "It has no exception, sqlstate, code or message, so it would know every error.",
            why="A rule that knows every error leaves none to the others.",
        )
    codes = [*([_state(sqlstate)] if sqlstate else []), *([_code(code)] if code else [])]
    if len(codes) > 1:
        raise InvalidFailureRule("It has a sqlstate and a code: an error carries one of them.", fix="Give one.")
    return Rule(
        named,
        reason or f"a rule of yours for {exception or sqlstate or code or message or 'it'}",
        advice,
        codes=tuple(codes),
        exceptions=(_name(exception),) if exception else (),
        message=_pattern(message) if message else "",
        when=when,
    )


def _failure(given: FailureClass | str) -> FailureClass:
    try:
        return FailureClass(given)
    except ValueError:
        raise InvalidFailureRule(f"There is no class {given!r}; there are {', '.join(FailureClass)}.") from None


def _state(text: str) -> str:
    state = text.strip()
    if not _SQLSTATE.fullmatch(state):
        raise InvalidFailureRule(
            f"sqlstate {text!r} is no SQLSTATE, so the rule would never fit.",
            fix="Give its five characters (40P01), or the two of a class of states (40).",
        )
    return f"sqlstate:{state}" if len(state) == 5 and not state.endswith("XXX") else f"sqlstate:{state[:2]}*"


def _code(text: str) -> str:
    kind, _, code = text.strip().partition(":")
    if kind not in _KINDS or not code.strip("*"):
        raise InvalidFailureRule(
            f"code {text!r} would never fit.", fix=f"Write kind:code; the kinds are {', '.join(_KINDS)}."
        )
    return text.strip()


def _name(text: str) -> str:
    if not _NAME.fullmatch(text.strip()):
        raise InvalidFailureRule(f"exception {text!r} is no name of a class, so the rule would never fit.")
    return text.strip()


def _pattern(text: str) -> str:
    try:
        pattern = re.compile(text)
    except re.error as error:
        raise InvalidFailureRule(f"message {text!r} is no regular expression: {error}.") from error
    if pattern.search("") is not None:
        raise InvalidFailureRule(f"message {text!r} is found in every text.", fix="Say what has to stand there.")
    return text


def _check_shadows(rules: Sequence[Rule]) -> None:
    for number, rule in enumerate(rules):
        for earlier, before in enumerate(rules[:number]):
            if before.covers(rule):
                raise InvalidFailureRule(
                    f"Rule {number + 1} ({_told(rule)}) is never asked: rule {earlier + 1} ({_told(before)}) knows "
                    "all its errors already.",
                    fix="Put the narrower rule first, or take it out.",
                )


def _told(rule: Rule) -> str:
    parts = [*rule.exceptions, *rule.codes, *([f"/{rule.message}/"] if rule.message else [])]
    if rule.when is not None:
        parts.append(getattr(rule.when, "__qualname__", "a function"))
    return " and ".join(parts)


def _is_same(old: Rule, new: Rule) -> bool:
    """The same matchers; a function is the same if it is the one of that name in that module."""

    def facts(rule: Rule) -> tuple[object, ...]:
        function = (getattr(rule.when, "__module__", ""), getattr(rule.when, "__qualname__", "")) if rule.when else None
        return rule.exceptions, rule.codes, rule.message, function

    return facts(old) == facts(new)
