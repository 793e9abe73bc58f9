"""Making the ledger, once, whoever comes first."""

from __future__ import annotations

import random
import time
from collections.abc import Callable

from airflow_safe_ops.errors import ClaimTooContended, LedgerDenied, OutdatedLedger, SafeOpsError, SecondLedger
from airflow_safe_ops.plan.model import Database, Executor
from airflow_safe_ops.sql.ledger import LedgerSql
from airflow_safe_ops.sql.ledger_tables import MIGRATIONS

# Two sessions that make one schema or table at once, or one takes it back: the other gets one of these and looks again.
_RACES = ("23505", "42P06", "42P07", "XX000", "40001", "40P01", "42710", "42P01", "3F000")
_TRIES = 20
SqlState = Callable[[BaseException], str]


def ledger_version(executor: Executor, sql: LedgerSql) -> int:
    """
    The ledger's newest migration; 0 where there is none.

    :raises SecondLedger: the database has a ledger in another schema.
    """
    schemas = [row[0] for row in executor.run(sql.where_is_ledger()).rows]
    others = [schema for schema in schemas if schema != sql.schema]
    if others:
        raise SecondLedger(
            f"This database has a ledger in schema {others[0]!r}; the setting says {sql.schema!r}.",
            schema=others[0],
        )
    return int(executor.run(sql.version()).rows[0][0]) if schemas else 0


def is_ledger_there(executor: Executor, sql: LedgerSql) -> bool:
    """
    Whether there is a ledger that can be read.

    :raises OutdatedLedger: an older version of the package made it.
    :raises SecondLedger: the database has a ledger in another schema.
    """
    version, newest = ledger_version(executor, sql), MIGRATIONS[-1].number
    if 0 < version < newest:
        raise OutdatedLedger(f"The ledger in schema {sql.schema!r} is at migration {version}; {newest} are due.")
    return version > 0


def init_ledger(database: Database, sql: LedgerSql, sqlstate: SqlState) -> int:
    """
    Make the ledger or bring it up to date, in transactions of its own; harmless when it is there.

    Migrations only add, so a version of the package that knows fewer of them works beside one that knows more.

    :return: how many migrations were applied.
    :raises LedgerDenied: the login may not.
    :raises SecondLedger: the database has a ledger in another schema.
    """
    for attempt in range(_TRIES):
        version = -1
        try:
            with database.transaction() as tx:
                version = ledger_version(tx, sql)
            if version >= MIGRATIONS[-1].number:
                return 0
            return _migrate(database, sql)
        except SafeOpsError as error:
            state = sqlstate(error.__cause__) if error.__cause__ else ""
            if state in ("42501", "25006"):
                raise _denied(sql.schema, version, error) from error
            if state not in _RACES or attempt == _TRIES - 1:
                raise
            time.sleep(0.05 * (attempt + 1))
        except _GaveWayError:
            time.sleep(random.uniform(0, 0.1 * (attempt + 1)))  # noqa: S311 - two that gave way must not meet again
    raise ClaimTooContended(f"The ledger in schema {sql.schema!r} was made {_TRIES} times beside another one.")


def _denied(schema: str, version: int, error: SafeOpsError) -> LedgerDenied:
    """
    What this login lacks.

    :param version: the ledger's version; 0 where there is none, -1 where it could not be read.
    """
    said = str(error.__cause__).strip().partition("\n")[0]
    what = {-1: "is there, and this login may not read it", 0: "is not there, and this login may not make it"}
    stands = what.get(version, f"is at migration {version}, and this login may not bring it up to date")
    return LedgerDenied(f"The ledger in schema {schema!r} {stands}: {said}.", schema=schema)


class _GaveWayError(Exception):
    """Two ledgers were made at once, and ours was taken back."""


def _migrate(database: Database, sql: LedgerSql) -> int:
    with database.transaction() as tx:
        schema_there = bool(tx.run(sql.schema_exists()).rows)
        for statement in sql.create_schema()[1 if schema_there else 0 :]:
            tx.run(statement)
    with database.transaction() as tx:
        tx.run(sql.lock_migrations())
        version = int(tx.run(sql.version()).rows[0][0])
        due = [migration for migration in MIGRATIONS if migration.number > version]
        for migration in due:
            for statement in sql.migrate(migration):
                tx.run(statement)
    if not version:
        _give_way(database, sql, with_schema=not schema_there)
    return len(due)


def _give_way(database: Database, sql: LedgerSql, *, with_schema: bool) -> None:
    """
    Take the ledger that was just made back where somebody made another one meanwhile.

    Each looks after its own commit, so of two at least one sees the other; nobody uses a ledger before that look.

    :raises _GaveWayError: it was taken back: look again.
    """
    with database.transaction() as tx:
        schemas = [row[0] for row in tx.run(sql.where_is_ledger()).rows]
        if schemas == [sql.schema]:
            return
        tx.run(sql.lock_migrations())
        if not tx.run(sql.any_target()).rows:
            for statement in sql.drop(with_schema=with_schema):
                tx.run(statement)
    raise _GaveWayError


def ledger_ddl(sql: LedgerSql) -> str:
    """Everything ``ledger init`` would execute on an empty database, for somebody else to run."""
    made = [statement for migration in MIGRATIONS for statement in sql.migrate(migration)[:-1]]
    text = [f"{statement};" for statement in (*sql.create_schema(), *made)]
    text += [sql.record_literally(migration) + ";" for migration in MIGRATIONS]
    return "\n".join(["BEGIN;", *text, "COMMIT;"])
