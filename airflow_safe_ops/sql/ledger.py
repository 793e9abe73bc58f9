"""The ledger's statements; written for databases with row locks and transactions over several statements."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from airflow_safe_ops.definition.identity import RunIdentity
from airflow_safe_ops.errors import InvalidArgument
from airflow_safe_ops.plan.model import Statement, bind
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

    def publish_attempt(self, attempt_id: str, facts: Mapping[str, Any]) -> Statement:
        """The attempt as ``published``, with what it counted; in the transaction of the data."""
        sets = ", ".join(f"{name} = {bind(name)}" for name in ATTEMPT_FACTS)
        return Statement(
            f"UPDATE {self._t('attempt')} SET state = 'published', finished_at = pg_catalog.clock_timestamp(), {sets} "
            f"WHERE attempt_id = CAST({bind('attempt_id')} AS uuid) AND state = 'started'",
            {**{name: facts.get(name) for name in ATTEMPT_FACTS}, "attempt_id": attempt_id},
        )

    def fail_attempt(self, attempt_id: str, values: Mapping[str, Any]) -> Statement:
        """The attempt as ``failed``, unless it was published after all."""
        sets = ", ".join(f"{name} = {bind(name)}" for name in values)
        return Statement(
            f"UPDATE {self._t('attempt')} SET state = 'failed', finished_at = pg_catalog.clock_timestamp(), {sets} "
            f"WHERE attempt_id = CAST({bind('attempt_id')} AS uuid) AND state = 'started'",
            {**values, "attempt_id": attempt_id},
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
        """The partition as ``published`` by the attempt."""
        names = tuple(values)
        given = ", ".join(f"CAST({bind(n)} AS uuid)" if n == "attempt_id" else bind(n) for n in names)
        sets = ", ".join(f"{n} = excluded.{n}" for n in names if n not in ("target_id", "partition_key"))
        return Statement(
            f"INSERT INTO {self._t('partition')} ({', '.join(names)}, state, published_at) "
            f"VALUES ({given}, 'published', pg_catalog.clock_timestamp()) ON CONFLICT (target_id, partition_key) "
            f"DO UPDATE SET {sets}, state = 'published', published_at = pg_catalog.clock_timestamp()",
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
            "SELECT partition_key, scope, state, attempt_id::text AS attempt_id, row_count, checksum, checksum_of "
            f"FROM {self._t('partition')} WHERE target_id = {bind('target_id')}{also}",
            {"target_id": target_id, "range_of": range_of, "lo": lo, "hi": hi},
        )

    def touch_partition(self, target_id: int, key: str) -> Statement:
        """Another load wrote a part of it: what was counted there is no longer known."""
        return Statement(
            f"UPDATE {self._t('partition')} SET row_count = NULL, checksum = NULL, state = 'published' "
            f"WHERE target_id = {bind('target_id')} AND partition_key = {bind('key')}",
            {"target_id": target_id, "key": key},
        )

    def put_check(self, values: Mapping[str, Any]) -> Statement:
        """One check's result."""
        given = ", ".join(f"CAST({bind(n)} AS uuid)" if n == "attempt_id" else bind(n) for n in values)
        return Statement(f"INSERT INTO {self._t('check')} ({', '.join(values)}) VALUES ({given})", values)

    # --- reading --------------------------------------------------------------------------------------------

    def targets(self) -> Statement:
        """Every target that the ledger knows."""
        return Statement(f"SELECT identity FROM {self._t('target')} ORDER BY identity")

    def partition_keys(self, table: str | None, text: str) -> Statement:
        """Partitions whose key is the text; where there is none, those whose key holds it."""
        also = f" AND t.identity = {bind('table')}" if table else ""
        return Statement(
            "WITH found AS (SELECT DISTINCT a.partition_key "
            f"FROM {self._t('attempt')} AS a JOIN {self._t('target')} AS t USING (target_id) "
            f"WHERE position({bind('text')} IN a.partition_key) > 0{also}) "
            f"SELECT partition_key FROM found WHERE partition_key = {bind('text')} OR NOT EXISTS "
            f"(SELECT 1 FROM found WHERE partition_key = {bind('text')}) ORDER BY partition_key",
            {"table": table, "text": text},
        )

    def _tries(self, where: str) -> str:
        """
        The attempts that meet a condition, each with its ``outcome``.

        ``started`` is ``running`` while its claim lives, else ``lost``.

        A claim lives while a transaction that has not ended holds its row: the row's ``xmax`` names it, on a
        standby too. So looking takes no lock, writes nothing and needs no right but SELECT. Between two
        transactions a claim lives for the seconds of ``grace``.
        """
        snapshot = "pg_catalog.pg_snapshot_xmax(pg_catalog.pg_current_snapshot())::text::bigint"
        # xmax is the lower half of a transaction's number; the upper half is that of the nearest present number.
        number = f"{snapshot} + (c.xmax::text::bigint - {snapshot} % 4294967296 + 6442450944) % 4294967296 - 2147483648"
        in_progress = (
            "CASE WHEN c.xmax::text::bigint >= 3 "
            f"THEN coalesce(pg_catalog.pg_xact_status(greatest({number}, 0)::text::xid8) = 'in progress', FALSE) "
            "ELSE FALSE END"
        )
        idle = f"pg_catalog.clock_timestamp() - c.touched_at >= make_interval(secs => {bind('grace')})"
        return (
            "SELECT t.identity, a.*, CASE WHEN a.state <> 'started' THEN a.state WHEN c.attempt_id IS NULL THEN 'lost' "
            f"WHEN {idle} AND NOT {in_progress} THEN 'lost' ELSE 'running' END AS outcome "
            f"FROM {self._t('attempt')} AS a JOIN {self._t('target')} AS t USING (target_id) "
            f"LEFT JOIN {self._t('claim')} AS c USING (attempt_id) WHERE {where}"
        )

    def history(self, table: str | None, partition: str | None, limit: int | None, grace: float = 5.0) -> Statement:
        """Attempts, newest last, each with its outcome as it stands now; the newest ``limit`` of them."""
        where = ["TRUE"]
        if table:
            where.append(f"t.identity = {bind('table')}")
        if partition:
            where.append(f"a.partition_key = {bind('partition')}")
        return Statement(
            f"WITH tries AS ({self._tries(' AND '.join(where))}), newest AS (SELECT *, count(*) OVER () AS total "
            f"FROM tries ORDER BY started_at DESC, attempt_id LIMIT CAST({bind('limit')} AS bigint)) "
            "SELECT * FROM newest ORDER BY started_at, attempt_id",
            {"table": table, "partition": partition, "limit": limit, "grace": grace},
        )

    def summary(self, table: str | None, limit: int | None = None, grace: float = 5.0) -> Statement:
        """
        Each partition that was published or tried, with how its attempts ended; the last ``limit`` of them.

        Its state is the recorded one. One that never was published is ``loading``, ``lost`` (its newest attempt
        is) or ``missing``.
        """
        where = f"t.identity = {bind('table')}" if table else "TRUE"
        counts = ", ".join(
            f"count(*) FILTER (WHERE outcome = '{outcome}') AS {outcome}"
            for outcome in ("published", "failed", "lost", "running")
        )
        tried = ", ".join(f"coalesce(r.{n}, 0) AS {n}" for n in ("attempts", "published", "failed", "lost", "running"))
        return Statement(
            f"WITH tries AS ({self._tries(where)}), "
            f"tried AS (SELECT target_id, partition_key, count(*) AS attempts, {counts}, max(started_at) AS tried_at, "
            "(array_agg(outcome ORDER BY started_at DESC))[1] AS newest FROM tries GROUP BY target_id, partition_key), "
            "listed AS (SELECT t.identity, coalesce(p.partition_key, r.partition_key) AS partition_key, "
            "CASE WHEN p.state IS NOT NULL THEN p.state WHEN r.running > 0 THEN 'loading' "
            "WHEN r.newest = 'lost' THEN 'lost' ELSE 'missing' END AS state, p.row_count, "
            f"{tried}, p.published_at, r.tried_at, p.attempt_id::text AS attempt_id "
            f"FROM {self._t('partition')} AS p FULL JOIN tried AS r "
            "ON r.target_id = p.target_id AND r.partition_key = p.partition_key "
            f"JOIN {self._t('target')} AS t ON t.target_id = coalesce(p.target_id, r.target_id) WHERE {where}), "
            "newest AS (SELECT *, count(*) OVER () AS total FROM listed "
            f'ORDER BY identity DESC, partition_key COLLATE "C" DESC LIMIT CAST({bind("limit")} AS bigint)) '
            'SELECT * FROM newest ORDER BY identity, partition_key COLLATE "C"',
            {"table": table, "limit": limit, "grace": grace},
        )

    def _old_attempts(self) -> str:
        """Attempts that began so long ago and are not the one that published a partition as it stands."""
        return (
            f"FROM {self._t('attempt')} AS a "
            f"WHERE a.started_at < pg_catalog.clock_timestamp() - make_interval(secs => {bind('seconds')}) "
            f"AND NOT EXISTS (SELECT 1 FROM {self._t('partition')} AS p WHERE p.attempt_id = a.attempt_id) "
            f"AND NOT EXISTS (SELECT 1 FROM {self._t('claim')} AS c WHERE c.attempt_id = a.attempt_id)"
        )

    def count_old(self, days: float) -> Statement:
        """How many rows a prune would delete."""
        return Statement(f"SELECT count(*) AS attempts {self._old_attempts()}", {"seconds": days * 86400})

    def prune(self, days: float) -> Sequence[Statement]:
        """Delete those attempts with their checks."""
        binds = {"seconds": days * 86400}
        return (
            Statement(
                f"DELETE FROM {self._t('check')} WHERE attempt_id IN (SELECT a.attempt_id {self._old_attempts()})",
                binds,
            ),
            Statement(
                f"DELETE FROM {self._t('attempt')} WHERE attempt_id IN (SELECT a.attempt_id {self._old_attempts()})",
                binds,
            ),
        )
