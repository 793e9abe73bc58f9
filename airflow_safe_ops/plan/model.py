"""Statements, steps and plans."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias

from airflow_safe_ops.definition.load import Load
from airflow_safe_ops.definition.scope import Scope
from airflow_safe_ops.definition.target import Column, Table
from airflow_safe_ops.errors import SafeOpsError

_MARK = "\x00"
_BIND = re.compile(f"{_MARK}([^{_MARK}]+){_MARK}")


def bind(name: str) -> str:
    """Where a value goes in a statement's text; no database accepts the mark itself, so nothing else can be it."""
    return f"{_MARK}{name}{_MARK}"


@dataclass(frozen=True)
class Statement:
    """
    One SQL statement with its values, independent of a driver's placeholder style.

    :param text: the SQL, with :func:`bind` marks where values go.
    :param binds: the values by name; there may be more than the text uses.
    """

    text: str
    binds: Mapping[str, Any] = field(default_factory=dict)

    def pieces(self) -> Iterator[tuple[str, str | None]]:
        """Each stretch of SQL with the name of the value that follows it."""
        parts = _BIND.split(self.text)
        for at in range(0, len(parts), 2):
            yield parts[at], parts[at + 1] if at + 1 < len(parts) else None

    @property
    def used(self) -> dict[str, Any]:
        """The values that the text uses."""
        return {name: self.binds[name] for _, name in self.pieces() if name is not None}

    def __str__(self) -> str:
        return "".join(sql + (f":{name}" if name else "") for sql, name in self.pieces())


@dataclass(frozen=True)
class Result:
    """What the database answered: rows with their column names, or the number of rows it changed."""

    rows: tuple[tuple[Any, ...], ...] = ()
    columns: tuple[str, ...] = ()
    rowcount: int = -1
    types: tuple[Any, ...] = ()

    @property
    def named(self) -> list[dict[str, Any]]:
        """The rows as dicts."""
        return [dict(zip(self.columns, row, strict=True)) for row in self.rows]


class Executor(Protocol):
    """One open transaction on one connection."""

    def run(self, statement: Statement) -> Result:
        """Execute one statement."""


class Database(Protocol):
    """Where transactions come from, one at a time."""

    def transaction(self, *, lock: float | None = None, waits: bool = False) -> AbstractContextManager[Executor]:
        """
        A transaction: committed at the end of the block, rolled back if it raises.

        :param lock: longest wait for a lock, in seconds.
        :param waits: it is there to wait.
        """


Facts: TypeAlias = dict[str, Any]
Samples: TypeAlias = list[dict[str, Any]]


@dataclass(frozen=True)
class Refusal:
    """
    A decision over the facts.

    :param refuses: the error it may decide for; a plan says so beforehand.
    :param decide: the error, or None.
    """

    refuses: type[SafeOpsError]
    decide: Callable[[Facts, Samples], SafeOpsError | None]

    def __call__(self, facts: Facts, samples: Samples) -> SafeOpsError | None:
        """Decide."""
        return self.decide(facts, samples)


@dataclass(frozen=True)
class Step:
    """
    One step of a plan.

    :param name: its stable name, ``stage.fill``.
    :param what: one phrase for people.
    :param statement: what is executed; None for a step that the runner does itself (ledger, commit).
    :param fact: the fact that the statement's row count becomes. A query's single row becomes one fact a column.
    :param refusals: decisions over the facts so far; the first error refuses the load.
    :param sample: a query for rows to show with a refusal.
    :param reads_only: it holds SQL of the author's: the server refuses any write in it.
    :param violation: the step asks by a constraint: breaking it is no fault of the statement but the fact
        of that name, made true.
    :param asks: steps that find out why a unique index refused this one; they cost nothing where none did.
    """

    name: str
    what: str
    statement: Statement | None = None
    fact: str | None = None
    refusals: tuple[Refusal, ...] = ()
    sample: Statement | None = None
    reads_only: bool = False
    violation: str | None = None
    asks: tuple[Step, ...] = ()

    @property
    def refuses(self) -> tuple[type[SafeOpsError], ...]:
        """What it can refuse the load for."""
        return tuple(refusal.refuses for step in (self, *self.asks) for refusal in step.refusals)


@dataclass(frozen=True)
class Recorded:
    """
    One partition as the ledger knows it.

    :param key: what names it in the ledger.
    :param state: ``published``, ``adopted``, ``missing`` (it was, and is not valid any more), ``unconfirmed`` (a writer
        that is not ours began, and did not end well).
    :param row_count: None where a load of an overlapping partition wrote a part of it since.
    :param source_slice: the slice of the source that its rows come from, where only that one was appended.
    """

    key: str
    scope: Scope
    state: str = "published"
    row_count: int | None = None
    checksum: str | None = None
    checksum_of: str | None = None
    source_slice: str | None = None

    @property
    def content(self) -> Facts:
        """What can be compared with a later load."""
        return {"row_count": self.row_count, "checksum": self.checksum, "checksum_of": self.checksum_of}


@dataclass(frozen=True)
class LoadTask:
    """
    Everything that decides one load of one partition, before anything is written.

    :param load: what the author declared.
    :param table: what the catalog says of the target.
    :param scope: the rows this run owns.
    :param columns: the target's columns that the query fills, in the query's order.
    :param query: the author's SELECT, its names bound.
    :param binds: the values of those names.
    :param attempt_id: names the stage and the ledger's rows.
    :param new_columns: columns that the query has and the target will get.
    :param drops_columns: the query has columns that are not loaded.
    """

    load: Load
    table: Table
    scope: Scope
    columns: tuple[Column, ...]
    query: str
    binds: Mapping[str, Any]
    attempt_id: str
    new_columns: tuple[Column, ...] = ()
    drops_columns: bool = False

    @property
    def key(self) -> str:
        """What names the load's rows in the ledger: the partition, and the slice of the source where there is one."""
        return self.scope.key if self.load.source_slice is None else f"{self.scope.key} [{self.load.source_slice}]"

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the columns that are written, in the query's order."""
        return tuple(column.name for column in self.columns)

    @property
    def hashed(self) -> tuple[Column, ...]:
        """The columns that the checksum covers, in the target's order; empty when there is none."""
        if self.load.checksum == "off":
            return ()
        wanted = self.load.key if self.load.checksum == "key" else self.names
        return tuple(c for c in self.table.columns + self.new_columns if c.name in wanted and c.hashable)


@dataclass(frozen=True)
class Plan:
    """The ordered steps of one load of one partition."""

    task: LoadTask
    steps: tuple[Step, ...]
    notes: tuple[str, ...] = ()
