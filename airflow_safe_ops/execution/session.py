"""
One connection whose statements run on a thread of their own.

psycopg 2 handles a signal only after the statement; here the main thread waits where signals get through, so a
task that is killed or timed out cancels its statement at once.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from typing import Any, TypeVar

from airflow_safe_ops.errors import LoadCancelled, SafeOpsError, StatementFailed
from airflow_safe_ops.execution.worker import Worker
from airflow_safe_ops.plan.model import Result, Statement
from airflow_safe_ops.sql.dialect import Connection, Dialect, Limits

log = logging.getLogger(__name__)
T = TypeVar("T")
_LAST_WORDS = _CANCEL = 2.5
_ROLLBACK = 5.0


class ConnectionLostError(Exception):
    """The connection broke: what the last statement did is not known."""


class Session:
    """
    One connection of the user's hook.

    :param connect: opens a connection; called on the worker thread.
    :param label: who runs it, as the database shows it (``application_name``).
    :param comment: who runs it in full, put before each statement.
    :param lock: longest wait for a lock, in seconds, where a transaction says nothing else; None is no limit.
    :param deadline: when all of it must be over, by ``time.monotonic()``; None without an execution timeout.
    """

    def __init__(
        self,
        connect: Callable[[], Connection],
        dialect: Dialect,
        *,
        label: str,
        comment: str,
        deadline: float | None = None,
        lock: float | None = None,
    ) -> None:
        self.dialect = dialect
        self._connect = connect
        self._label = label
        self._comment = comment
        self._deadline = deadline
        self._lock = lock
        self._worker = Worker("safe_ops")
        self._canceller = Worker("safe_ops_cancel")
        self._connection: Any = None
        self._cancelled = False
        self._patience: float | None = None
        self._is_silent = False
        self._doing = "connect"
        self._author_sql = False

    def open(self) -> None:
        """
        Connect.

        :raises StatementFailed: the server does not answer or refuses the login.
        """
        try:
            self._connection = self._wait(self._worker.submit(self._connect))
        except Exception as error:
            raise StatementFailed(f"connect: {str(error).strip().rstrip('.')}.", step="connect") from error
        self.dialect.prepare(self._connection)

    def run(self, statement: Statement) -> Result:
        """
        Execute one statement.

        :raises SafeOpsError: what the database's error means.
        """
        return self._call(lambda: self._execute(statement))

    @contextmanager
    def transaction(self, *, lock: float | None = None, waits: bool = False) -> Iterator[Session]:
        """
        A transaction: committed at the end of the block, rolled back if it raises.

        :param lock: longest wait for a lock, in seconds.
        :param waits: it is there to wait: the server's own statement_timeout does not cut the wait short.
        """
        before, statement = self._doing, self._left()
        lock = self._lock if lock is None else lock
        if waits and statement is None and lock is not None:
            statement = lock + _ROLLBACK
        try:
            for first in self.dialect.begin(Limits(statement, lock, self._label)):
                self.run(first)
            yield self
            self.doing("commit")
            self._call(self._connection.commit)
        except BaseException:
            self.rollback()
            raise
        finally:
            self.doing(before)

    @contextmanager
    def part(self, *, reads_only: bool = False) -> Iterator[None]:
        """A part of the transaction that can be undone alone; with ``reads_only`` the server refuses writes."""
        self._run_all(self.dialect.savepoint(reads_only=reads_only))
        self._author_sql = reads_only
        try:
            yield
        except SafeOpsError:
            self._author_sql = False
            with suppress(SafeOpsError, ConnectionLostError):
                self._run_all(self.dialect.undo())
            raise
        finally:
            self._author_sql = False
        self._run_all(self.dialect.release())

    def doing(self, step: str) -> None:
        """Name the step that the next statements belong to."""
        self._doing = step

    def rollback(self) -> None:
        """Roll back, whatever state the connection is in."""
        if self._is_silent:
            return
        try:
            self._worker.submit(self._connection.rollback).result(timeout=_ROLLBACK)
        except TimeoutError:
            self._is_silent = True
        except Exception:
            log.debug("rollback", exc_info=True)

    def cancel(self) -> None:
        """Stop the running statement and every later one; called from a signal handler or another thread."""
        self._cancelled = True
        self._interrupt()

    def allow_last_words(self) -> None:
        """After a cancel or time-out: let the failure be recorded, if the server answers within seconds."""
        self._cancelled = False
        self._patience = _LAST_WORDS

    def expect_answers_within(self, seconds: float | None) -> None:
        """A statement that takes longer means that the server is silent; None is no limit."""
        self._patience = seconds

    def close(self) -> None:
        """Close the connection without waiting for a statement that does not end."""
        if not self._is_silent:
            with suppress(Exception):
                self._worker.submit(self._connection.close).result(timeout=2)
        self._worker.stop()
        self._canceller.stop()

    def _run_all(self, statements: Sequence[Statement]) -> None:
        for statement in statements:
            self.run(statement)

    def _left(self) -> float | None:
        return None if self._deadline is None else max(1.0, self._deadline - time.monotonic())

    def _call(self, work: Callable[[], T]) -> T:
        if self._cancelled:
            raise LoadCancelled(f"The load was cancelled ({self._doing}).")
        if self._is_silent:
            raise ConnectionLostError(f"{self._doing}: the server is silent")
        try:
            return self._wait(self._worker.submit(work))
        except (SafeOpsError, ConnectionLostError):
            raise
        except Exception as error:
            if self._lost(error):
                said = str(error).strip().partition("\n")[0]
                raise ConnectionLostError(f"{self._doing}: {said}") from error
            if self._cancelled:
                raise LoadCancelled(f"The load was cancelled ({self._doing}).") from error
            raise self.dialect.translate(error, self._doing, author_sql=self._author_sql) from error

    def _wait(self, future: Future[T]) -> T:
        """Wait where signals get through; a timeout raised by one cancels the statement before it goes on."""
        try:
            return future.result(self._patience)
        except Exception as error:
            if future.done():
                raise
            if isinstance(error, TimeoutError):
                self._is_silent = True
                raise ConnectionLostError(f"{self._doing}: no answer within {self._patience} s") from error
            self._interrupt()
            raise
        except BaseException:
            self._interrupt()
            raise

    def _interrupt(self) -> None:
        """Not on this thread: where the network is silent, not every driver's cancel comes back."""
        if self._connection is not None:
            with suppress(Exception):
                self._canceller.submit(lambda: self.dialect.cancel(self._connection)).result(timeout=_CANCEL)

    def _lost(self, error: BaseException) -> bool:
        return bool(getattr(self._connection, "closed", False)) or self.dialect.is_lost(error)

    def _execute(self, statement: Statement) -> Result:
        text, values = self.dialect.compile(statement, self._comment)
        with self._connection.cursor() as cursor:
            cursor.execute(text, values) if values is not None else cursor.execute(text)
            if cursor.description is None:
                return Result(rowcount=cursor.rowcount)
            columns = tuple(column[0] for column in cursor.description)
            types = tuple(column[1] for column in cursor.description)
            return Result(tuple(map(tuple, cursor.fetchall())), columns, cursor.rowcount, types)


def harmless(text: str) -> str:
    """Text that can stand in an SQL comment."""
    return "".join(c if c.isalnum() or c in "._-:+" else "_" for c in text)
