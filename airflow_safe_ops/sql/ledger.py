"""The ledger's statements; written for databases with row locks and transactions over several statements."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from airflow_safe_ops.definition.identity import RunIdentity
from airflow_safe_ops.errors import InvalidArgument
from airflow_safe_ops.plan.model import Statement, bind
from airflow_safe_ops.sql.ledger_history import LedgerHistorySql
from airflow_safe_ops.sql.ledger_publication import PublicationSql
from airflow_safe_ops.sql.ledger_tables import Migration
from airflow_safe_ops.sql.text import quoted

_LONGEST_NAME = 63
ATTEMPT_FACTS = (
    "rows_read",
    "rows_deleted",
    "rows_inserted",
    "rows_updated",
    "rows_unchanged",
    "rows_moved",
    "rows_after",
    "changed",
    "checksum",
    "checksum_of",
    "seconds",
)


class LedgerSql:
    """
    The ledger's statements. Every table is named with its schema: nothing depends on a search path.

    :param schema: the ledger's schema, unquoted.
    """

    def __init__(self, schema: str) -> None:
        if not 0 < len(schema.encode()) <= _LONGEST_NAME:
            raise InvalidArgument(
                f"[safe_ops] ledger_schema is {schema!r}, which is no name of a schema.", fix="Use 1 to 63 bytes."
            )
        self.schema = schema
        self.history = LedgerHistorySql(schema)
        self.publications = PublicationSql(schema)
        self._s = quoted(schema)

    def _t(self, table: str) -> str:
        return f"{self._s}.safe_ops_{table}"

    # --- schema -------------------------------------------------------------------------------------------

    def where_is_ledger(self) -> Statement:
        """The schemas that hold a ledger."""
        return Statement(
            "SELECT n.nspname AS schema_name FROM pg_catalog.pg_class AS c "
            "JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace "
            "WHERE c.relname = 'safe_ops_target' AND c.relkind = 'r' ORDER BY n.nspname"
        )

    def version(self) -> Statement:
        """The newest migration that was applied."""
        return Statement(f"SELECT coalesce(max(number), 0) AS number FROM {self._t('schema')}")

    def create_schema(self) -> Sequence[Statement]:
        """The schema and its table of migrations."""
        return (
            Statement(f"CREATE SCHEMA IF NOT EXISTS {self._s}"),
            Statement(
                f"CREATE TABLE IF NOT EXISTS {self._t('schema')} (number integer PRIMARY KEY, name text NOT NULL, "
                "applied_at timestamptz NOT NULL DEFAULT pg_catalog.clock_timestamp(), "
                "applied_by text NOT NULL DEFAULT current_user)"
            ),
        )

    def schema_exists(self) -> Statement:
        """Whether the schema is there: making one that is needs a right that a plain login lacks."""
        return Statement(
            "SELECT 1 AS found FROM pg_catalog.pg_namespace WHERE nspname = " + bind("schema"),
            {"schema": self.schema},
        )

    def any_target(self) -> Statement:
        """A row if the ledger was used."""
        return Statement(f"SELECT 1 FROM {self._t('target')} UNION ALL SELECT 1 FROM {self._t('publication')} LIMIT 1")

    def drop(self, *, with_schema: bool) -> Sequence[Statement]:
        """
        Take an unused ledger away.

        :param with_schema: its schema too, unless other things stand in it.
        """
        tables = ", ".join(map(self._t, ("publication", "check", "partition", "claim", "attempt", "target", "schema")))
        schema = [Statement(f"DROP SCHEMA {self._s} RESTRICT")] if with_schema else []
        return (Statement(f"DROP TABLE {tables}"), *schema)

    def lock_migrations(self) -> Statement:
        """One migrator at a time."""
        return Statement(f"LOCK TABLE {self._t('schema')} IN SHARE ROW EXCLUSIVE MODE")

    def migrate(self, migration: Migration) -> Sequence[Statement]:
        """One migration and its number."""
        done = Statement(
            f"INSERT INTO {self._t('schema')} (number, name) VALUES ({bind('number')}, {bind('name')})",
            {"number": migration.number, "name": migration.name},
        )
        return (*(Statement(text.format(s=self._s)) for text in migration.statements), done)

    def record_literally(self, migration: Migration) -> str:
        """A migration's number as text that a person can run."""
        return f"INSERT INTO {self._t('schema')} (number, name) VALUES ({migration.number}, '{migration.name}')"

    # --- claims -------------------------------------------------------------------------------------------

    def add_target(self, identity: str) -> Statement:
        """The target's row, if it is not there."""
        return Statement(
            f"INSERT INTO {self._t('target')} (identity) VALUES ({bind('identity')}) ON CONFLICT DO NOTHING",
            {"identity": identity},
        )

    def find_target(self, identity: str) -> Statement:
        """The target's number."""
        return Statement(
            f"SELECT target_id FROM {self._t('target')} WHERE identity = {bind('identity')}",
            {"identity": identity},
        )

    def lock_target(self, identity: str) -> Statement:
        """Hold the target's row: one claimer at a time looks and decides."""
        found = self.find_target(identity)
        return Statement(f"{found.text} FOR UPDATE", found.binds)

    def next_ticket(self, target_id: int) -> Statement:
        """A place in the target's queue; called under the target's lock, so places follow the order of arrival."""
        return Statement(
            f"UPDATE {self._t('target')} SET last_ticket = last_ticket + 1 WHERE target_id = {bind('target_id')} "
            "RETURNING last_ticket",
            {"target_id": target_id},
        )

    def put_claim(self, values: Mapping[str, Any]) -> Statement:
        """Our row in the queue, or its new scopes."""
        names = ("ticket", "target_id", "attempt_id", "scopes", "held", "owner")
        return Statement(
            f"INSERT INTO {self._t('claim')} ({', '.join(names)}) VALUES ({', '.join(map(bind, names))}) "
            "ON CONFLICT (attempt_id) DO UPDATE SET scopes = excluded.scopes, held = excluded.held, "
            "ticket = excluded.ticket, touched_at = pg_catalog.clock_timestamp()",
            values,
        )

    def claims(self, target_id: int) -> Statement:
        """The target's queue, in its order."""
        return Statement(
            f"SELECT claim_id, ticket, attempt_id::text AS attempt_id, scopes, held, owner FROM {self._t('claim')} "
            f"WHERE target_id = {bind('target_id')} ORDER BY ticket",
            {"target_id": target_id},
        )

    def lock_claim(self, attempt_id: str, *, held: bool) -> Statement:
        """Hold our own claim's row; no row means that it was taken from us."""
        also = " AND held" if held else ""
        return Statement(
            f"SELECT claim_id FROM {self._t('claim')} WHERE attempt_id = CAST({bind('attempt_id')} AS uuid){also} "
            "FOR UPDATE",
            {"attempt_id": attempt_id},
        )

    def wait_for_claim(self, claim_id: int) -> Statement:
        """Wait until its owner's transaction ends; then see whether the row is still there, and how idle."""
        return Statement(
            f"SELECT extract(epoch FROM pg_catalog.clock_timestamp() - touched_at)::float8 AS idle "
            f"FROM {self._t('claim')} WHERE claim_id = {bind('claim_id')} FOR UPDATE",
            {"claim_id": claim_id},
        )

    def touch_claim(self, attempt_id: str) -> Statement:
        """We are alive: nobody behind us takes our place while we look again."""
        return Statement(
            f"UPDATE {self._t('claim')} SET touched_at = pg_catalog.clock_timestamp() "
            f"WHERE attempt_id = CAST({bind('attempt_id')} AS uuid)",
            {"attempt_id": attempt_id},
        )

    def delete_claim(self, claim_id: int) -> Statement:
        """Take a dead owner's claim away."""
        return Statement(f"DELETE FROM {self._t('claim')} WHERE claim_id = {bind('claim_id')}", {"claim_id": claim_id})

    def release_claim(self, attempt_id: str) -> Statement:
        """Give our own claim back."""
        return Statement(
            f"DELETE FROM {self._t('claim')} WHERE attempt_id = CAST({bind('attempt_id')} AS uuid)",
            {"attempt_id": attempt_id},
        )

    # --- attempts and partitions ----------------------------------------------------------------------------

    def start_attempt(self, values: Mapping[str, Any]) -> Statement:
        """The attempt as ``started``; again for the same attempt after it was fenced."""
        names = ", ".join(values)
        given = ", ".join(f"CAST({bind(n)} AS uuid)" if n == "attempt_id" else bind(n) for n in values)
        return Statement(
            f"INSERT INTO {self._t('attempt')} ({names}, state) VALUES ({given}, 'started') "
            "ON CONFLICT (attempt_id) DO NOTHING",
            values,
        )

    def end_attempt(self, attempt_id: str, state: str, values: Mapping[str, Any]) -> Statement:
        """
        The attempt in its last state, with what it counted or why it failed; no row if it is over already.

        :param state: ``published``, ``adopted``, ``invalidated`` in the transaction of what it did; ``failed``, or
            ``unfenced``.
        """
        sets = ", ".join(f"{name} = {bind(name)}" for name in ("state", *values))
        return Statement(
            f"UPDATE {self._t('attempt')} SET finished_at = pg_catalog.clock_timestamp(), {sets} "
            f"WHERE attempt_id = CAST({bind('attempt_id')} AS uuid) AND state = 'started'",
            {**values, "state": state, "attempt_id": attempt_id},
        )

    def forget_attempt(self, attempt_id: str) -> Statement:
        """An attempt that did nothing."""
        return Statement(
            f"DELETE FROM {self._t('attempt')} WHERE attempt_id = CAST({bind('attempt_id')} AS uuid) "
            "AND state = 'started'",
            {"attempt_id": attempt_id},
        )

    def attempt_state(self, attempt_id: str) -> Statement:
        """The attempt's recorded state and counts."""
        return Statement(
            f"SELECT state, {', '.join(ATTEMPT_FACTS)} FROM {self._t('attempt')} "
            f"WHERE attempt_id = CAST({bind('attempt_id')} AS uuid)",
            {"attempt_id": attempt_id},
        )

    def changed_in_run(self, run: RunIdentity) -> Statement:
        """One row if a published attempt of this task in this run, since it was last cleared, changed anything."""
        names = ("instance", "dag_id", "task_id", "run_id", "map_index", "clear_number")
        return Statement(
            f"SELECT 1 FROM {self._t('attempt')} WHERE state = 'published' AND changed "
            f"AND {' AND '.join(f'{name} = {bind(name)}' for name in names)} LIMIT 1",
            {name: getattr(run, name) for name in names},
        )

    def put_partition(self, values: Mapping[str, Any]) -> Statement:
        """The partition as the attempt left it."""
        names = tuple(values)
        given = ", ".join(f"CAST({bind(n)} AS uuid)" if n == "attempt_id" else bind(n) for n in names)
        sets = ", ".join(f"{n} = excluded.{n}" for n in names if n not in ("target_id", "partition_key"))
        return Statement(
            f"INSERT INTO {self._t('partition')} ({', '.join(names)}, published_at) "
            f"VALUES ({given}, pg_catalog.clock_timestamp()) ON CONFLICT (target_id, partition_key) "
            f"DO UPDATE SET {sets}, published_at = pg_catalog.clock_timestamp()",
            values,
        )

    def partitions(self, target_id: int, range_of: str | None, lo: Any, hi: Any) -> Statement:
        """
        The target's recorded partitions, as far as they could overlap.

        :param range_of: the column and kind of a time range; ranges of the same ones outside it are left out.
        """
        also = (
            f" AND (range_of IS DISTINCT FROM {bind('range_of')} OR (lo < {bind('hi')} AND hi > {bind('lo')}))"
            if range_of
            else ""
        )
        return Statement(
            "SELECT partition_key, scope, state, row_count, checksum, checksum_of, source_slice "
            f"FROM {self._t('partition')} WHERE target_id = {bind('target_id')}{also}",
            {"target_id": target_id, "range_of": range_of, "lo": lo, "hi": hi},
        )

    def still_unconfirmed(self, target_id: int, key: str, attempt_id: str) -> Statement:
        """A row if nobody has recorded anything of the partition since this attempt began in it."""
        return Statement(
            f"SELECT 1 AS found FROM {self._t('partition')} WHERE target_id = {bind('target_id')} "
            f"AND partition_key = {bind('key')} AND state = 'unconfirmed' "
            f"AND attempt_id = CAST({bind('attempt_id')} AS uuid) FOR UPDATE",
            {"target_id": target_id, "key": key, "attempt_id": attempt_id},
        )

    def forget_counts(self, target_id: int, key: str, state: str) -> Statement:
        """What was counted in a partition is no longer known: another load wrote a part of it, or a person did."""
        return Statement(
            f"UPDATE {self._t('partition')} SET row_count = NULL, checksum = NULL, state = {bind('state')} "
            f"WHERE target_id = {bind('target_id')} AND partition_key = {bind('key')}",
            {"target_id": target_id, "key": key, "state": state},
        )

    def put_check(self, values: Mapping[str, Any]) -> Statement:
        """One check's result."""
        given = ", ".join(f"CAST({bind(n)} AS uuid)" if n == "attempt_id" else bind(n) for n in values)
        return Statement(f"INSERT INTO {self._t('check')} ({', '.join(values)}) VALUES ({given})", values)
