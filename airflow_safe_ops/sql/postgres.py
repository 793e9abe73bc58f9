"""PostgreSQL 15 and later, by psycopg 3 or psycopg 2."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any, ClassVar
from uuid import UUID

from airflow_safe_ops.definition.checks import Check
from airflow_safe_ops.definition.grain import midnight, zone
from airflow_safe_ops.definition.scope import Scope, TableScope, TimeScope, ValueScope
from airflow_safe_ops.definition.target import Column, Table
from airflow_safe_ops.errors import (
    InvalidPartition,
    LedgerDenied,
    LoadCancelled,
    NotOneSelect,
    QueryRefused,
    ReadOnlyServer,
    ReferencedRows,
    SafeOpsError,
    StatementFailed,
    StatementRefused,
    UnsupportedPartitionColumn,
    UnsupportedServer,
)
from airflow_safe_ops.failures.classify import classify
from airflow_safe_ops.plan.load import CLAIM, HOLD, PUBLISH
from airflow_safe_ops.plan.model import Executor, LoadTask, Statement, bind
from airflow_safe_ops.plan.publication import INTENT, LOCK
from airflow_safe_ops.sql import append, checks, replace, stage, upsert
from airflow_safe_ops.sql.dialect import Capabilities, Dialect, Limits, Server
from airflow_safe_ops.sql.ledger import LedgerSql
from airflow_safe_ops.sql.postgres_catalog import describe
from airflow_safe_ops.sql.text import as_text, owned_binds, owned_rows, quoted, stage_name, typed_values

SAVEPOINT = "safe_ops_part"
_LONGEST = 2**31 - 1  # milliseconds: the server takes no more
_TERMINAL_CLASSES = ("22", "23", "42")
_LEDGER_STEPS = ("ledger", CLAIM, HOLD, PUBLISH, INTENT, LOCK)
# A value is written as the same text in every session: drivers read it, and partitions are named by it.
_SAME_TEXT = ("SET LOCAL datestyle = 'ISO'", "SET LOCAL intervalstyle = 'postgres'", "SET LOCAL extra_float_digits = 1")


class Postgres(Dialect):
    """One transaction holds stage, data and ledger; readers see the old rows or the new ones."""

    name: ClassVar[str] = "postgresql"
    capabilities: ClassVar[Capabilities] = Capabilities(
        multi_statement_transaction=True, transactional_ddl=True, row_locks=True, record_hash=True
    )

    def __init__(self, ledger_schema: str = "safe_ops") -> None:
        self.load = PostgresLoadSql()
        self.ledger = LedgerSql(ledger_schema)

    def compile(self, statement: Statement, comment: str) -> tuple[str, Any]:
        """``%(name)s``, with every other percent sign doubled; untouched where nothing is bound."""
        used = statement.used
        if not used:
            return comment + statement.text, None
        text = "".join(sql.replace("%", "%%") + (f"%({name})s" if name else "") for sql, name in statement.pieces())
        return comment.replace("%", "%%") + text, used

    def prepare(self, connection: Any) -> None:
        """Tuples and transactions whatever the connection's extra asks for; no server-side prepared statements."""
        connection.autocommit = False
        if hasattr(connection, "prepare_threshold"):
            connection.prepare_threshold = None
            # The connection's own driver, which is imported by whoever made it.
            connection.row_factory = sys.modules["psycopg.rows"].tuple_row
        else:
            connection.cursor_factory = None

    def cancel(self, connection: Any) -> None:
        """By a second connection of the driver's own; the statement then ends with SQLSTATE 57014."""
        if hasattr(connection, "cancel_safe"):
            connection.cancel_safe(timeout=2.0)
        else:
            connection.cancel()

    def begin(self, limits: Limits) -> Sequence[Statement]:
        """
        READ COMMITTED whatever the server's default, so that a wait for a claim sees what the owner committed.

        The server looks every second whether the client still lives, and drops one that stalls for a minute.
        """
        seconds = {"statement_timeout": limits.statement, "lock_timeout": limits.lock}
        sets = [
            f"SET LOCAL {name} = {min(max(1, int(s * 1000)), _LONGEST)}" for name, s in seconds.items() if s is not None
        ]
        label = limits.label.replace("'", "''")[:63]
        return [
            Statement("SET TRANSACTION ISOLATION LEVEL READ COMMITTED"),
            Statement(
                "; ".join(
                    [
                        "SET LOCAL client_connection_check_interval = 1000",
                        "SET LOCAL idle_in_transaction_session_timeout = 60000",
                        f"SET LOCAL application_name = '{label}'",
                        *_SAME_TEXT,
                        *sets,
                    ]
                )
            ),
        ]

    def without_time_limit(self) -> Statement:
        """``transaction_timeout``, which came with PostgreSQL 17."""
        return Statement(
            "SELECT pg_catalog.set_config(name, '0', true) FROM pg_catalog.pg_settings "
            "WHERE name = 'transaction_timeout'"
        )

    def savepoint(self, *, reads_only: bool) -> Sequence[Statement]:
        """``transaction_read_only`` goes back to what it was with the savepoint."""
        begin = [Statement(f"SAVEPOINT {SAVEPOINT}")]
        return [*begin, Statement("SET LOCAL transaction_read_only = on")] if reads_only else begin

    def release(self) -> Sequence[Statement]:
        """Keep what was done since the savepoint."""
        return [Statement(f"RELEASE SAVEPOINT {SAVEPOINT}")]

    def undo(self) -> Sequence[Statement]:
        """Undo what was done since the savepoint."""
        return [Statement(f"ROLLBACK TO SAVEPOINT {SAVEPOINT}"), *self.release()]

    def sqlstate(self, error: BaseException) -> str:
        """SQLSTATE of psycopg 3 (``sqlstate``) or psycopg 2 (``pgcode``)."""
        return str(getattr(error, "sqlstate", None) or getattr(error, "pgcode", None) or "")

    def is_lost(self, error: BaseException) -> bool:
        """Connection exceptions, a server that shuts down, and a session that the server ended."""
        state = self.sqlstate(error)
        return state[:2] == "08" or state in ("57P01", "57P02", "57P03", "25P03")

    def is_lock_timeout(self, error: SafeOpsError) -> bool:
        """``lock_not_available``."""
        return error.facts.get("sqlstate") == "55P03"

    def is_deadlock(self, error: SafeOpsError) -> bool:
        """``deadlock_detected``."""
        return error.facts.get("sqlstate") == "40P01"

    def broken_constraint(self, error: SafeOpsError) -> str | None:
        """``unique_violation``, by the name that both drivers give."""
        if error.facts.get("sqlstate") != "23505":
            return None
        return getattr(getattr(error.__cause__, "diag", None), "constraint_name", None)

    def translate(self, error: BaseException, doing: str, *, author_sql: bool) -> SafeOpsError:
        """A refusal where the error has a meaning of its own, else StatementFailed with the server's words."""
        state = self.sqlstate(error)
        said = str(error).strip().partition("\n")[0]
        if state == "57014" and "user request" in said:
            return LoadCancelled(f"The statement was cancelled ({doing}).", sqlstate=state)
        if author_sql and (error_of_query := _query_error(state, said)):
            return error_of_query
        if state == "42501" and doing in _LEDGER_STEPS:
            return LedgerDenied(f"This login may not write the ledger ({doing}): {said}.", sqlstate=state)
        if state == "25006":
            return ReadOnlyServer(f"The server refuses to write ({doing}): {said}.", sqlstate=state)
        if state in ("23001", "23503") and doing in (
            "target.delete",
            "target.delete_moved",
            "target.constraints",
        ):
            return ReferencedRows(f"The partition's rows are referenced: {said}.", sqlstate=state)
        kind = StatementRefused if state[:2] in _TERMINAL_CLASSES else StatementFailed
        advice = classify(error).advice
        return kind(f"{doing}: {said} (SQLSTATE {state or 'none'}).", fix=advice, sqlstate=state, step=doing)

    def server(self, executor: Executor) -> Server:
        """Clock, version and state of the server."""
        row = executor.run(
            Statement(
                "SELECT pg_catalog.clock_timestamp(), version(), current_setting('server_version'), "
                "current_setting('server_version_num')::int, "
                "pg_is_in_recovery() OR current_setting('transaction_read_only') = 'on'"
            )
        ).rows[0]
        if row[3] < 150000:
            raise UnsupportedServer(
                f"The server is {row[1].partition(',')[0]}.",
                why="Loads are proven on PostgreSQL 15 and later.",
            )
        return Server(now=row[0], version=row[2].split()[0], read_only=row[4])

    def describe(self, executor: Executor, name: str) -> Table:
        """What the catalog says of a target."""
        return describe(executor, name)

    def query_columns(self, executor: Executor, query: Statement) -> tuple[Column, ...]:
        """The query as a subquery of which no row is asked; the catalog names the types."""
        result = executor.run(Statement(f"SELECT * FROM (\n{query.text}\n) AS q LIMIT 0", query.binds))
        oids = [int(oid) for oid in result.types]
        named = executor.run(
            Statement(
                f"SELECT u.oid::int, format_type(u.oid, -1) FROM unnest(CAST({bind('oids')} AS oid[])) AS u(oid)",
                {"oids": "{" + ",".join(map(str, oids)) + "}"},
            )
        )
        types = {row[0]: row[1] for row in named.rows}
        return tuple(Column(name, types[oid]) for name, oid in zip(result.columns, oids, strict=True))

    def value_scope(self, executor: Executor, table: Table, values: Sequence[tuple[str, Any]]) -> ValueScope:
        """Each value cast to its column's type and back to text, by the server; one that the cast cuts is refused."""
        written: dict[str, str] = {}
        for name, value in values:
            if value is None:
                continue
            column = table.column(name, "partition")
            if not column.comparable:
                raise UnsupportedPartitionColumn(
                    f"Column {name!r} is {column.type}, whose values can be written in more than one way.",
                    why="Two loads of one value could not see that they overlap.",
                    fix="Use a column of numbers, text, dates, times, booleans, UUIDs or an enum.",
                )
            typed, uncut = f"CAST({bind('value')} AS {column.type})", _uncut(column.type)
            fits = "true" if uncut == column.type else f"{typed} = CAST({bind('uncut')} AS {uncut})"
            binds = dict.fromkeys(("value", "uncut"), _as_text(value))
            text, is_whole = executor.run(Statement(f"SELECT {as_text(column, typed)}, {fits}", binds)).rows[0]
            if not is_whole:
                raise InvalidPartition(
                    f"{name}={value!r} does not fit {column.type}.",
                    why=f"It would be cut to {text!r}, which names other rows.",
                    fix="Give the value as the column holds it.",
                )
            written[name] = text
        return ValueScope(tuple((name, written.get(name)) for name, _ in values))

    def moved_scopes(self, executor: Executor, scope: Scope, query: Statement) -> tuple[Scope, ...]:
        """Days of a time partition, values of a value partition; the whole table where they are too many."""
        rows = executor.run(query).rows
        if len(rows) >= stage.PARTS or any(row[0] is None for row in rows):
            return (TableScope(),)
        if isinstance(scope, TimeScope):
            try:
                return tuple(_day(scope, date.fromisoformat(row[0])) for row in rows)
            except (ValueError, OverflowError):  # infinity, or a year that Python does not have
                return (TableScope(),)
        return tuple(ValueScope(tuple(zip(scope.columns, row, strict=False))) for row in rows)


