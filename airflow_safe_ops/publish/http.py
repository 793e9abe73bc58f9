"""A receiver that is reached by HTTP."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from airflow_safe_ops.definition.publication import (
    AlreadyThere,
    Found,
    Lookup,
    Refused,
    Send,
    not_sent,
    wait_as_header,
)
from airflow_safe_ops.errors import InvalidPublication
from airflow_safe_ops.failures.evidence import seconds_of

if TYPE_CHECKING:
    import httpx

_GONE = (404, 410)
_SAID = 2000
# What an HTTP connection's extra holds besides headers, as Airflow's HttpHook reads it.
_NO_HEADERS = frozenset(
    {"timeout", "allow_redirects", "proxies", "stream", "verify", "cert", "max_redirects", "trust_env"}
    | {"check_response", "auth_type", "auth_kwargs", "headers"}
)


@dataclass(frozen=True)
class HttpReceiver:
    """
    Posts the intent as JSON with the header ``Idempotency-Key``, and looks it up by GET.

    What fails before the first byte, such as a connection that cannot be made, is ``NotSent``; 2xx is done, 409 is
    looked up, 429 is tried again, after ``Retry-After`` where it says so, other 4xx are refused, and everything else
    (a lost answer, 5xx, 408, a redirect) leaves the outcome unknown.

    :param url: where to post, ``https://partner.example/reports``; a path where ``http_conn_id`` has the host.
        ``{key}`` stands for the key
    :param lookup_url: where to look up, ``https://partner.example/reports/{key}``. 404 and 410 mean that it is not
        there; a 2xx answer is JSON that holds what was sent. Default None: it cannot be looked up
    :param http_conn_id: an HTTP connection: host, login and password, headers in its extra. Default None
    :param idempotent: whether the receiver does nothing for an Idempotency-Key that it has seen, or for how long it
        keeps one. Default False
    :param payload: takes the lookup's JSON and returns what was sent out of it, or None where it is not there; for
        answers that wrap it or list it. Default: all of it
    :param method: default ``POST``
    :param headers: more headers; secrets belong into the connection
    :param timeout: longest wait for the connection and for each piece of the answer, in seconds; default 30
    """

    url: str
    lookup_url: str | None = None
    http_conn_id: str | None = None
    idempotent: bool | timedelta = False
    payload: Callable[[Any], Any] | None = field(default=None, repr=False)
    method: str = "POST"
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    timeout: float = 30.0

    def __post_init__(self) -> None:
        for name, url in (("url", self.url), ("lookup_url", self.lookup_url)):
            is_whole = str(url).startswith(("http://", "https://"))
            if url is not None and not (is_whole or (self.http_conn_id and str(url).startswith("/"))):
                raise InvalidPublication(
                    f"{name} is {url!r}.", fix="Give http://… or https://…, or /… together with http_conn_id."
                )
        if self.lookup_url is not None and "{key}" not in self.lookup_url:
            raise InvalidPublication(f"lookup_url {self.lookup_url!r} has no {{key}}.", fix="Say where the key goes.")

    @property
    def lookup(self) -> Lookup | None:
        """Ask for it; None where that is not possible."""
        return None if self.lookup_url is None else partial(self._look_up, self.lookup_url)

    @property
    def send(self) -> Send:
        """Post it."""
        return self._post

    def _post(self, key: str, intent: Any, idempotency_key: str) -> dict[str, Any]:
        with not_sent(Exception):
            client = self._client()
        with client:
            with not_sent(Exception):
                headers = {"Idempotency-Key": idempotency_key}
                request = client.build_request(self.method, _with_key(self.url, key), json=intent, headers=headers)
            with not_sent(*_before_the_first_byte()):
                answer = client.send(request)
        judge_answer(answer.status_code, answer.text[:200], _asked_to_wait(answer))
        return _told(answer)

    def _look_up(self, url: str, key: str) -> Found | None:
        with self._client() as client:
            answer = client.get(_with_key(url, key))
        if answer.status_code in _GONE:
            return None
        if not answer.is_success:
            answer.raise_for_status()
        there = answer.json()
        payload = there if self.payload is None else self.payload(there)
        return None if payload is None and self.payload is not None else Found(payload, outcome=_told(answer))

    def _client(self) -> httpx.Client:
        import httpx

        options: dict[str, Any] = {"headers": dict(self.headers)}
        if self.http_conn_id is not None:
            options = _from_connection(self.http_conn_id, self.headers)
        return httpx.Client(timeout=self.timeout, follow_redirects=False, **options)


class UnclearAnswerError(Exception):
    """The receiver answered, and whether it did it cannot be told from that."""

    def __init__(self, said: str, retry_after: float | None = None) -> None:
        super().__init__(said)
        self.headers = wait_as_header(retry_after)  # as Refused has it


def judge_answer(status: int, said: str, retry_after: float | None = None) -> None:
    """
    What an HTTP status says of a request that was sent; nothing for success.

    What a server may still have done (5xx, 408, 425 …) is left unknown.

    :param said: the answer's first words, for people.
    :param retry_after: seconds that it asks to wait.
    :raises Refused: it was not done: 4xx, for good; 429, for now.
    :raises AlreadyThere: 409.
    :raises UnclearAnswerError: anything else.
    """
    what = f"HTTP {status} {said}".strip()
    if 200 <= status < 300:
        return
    if status == 409:
        raise AlreadyThere(what)
    if status == 429:
        raise Refused(what, again=True, retry_after=retry_after)
    if 400 <= status < 500 and status not in (408, 425):
        raise Refused(what)
    raise UnclearAnswerError(what, retry_after)


def _asked_to_wait(answer: httpx.Response) -> float | None:
    with suppress(ValueError, OverflowError):  # a header that is neither seconds nor a date says nothing
        return seconds_of(answer.headers.get("Retry-After"))
    return None


def _before_the_first_byte() -> tuple[type[Exception], ...]:
    """A request that got no connection, or cannot be written, was not sent; where it broke later, nobody knows."""
    import httpx

    no_line = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout, httpx.ProxyError)
    return (*no_line, httpx.UnsupportedProtocol, httpx.LocalProtocolError)


def _from_connection(conn_id: str, headers: Mapping[str, str]) -> dict[str, Any]:
    """Host, login and headers of an HTTP connection, read as Airflow's HttpHook reads them."""
    from airflow.providers.common.compat.sdk import BaseHook

    connection = BaseHook.get_connection(conn_id)
    extra = connection.extra_dejson
    own = extra.get("headers") if isinstance(extra.get("headers"), dict) else {}
    kept = {name: str(value) for name, value in extra.items() if name not in _NO_HEADERS} | dict(own or {})
    host = connection.host or ""
    base = host if "://" in host else f"{connection.schema or 'http'}://{host}"
    if connection.port:
        base = f"{base}:{connection.port}"
    auth = (connection.login, connection.password or "") if connection.login else None
    return {"base_url": base, "auth": auth, "headers": {**kept, **headers}}


def _with_key(url: str, key: str) -> str:
    return url.replace("{key}", quote(key, safe=""))


def _told(answer: httpx.Response) -> dict[str, Any]:
    """What is kept of an answer."""
    try:
        body = answer.json()
    except (ValueError, RecursionError):
        body = answer.text[:_SAID]
    return {"status": answer.status_code, "body": body}
