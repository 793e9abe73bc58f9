"""
What an error says of itself: its classes, the codes it carries, its words, and the errors behind it.

Foreign errors are known by their names and attributes alone; no driver is imported.
"""

from __future__ import annotations

import errno
import math
import socket
import ssl
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

from airflow_safe_ops.errors import FailedInTrigger, SafeOpsError
from airflow_safe_ops.failures.words import MYSQL, codes_said

_LINKS = 32
_WORDS = 4000
_BY_WORDS = ("databricks",)
"""Drivers whose errors carry their code in their words only, always in the same form."""
_LONGEST_WAIT = 30 * 86400.0
_RUN_CODES = ("termination_code", "result_state", "life_cycle_state")


@dataclass(frozen=True)
class Link:
    """
    One error of a chain.

    :param is_direct: it is the error itself or what that was explicitly raised from, not what was being handled.
    :param names: ``module.Class`` of its class and all bases.
    :param codes: what it carries as an attribute, ``kind:code``, for example ``sqlstate:40P01``, ``http:503``.
    :param said: codes that stand only in its words.
    :param retry_after: seconds that a server asked to wait.
    """

    error: BaseException | None
    is_direct: bool
    names: tuple[str, ...]
    codes: tuple[str, ...]
    said: tuple[str, ...]
    text: str
    retry_after: float | None = None


def chain(error: BaseException, seen: set[int] | None = None) -> list[Link]:
    """
    The error and those behind it, outermost first; bounded, and a circle ends it.

    :param seen: the errors that were looked at already, by id; they are left out, and the new ones put in.
    """
    links: list[Link] = []
    seen = set() if seen is None else seen
    waiting = [(error, True)]
    while waiting and len(links) < _LINKS:
        one, is_direct = waiting.pop(0)
        if id(one) in seen:
            continue
        seen.add(id(one))
        links.append(link_of(one, is_direct=is_direct))
        behind = [(other, is_direct) for other in _wrapped(one)]
        cause, context = _get(one, "__cause__"), _get(one, "__context__")
        if isinstance(cause, BaseException):
            behind.append((cause, is_direct))
        elif isinstance(context, BaseException) and not _get(one, "__suppress_context__"):
            behind.append((context, False))
        waiting = behind + waiting
    return links


def link_of(error: BaseException, *, is_direct: bool = True) -> Link:
    """What one error says of itself."""
    text, names = words_of(error)[:_WORDS], names_of(type(error))
    said, codes = codes_said(text, names), _all_of(_codes(error))
    if _root(error) in _BY_WORDS:
        codes, said = (*codes, *said), ()
    if isinstance(error, FailedInTrigger):  # rules that only the worker knows see what failed there
        names = (*names, str(facts_of(error).get("error", "")))
    return Link(error, is_direct, names, codes, said, text, _retry_after(error))


def words_of(error: BaseException) -> str:
    """What an error says; "" where it cannot say it."""
    with suppress(Exception):
        return "".join(str(error))
    return ""


def facts_of(error: BaseException) -> Mapping[str, Any]:
    """The facts of an error of ours; none where a subclass made none."""
    facts = _get(error, "facts")
    return facts if isinstance(facts, Mapping) else {}


def names_of(cls: type) -> tuple[str, ...]:
    """``module.Class`` of a class and its bases, the roots of all exceptions left out."""
    roots = (object, BaseException, Exception)
    return tuple(f"{base.__module__}.{base.__qualname__}" for base in cls.__mro__ if base not in roots)


def _wrapped(error: BaseException) -> Iterator[BaseException]:
    """Errors that an error carries otherwise than as its cause: SQLAlchemy, urllib3, requests, tenacity, Databricks."""
    held = [_get(error, "orig"), _get(error, "reason"), *_tuple(_get(error, "args"))]
    held.append(_get(error, "original_exception"))
    context = _get(error, "context")
    if isinstance(context, dict):
        held.append(context.get("original-exception"))
    with suppress(Exception):
        last = _get(error, "last_attempt")
        held.append(last.exception() if last is not None else None)
    for other in held:
        if isinstance(other, BaseException):
            yield other


