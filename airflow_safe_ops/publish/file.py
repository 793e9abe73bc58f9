"""A receiver that takes files."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

from airflow_safe_ops.definition.publication import Found, Lookup, Send, not_sent
from airflow_safe_ops.errors import InvalidPublication


@dataclass(frozen=True)
class FileReceiver:
    """
    Writes one file a key: under a temporary name, then renamed, so that the receiver sees a whole file or none.

    :param folder: a folder that is there, or the URL of one, ``s3://partner/out``
    :param name: the file's name; ``{key}`` stands for the key, with ``/`` and other odd characters as ``%2F``.
        Default ``{key}.json``
    :param content: ``content(intent)`` makes the file's bytes; it must make the same ones each time. Default: the
        intent as JSON
    :param conn_id: connection of the object storage. Default None
    """

    folder: str
    name: str = "{key}.json"
    content: Callable[[Any], bytes] | None = field(default=None, repr=False)
    conn_id: str | None = None

    def __post_init__(self) -> None:
        if "{key}" not in self.name or "/" in self.name:
            raise InvalidPublication(f"name is {self.name!r}.", fix="Give a file's name that has {key}, without /.")

    @property
    def lookup(self) -> Lookup:
        """Look whether the file is there; the same if its bytes are."""
        return self._look_up

    @property
    def idempotent(self) -> bool:
        """A file's name is its key; there is no other."""
        return False

    @property
    def send(self) -> Send:
        """Write it."""
        return self._write

    def _look_up(self, key: str) -> Found | None:
        path = self._folder() / self._file(key)
        try:
            there = path.read_bytes()  # exists() takes what cannot be asked for what is not there
        except FileNotFoundError:
            return None
        return Found(same=lambda intent: there == self._bytes(intent), outcome=_told(path, len(there)))

    def _write(self, key: str, intent: Any, idempotency_key: str) -> dict[str, Any]:
        with not_sent(Exception):
            folder, name = self._folder(), self._file(key)
            part, content = folder / f".{name}.{idempotency_key}.part", self._bytes(intent)
            try:
                part.write_bytes(content)
            except Exception as error:
                with suppress(Exception):
                    part.unlink()
                if isinstance(error, FileNotFoundError):
                    raise InvalidPublication(f"folder {self.folder!r} is not there.", fix="Make it.") from error
                raise
        part.rename(folder / name)  # its one publisher has just looked: there is no such file
        return _told(folder / name, len(content))

    def _folder(self) -> Any:
        from airflow.sdk import ObjectStoragePath

        url = self.folder if "://" in self.folder else f"file://{self.folder}"
        return ObjectStoragePath(url, conn_id=self.conn_id)

    def _file(self, key: str) -> str:
        return self.name.replace("{key}", quote(key, safe="@+=,"))

    def _bytes(self, intent: Any) -> bytes:
        if self.content is not None:
            return self.content(intent)
        return (json.dumps(intent, sort_keys=True, ensure_ascii=False, indent=1) + "\n").encode()


def _told(path: Any, size: int) -> dict[str, Any]:
    return {"file": str(path), "bytes": size}
