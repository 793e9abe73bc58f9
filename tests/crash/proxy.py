"""A proxy before the server's socket that, once armed, loses what a network can lose around a COMMIT."""

from __future__ import annotations

import select
import socket
import struct
import tempfile
import threading
from contextlib import suppress
from pathlib import Path
from typing import Literal
from urllib.parse import quote

_COMMIT = b"COMMIT\x00"
_SOCKET = ".s.PGSQL.5432"

Loss = Literal["", "answer", "answer_not_awaited", "request", "everything"]


class Proxy:
    """
    Passes bytes between clients and the server.

    ``loss``, when armed, is what happens to the next COMMIT; it happens once, after ``passes`` of them or at the
    message ``at`` of all that clients send:

    * ``answer``: the server commits, the client is cut off;
    * ``answer_not_awaited``: the client is cut off at once, while the server is about to commit;
    * ``request``: both are cut off, COMMIT never arrives;
    * ``everything``: COMMIT never arrives, the client is cut off, and the server does not learn of it.

    Once ``silent`` is set nothing passes any more, and nobody is told.

    :param folder: the folder of the server's socket.
    :param tcp: take clients by TCP, and cut them off by a reset.
    """

    def __init__(self, folder: Path, database: str, *, tcp: bool = False) -> None:
        self._server = str(folder / _SOCKET)
        self._folder = Path(tempfile.mkdtemp(prefix="proxy-"))
        self._database = database
        self._tcp = tcp
        self._listener = socket.socket(socket.AF_INET if tcp else socket.AF_UNIX)
        self._listener.bind(("127.0.0.1", 0) if tcp else str(self._folder / _SOCKET))
        self._listener.listen()
        self._kept: list[socket.socket] = []
        self.loss: Loss = ""
        self.passes = self.at = 0
        self.commits = self.messages = 0
        self.silent = threading.Event()
        self.lost = 0
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def uri(self) -> str:
        """The database through the proxy."""
        if self._tcp:
            return f"postgresql://postgres@127.0.0.1:{self._listener.getsockname()[1]}/{self._database}?sslmode=disable"
        return f"postgresql://postgres@/{self._database}?host={quote(str(self._folder), safe='')}"

    @property
    def airflow_uri(self) -> str:
        """The database through the proxy, for AIRFLOW_CONN_*."""
        return f"postgresql://postgres:@localhost/{self._database}?host={quote(str(self._folder), safe='')}"

    def close(self) -> None:
        """Take no more clients, and cut off the server where it did not learn of a loss."""
        for one in (self._listener, *self._kept):
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                if self._tcp:
                    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                self._kept.append(client)
                if self.silent.is_set():
                    continue
                server = socket.socket(socket.AF_UNIX)
                server.connect(self._server)
                self._kept.append(server)
                threading.Thread(target=self._pass, args=(client, server), daemon=True).start()

    def _pass(self, client: socket.socket, server: socket.socket) -> None:
        keep = False
        with suppress(OSError, ValueError):  # a socket that was closed meanwhile has no number
            while True:
                ready, _, _ = select.select([client, server], [], [])
                if self.silent.is_set():
                    return
                for source, sink in ((client, server), (server, client)):
                    if source not in ready:
                        continue
                    data = source.recv(65536)
                    if not data:
                        raise ConnectionError
                    if source is client and self._is_lost(data):
                        loss, self.loss = self.loss, ""
                        keep = self._lose(loss, data, client, server)
                        raise ConnectionError
                    sink.sendall(data)
        client.close()
        if not keep:
            server.close()

    def _is_lost(self, data: bytes) -> bool:
        """Count what a client sends, and say whether it is what will be lost."""
        self.messages += 1
        self.commits += _COMMIT in data
        here = self.messages == self.at if self.at else _COMMIT in data and self.commits > self.passes
        return bool(self.loss) and here

    def _lose(self, loss: Loss, data: bytes, client: socket.socket, server: socket.socket) -> bool:
        """Whether the server's side stays open."""
        self.lost += 1
        if loss == "answer":
            server.sendall(data)
            server.recv(65536)
        elif loss == "answer_not_awaited":
            server.sendall(data)
            client.close()
            server.recv(65536)
        return loss == "everything"
