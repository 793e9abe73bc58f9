"""What a database has to say for itself, and how a dialect is found."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from importlib import import_module
from typing import Any, ClassVar, Protocol

from airflow_safe_ops.definition.scope import Scope, ValueScope
from airflow_safe_ops.definition.target import Column, Table
from airflow_safe_ops.errors import SafeOpsError, UnsupportedConnection
from airflow_safe_ops.plan.load_sql import LoadSql
from airflow_safe_ops.plan.model import Executor, Statement
from airflow_safe_ops.sql.ledger import LedgerSql

_REGISTRY = {
    "postgresql": "airflow_safe_ops.sql.postgres:Postgres",
}


@dataclass(frozen=True)
class Capabilities:
    """
    What a database can do; a plan asks these, never the database's name.

    :param multi_statement_transaction: several statements commit or vanish together.
    :param transactional_ddl: DDL is part of the transaction.
    :param row_locks: a row can be locked and waited for.
    :param record_hash: a whole record can be hashed cheaply.
    """

    multi_statement_transaction: bool
    transactional_ddl: bool
    row_locks: bool
    record_hash: bool


@dataclass(frozen=True)
class Server:
    """The server as the connection sees it."""

    now: datetime
    version: str
    read_only: bool


@dataclass(frozen=True)
class Limits:
    """
    What a transaction may take, in seconds; None is no limit.

    :param statement: the longest statement.
    :param lock: the longest wait for a lock.
    :param label: who runs it, as the database shows it.
    """

    statement: float | None = None
    lock: float | None = None
    label: str = "safe_ops"


class Connection(Protocol):
    """A DB-API connection."""

    def cursor(self) -> Any:
        """A new cursor."""

    def commit(self) -> None:
        """Commit."""

    def rollback(self) -> None:
        """Roll back."""

    def close(self) -> None:
        """Close."""


class Dialect(ABC):
    """How one database does it. ``load`` and ``ledger`` hold its statements."""

    name: ClassVar[str]
    capabilities: ClassVar[Capabilities]
    load: LoadSql
    ledger: LedgerSql

    @abstractmethod
    def compile(self, statement: Statement, comment: str) -> tuple[str, Any]:
        """The text and the values as the driver takes them; None where there are no values."""

    @abstractmethod
    def prepare(self, connection: Any) -> None:
        """Make a connection of the user's hook behave: plain tuples, no state that outlives a transaction."""

    @abstractmethod
    def cancel(self, connection: Any) -> None:
        """Stop the statement that another thread runs on the connection; returns within seconds."""

    @abstractmethod
    def begin(self, limits: Limits) -> Sequence[Statement]:
        """The first statements of a transaction: its isolation and limits, none of which outlive it."""

    @abstractmethod
    def without_time_limit(self) -> Statement:
        """This transaction may stay open for as long as somebody else works, whatever the server's limit is."""

    @abstractmethod
    def savepoint(self, *, reads_only: bool) -> Sequence[Statement]:
        """Begin a part of a transaction that can be undone alone, or that may not write."""

    @abstractmethod
    def release(self) -> Sequence[Statement]:
        """Keep that part."""

    @abstractmethod
    def undo(self) -> Sequence[Statement]:
        """Undo that part."""

    @abstractmethod
    def sqlstate(self, error: BaseException) -> str:
        """The five letters of an error that the database raised; empty for any other error."""

    @abstractmethod
    def is_lost(self, error: BaseException) -> bool:
        """Whether the driver's error means that the connection is gone."""

    @abstractmethod
    def is_lock_timeout(self, error: SafeOpsError) -> bool:
        """Whether a translated error means that a lock was not given in time."""

    @abstractmethod
    def is_deadlock(self, error: SafeOpsError) -> bool:
        """Whether a translated error means that the server broke a deadlock."""

    @abstractmethod
    def broken_constraint(self, error: SafeOpsError) -> str | None:
        """The unique constraint that a translated error says was broken."""

    @abstractmethod
    def translate(self, error: BaseException, doing: str, *, author_sql: bool) -> SafeOpsError:
        """What an error of the driver means."""

    @abstractmethod
    def server(self, executor: Executor) -> Server:
        """Clock, version and state of the server."""

    @abstractmethod
    def describe(self, executor: Executor, name: str) -> Table:
        """What the catalog says of a target."""

    @abstractmethod
    def query_columns(self, executor: Executor, query: Statement) -> tuple[Column, ...]:
        """Names and types of what the author's query returns, without running it."""

    @abstractmethod
    def value_scope(self, executor: Executor, table: Table, values: Sequence[tuple[str, Any]]) -> ValueScope:
        """The values as the columns' types write them."""

    @abstractmethod
    def moved_scopes(self, executor: Executor, scope: Scope, query: Statement) -> tuple[Scope, ...]:
        """Where moved keys stand, as scopes that can be claimed."""


def dialect_for(name: str, ledger_schema: str = "safe_ops") -> Dialect:
    """
    The dialect of a hook's ``dialect_name``.

    :raises UnsupportedConnection: there is none.
    """
    if name not in _REGISTRY:
        raise UnsupportedConnection(
            f"There is no dialect for {name!r} connections.", fix=f"There is one for: {', '.join(_REGISTRY)}."
        )
    module, _, attribute = _REGISTRY[name].partition(":")
    dialect: Dialect = getattr(import_module(module), attribute)(ledger_schema)
    return dialect
