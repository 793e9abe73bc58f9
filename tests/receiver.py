"""A partner's API on loopback: an HTTP server that takes posts, forgets to answer, refuses, and can be looked up."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote

# What it may do with the next posts, one each; afterwards it takes them.
TAKE, LOSE, DROP = "take", "take it and close the connection without an answer", "close the connection at once"
HANG = "take it and answer when told to"


@dataclass
class Receiver:
    """
    What a partner's API is and has.

    :param takes_keys: a post with an Idempotency-Key that it has seen does nothing, and gets the same answer.
    :param is_unique: a second post of one business key is answered with 409.
    :param hides: how many of the next lookups do not show yet what was posted.
    :param says: the body of its refusals, in place of JSON.
    :param retry_after: that header of its refusals.
    :param headers: of the newest post.
    :param will: what it does with the next posts: a status to answer without doing anything, or one of the above.
    """

    takes_keys: bool = False
    is_unique: bool = False
    hides: int = 0
    says: bytes = b""
    retry_after: str = ""
    will: list[int | str] = field(default_factory=list)
    effects: list[tuple[str, Any]] = field(default_factory=list)
    posts: list[tuple[str, str]] = field(default_factory=list)
    lookups: list[str] = field(default_factory=list)
    headers: dict[str, str] = field(default_factory=dict)
    go_on: threading.Event = field(default_factory=threading.Event)
    port: int = 0
    _answers: dict[str, int] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def url(self) -> str:
        """Where to post; ``/{key}`` behind it looks up."""
        return f"http://127.0.0.1:{self.port}/reports"

    @property
    def lookup_url(self) -> str:
        """Where to look up."""
        return f"{self.url}/{{key}}"

    @property
    def keys(self) -> list[str]:
        """The Idempotency-Keys of the posts, in their order."""
        return [idempotency_key for _, idempotency_key in self.posts]

    def post(self, key: str, idempotency_key: str, body: Any) -> int | str:
        """What it answers; a word where it does not."""
        with self._lock:
            self.posts.append((key, idempotency_key))
            will = self.will.pop(0) if self.will else TAKE
            if will == DROP:
                return DROP
            if self.takes_keys and idempotency_key in self._answers:
                return self._answers[idempotency_key]
            status = self._do(key, body) if isinstance(will, str) else will
            self._answers[idempotency_key] = status
        if will == HANG:
            self.go_on.wait(60)
        return LOSE if will == LOSE else status

    def find(self, key: str) -> Any:
        """What it shows under the key; None for nothing."""
        with self._lock:
            self.lookups.append(key)
            found = next((body for name, body in self.effects if name == key), None)
            if found is not None and self.hides:
                self.hides -= 1
                return None
            return found

    def _do(self, key: str, body: Any) -> int:
        if self.is_unique and any(name == key for name, _ in self.effects):
            return 409
        self.effects.append((key, body))
        return 201


@contextmanager
def receiving(**how: Any) -> Iterator[Receiver]:
    """A receiver that listens until the end of the block."""
    receiver = Receiver(**how)

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            receiver.headers = dict(self.headers)
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            key = unquote(self.path.rpartition("/")[2])
            answer = receiver.post(key, self.headers.get("Idempotency-Key", ""), body)
            if isinstance(answer, str):
                self.close_connection = True
                return
            self._say(answer, {"key": key, "accepted": answer == 201})

        def do_GET(self) -> None:
            there = receiver.find(unquote(self.path.rpartition("/")[2]))
            if there is None:
                self._say(404, {"error": "no such report"})
            else:
                self._say(200, {"number": 1, **there} if isinstance(there, dict) else there)

        def _say(self, status: int, body: Any) -> None:
            is_refused = self.command == "POST" and status >= 400
            data = receiver.says if is_refused and receiver.says else json.dumps(body).encode()
            self.send_response(status)
            if is_refused and receiver.retry_after:
                self.send_header("Retry-After", receiver.retry_after)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_args: Any) -> None:
            """Nobody reads it."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    receiver.port = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield receiver
    finally:
        receiver.go_on.set()
        server.shutdown()
        server.server_close()
        thread.join()
