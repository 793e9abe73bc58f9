"""
Holding a writer back at a known moment: the demo's kill and its overlap do not depend on luck.

The DAGs know nothing of it. A session of the demo's own takes a lock that the next write has to wait for, as a
careless ``ALTER TABLE`` or a long report of somebody else would.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Self

from airflow_safe_ops.demo.flights import APPEND
from airflow_safe_ops.demo.folder import DemoError

if TYPE_CHECKING:
    from datetime import date

    import psycopg

_WAITING = (
    "SELECT count(*) FROM pg_catalog.pg_stat_activity "
    "WHERE datname = current_database() AND backend_type = 'client backend' AND wait_event_type = 'Lock' AND pid <> %s"
)
_PATIENCE = 120.0


class Gate:
    """
    A lock on a target that stops its writers until it is opened.

    :param uri: the warehouse.
    """

    def __init__(self, uri: str) -> None:
        import psycopg

        self._lock: psycopg.Connection[tuple[Any, ...]] = psycopg.connect(uri)
        self._look: psycopg.Connection[tuple[Any, ...]] = psycopg.connect(uri, autocommit=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._lock.close()
        self._look.close()

    def close(self, table: str) -> None:
        """Stop every writer of the table before its next transaction writes; readers pass."""
        self._lock.execute(f"LOCK TABLE {table} IN SHARE MODE".encode())

    def open(self) -> None:
        """Let the writers go on."""
        self._lock.rollback()

    def wait_for_writers(self, count: int = 1) -> None:
        """
        Return when so many sessions wait for a lock.

        :raises DemoError: they do not come.
        """
        until = time.monotonic() + _PATIENCE
        while time.monotonic() < until:
            row = self._look.execute(_WAITING, (self._lock.info.backend_pid,)).fetchone()
            if row and row[0] >= count:
                return
            time.sleep(0.01)
        raise DemoError(f"{count} writing session(s) were expected within {_PATIENCE:.0f} s and did not come.")

    def set_trap(self, table: str, day: date) -> None:
        """Before a run starts: make sure that it is caught while it writes."""
        if table == APPEND:
            self.close(table)
        else:
            last = f"SELECT 1 FROM {table} WHERE flight_date = %s ORDER BY ctid DESC LIMIT 1 FOR UPDATE"
            self._lock.execute(last.encode(), (day,))

    def wait_for_catch(self, table: str) -> None:
        """
        Return when the run stands still with a part of its work done.

        The safe twin deletes the day and waits at the day's last row, which we hold. The appending DAG commits in
        batches: it gets through with one and is stopped in the next, since our second request for the lock queues
        behind its first transaction and before its second.
        """
        self.wait_for_writers()
        if table == APPEND:
            self.open()
            self.close(table)
            self.wait_for_writers()