def _day(scope: TimeScope, day: date) -> TimeScope:
    bounds: list[date | datetime] = [day, day + timedelta(days=1)]
    if scope.kind == "timestamp":
        bounds = [datetime(b.year, b.month, b.day) for b in bounds]
    elif scope.kind == "timestamptz":
        bounds = [midnight(b, zone(scope.timezone)) for b in bounds]
    return TimeScope(scope.column, scope.kind, bounds[0], bounds[1], scope.timezone)


def _query_error(state: str, said: str) -> SafeOpsError | None:
    if state in ("25001", "25006", "0A000"):
        return NotOneSelect(f"The query does not only read: {said}.", sqlstate=state)
    if state[:2] == "42":
        return QueryRefused(f"The database refuses the query: {said}.", sqlstate=state)
    return None


def _uncut(type_: str) -> str:
    """The type that takes a whole value where this one cuts or rounds it in a cast."""
    bare = re.sub(r"\(\d+(,-?\d+)?\)", "", type_)
    return {"character": "bpchar", "bit": "bit varying", "date": "timestamp"}.get(bare, bare)


def _as_text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, date | time):
        return value.isoformat()
    if isinstance(value, str | int | float | Decimal | UUID):
        return str(value)
    raise InvalidPartition(f"{value!r} is no text, number, date, time, boolean or UUID.", fix="Give it as text.")


