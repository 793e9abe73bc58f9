"""Codes that stand in words: the last resort for errors that carry none, and what a person pastes."""

from __future__ import annotations

import errno
import re
import socket
from functools import cache

_ERRNO = r"\[Errno (-?\d+)\]"
_FORMS: tuple[tuple[str, str], ...] = (
    ("so", r"\b(SO-\d{3})\b"),
    ("sqlstate", r"SQLSTATE[\s:=\[(]*([0-9A-Z]{5})\b"),
    ("mysql", r"\((\d{4}), *['\"]"),
    ("mysql", r"\bERROR (\d{4}) \([0-9A-Z]{5}\)"),
    ("mysql", r"^(\d{4}) \([0-9A-Z]{5}\): "),
    ("sqlite", r"\b(SQLITE_[A-Z_]+)\b"),
    ("databricks", r"\[([A-Z][A-Z0-9]*_[A-Z0-9_]+)(?:\.[A-Z0-9_]+)*\]"),
    ("databricks", r"\b(DELTA_[A-Z0-9_]+)\b"),
    ("run", r"(?:result_state|life_cycle_state|termination_code|code)['\"]?\s*[:=]\s*['\"]?([A-Z]+(?:_[A-Z]+)*)\b"),
    ("http", r"\b([45]\d\d) (?:Client|Server) Error\b"),
    ("http", r"(?:Client|Server) error '([45]\d\d) "),
    ("http", r"(?:^|: )([45]\d\d):[A-Z]"),
    ("http", r"(?i)\b(?:status(?:[ _]?code)?|http(?:/[\d.]+)?|http error)[\s:=]*([45]\d\d)\b"),
    ("tls", r"\b(CERTIFICATE_VERIFY_FAILED)\b"),
    ("dns", r"\b(EAI_[A-Z]+)\b"),
    ("errno", r"\b(E[A-Z2]{3,14})\b"),
)
_EAI = {value: name for name, value in vars(socket).items() if name.startswith("EAI_")}
_KNOWN_ERRNOS = frozenset(errno.errorcode.values())


@cache
def _compiled() -> tuple[tuple[str, re.Pattern[str]], ...]:
    """At the first failure, not when a DAG file is parsed."""
    return tuple((kind, re.compile(form, re.MULTILINE)) for kind, form in _FORMS)


def codes_in(text: str) -> tuple[str, ...]:
    """Every code that the text names, ``kind:code``, in the order of the forms above."""
    found = [
        f"{kind}:{code}"
        for kind, form in _compiled()
        for code in form.findall(text)
        if kind != "errno" or code in _KNOWN_ERRNOS
    ]
    for number in map(int, re.findall(_ERRNO, text)):
        name = _EAI.get(number) if number < 0 else errno.errorcode.get(number)
        if name:
            found.append(f"{'dns' if number < 0 else 'errno'}:{name}")
    return tuple(dict.fromkeys(found))