def _codes(error: BaseException) -> Iterator[str]:
    if isinstance(error, SafeOpsError):
        yield f"so:{error.code}"
        facts = facts_of(error)
        yield from _sqlstate(facts.get("sqlstate"))
        if isinstance(error, FailedInTrigger) and facts.get("code"):
            yield str(facts["code"])
    root = _root(error)
    args = _tuple(_get(error, "args"))
    if root in MYSQL:
        yield from _number("mysql", _get(error, "errno") or (args[0] if args else None))
    for name in ("sqlstate", "pgcode"):
        yield from _sqlstate(_get(error, name))
    if root == "pyodbc" and args:
        yield from _sqlstate(args[0])
    sqlite = _get(error, "sqlite_errorname")
    if isinstance(sqlite, str):
        yield f"sqlite:{sqlite}"
    response = _get(error, "response")
    if isinstance(response, dict) and isinstance(told := response.get("Error"), dict) and told.get("Code"):
        yield f"aws:{told['Code']}"
    yield from _system(error)
    yield from _number("http", _status(error, root), range(400, 600))
    for name in _RUN_CODES:
        if isinstance(code := _get(error, name), str):
            yield f"run:{code}"


def _system(error: BaseException) -> Iterator[str]:
    """What the operating system, the resolver and TLS say."""
    if isinstance(error, ssl.SSLError):
        reason = _get(error, "reason")
        if isinstance(reason, str):
            yield f"tls:{reason}"
    elif isinstance(error, socket.gaierror):
        names = {value: name for name, value in vars(socket).items() if name.startswith("EAI_")}
        if isinstance(error.errno, int):
            yield f"dns:{names.get(error.errno, error.errno)}"
    elif isinstance(error, OSError) and _root(error) not in MYSQL and isinstance(error.errno, int):
        yield f"errno:{errno.errorcode.get(error.errno, error.errno)}"


def _status(error: BaseException, root: str) -> object:
    """The HTTP status, where httpx, requests, aiohttp, botocore, urllib, google and the Databricks driver keep it."""
    response = _get(error, "response")
    if isinstance(response, dict):
        meta = response.get("ResponseMetadata")
        return meta.get("HTTPStatusCode") if isinstance(meta, dict) else None
    if (status := _get(response, "status_code") if response is not None else None) is not None:
        return status
    context = _get(error, "context")
    if isinstance(context, dict) and context.get("http-code"):
        return context["http-code"]
    if root in ("aiohttp", "urllib", "google", "kubernetes"):
        return _get(error, "status") or _get(error, "code")
    return vars(error).get("status_code")  # not the class's: every AirflowException has 500 there


def _retry_after(error: BaseException) -> float | None:
    for holder in (_get(error, "response"), error):
        headers = _get(holder, "headers")
        if headers is not None and hasattr(headers, "get"):
            with suppress(Exception):
                return seconds_of(headers.get("Retry-After") or headers.get("retry-after"))
    return None


def seconds_of(value: object, now: datetime | None = None) -> float | None:
    """
    A Retry-After, seconds or a date, as seconds from now; None where it says nothing.

    A server may send anything: what is longer than 30 days is 30 days, what lies in the past is 0.
    """
    if value is None or isinstance(value, bool):
        return None
    try:
        seconds = _seconds(value if isinstance(value, int | float) else str(value).strip(), now or datetime.now(UTC))
    except OverflowError:
        seconds = _LONGEST_WAIT
    except (TypeError, ValueError):
        return None
    return min(max(seconds, 0.0), _LONGEST_WAIT) if math.isfinite(seconds) else None


def _seconds(value: float | str, now: datetime) -> float:
    with suppress(ValueError):
        return float(value)
    until = parsedate_to_datetime(str(value))
    return ((until if until.tzinfo else until.replace(tzinfo=UTC)) - now).total_seconds()


def _sqlstate(value: object) -> Iterator[str]:
    if isinstance(value, str) and len(value) == 5 and value.isalnum():
        yield f"sqlstate:{value.upper()}"


def _number(kind: str, value: object, within: range = range(1, 100_000)) -> Iterator[str]:
    if isinstance(value, int) and not isinstance(value, bool) and value in within:
        yield f"{kind}:{int(value)}"


def _all_of(codes: Iterator[str]) -> tuple[str, ...]:
    """Each once, up to the first that cannot be read."""
    found: dict[str, None] = {}
    with suppress(Exception):
        for code in codes:
            found[code] = None
    return tuple(found)


def _root(error: BaseException) -> str:
    return type(error).__module__.partition(".")[0]


def _get(holder: object, name: str) -> Any:
    """An attribute, whatever happens when it is read."""
    with suppress(Exception):
        return getattr(holder, name, None)
    return None


def _tuple(value: object) -> tuple[Any, ...]:
    return value if isinstance(value, tuple) else ()