def _sum_of_hashes(columns: Sequence[Column]) -> str:
    """A value whose equality is looser than its bytes, or whose type knows no hash, is hashed as its text."""
    if not columns:
        return "NULL::text"
    values = [
        f'CAST({quoted(c.name)} AS text) COLLATE "C"' if c.as_bytes or not c.hashable else quoted(c.name)
        for c in columns
    ]
    record = f"hash_record_extended(ROW({', '.join(values)}), 0)"
    return f"sum(hash_numeric_extended({record}, 0))::text"


class PostgresLoadSql:
    """The statements of a load on PostgreSQL; see :class:`~airflow_safe_ops.plan.load.LoadSql`."""

    create_stage = staticmethod(stage.create)
    fill_stage = staticmethod(stage.fill)
    keep_latest = staticmethod(stage.keep_latest)
    tied_keys = staticmethod(stage.tied_keys)
    tied_sample = staticmethod(stage.tied_sample)
    look_at_stage = staticmethod(stage.look)
    odd_rows = staticmethod(stage.odd_rows)
    unique_stage = staticmethod(stage.unique)
    duplicate_sample = staticmethod(stage.duplicate_sample)
    analyze_stage = staticmethod(stage.analyze)
    moved_keys = staticmethod(stage.moved_keys)
    moved_sample = staticmethod(stage.moved_sample)
    delete_moved = staticmethod(stage.delete_moved)
    delete_partition = staticmethod(replace.delete_partition)
    insert_stage = staticmethod(replace.insert_stage)
    delete_unmatched = staticmethod(upsert.delete_unmatched)
    update_changed = staticmethod(upsert.update_changed)
    insert_missing = staticmethod(upsert.insert_missing)
    arrived = staticmethod(upsert.arrived)
    count_copies = staticmethod(upsert.count_copies)
    append_stage = staticmethod(append.append)

    def lock_table(self, task: LoadTask) -> Statement:
        """Readers go on reading; every other writer waits."""
        return Statement(f"LOCK TABLE {task.table.name} IN SHARE ROW EXCLUSIVE MODE")

    def add_column(self, task: LoadTask, name: str, type_: str) -> Statement:
        """Readers wait for the rest of this transaction."""
        return Statement(f"ALTER TABLE {task.table.name} ADD COLUMN IF NOT EXISTS {quoted(name)} {type_}")

    def look_at_target(self, task: LoadTask, unknown: Sequence[Scope]) -> Statement:
        """A merge needs the number of rows to know what must be there afterwards; a replacement only whether any."""
        return stage.look_at_target(task, unknown, count=task.load.keeps_rows)

    def aggregates(self, task: LoadTask, named: Sequence[tuple[str, Check]], staged: bool) -> Sequence[Statement]:
        """Over the stage before publication, over the partition after."""
        rows = f"SELECT * FROM {stage_name(task)}"
        if not staged:
            rows = f"SELECT * {owned_rows(task)}"
        queries = checks.queries(named, rows, {} if staged else owned_binds(task), task.binds)
        return [Statement(typed_values(query.text, task.table, task.scope), query.binds) for query in queries]

    def look_after(self, task: LoadTask) -> Statement:
        """
        Rows and checksum of the partition.

        The checksum is the SUM of each row's 64-bit hash: the order of rows does not matter, and a doubled row
        changes it (in an XOR it would cancel). A record's hash is 31 times the one before plus the next column's,
        so a sum of it would not see two values change places: it is hashed once more.
        """
        return stage.look_after(task, _sum_of_hashes(task.hashed))

    def look_for_appended(self, task: LoadTask) -> Statement:
        """Two sets of rows are the same if their numbers and the sums of their hashes are."""
        return append.look(task, _sum_of_hashes(task.columns))

    def defer_constraints(self) -> Statement:
        """RESTRICT and non-deferrable constraints are not moved by it."""
        return Statement("SET CONSTRAINTS ALL DEFERRED")

    def settle_constraints(self) -> Statement:
        """Raise now what COMMIT would raise."""
        return Statement("SET CONSTRAINTS ALL IMMEDIATE")
