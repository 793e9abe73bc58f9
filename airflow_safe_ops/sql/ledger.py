"""The ledger's tables and statements; written for databases with row locks and transactions over several statements."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from airflow_safe_ops.plan.model import Statement, bind
from airflow_safe_ops.sql.text import quoted

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


@dataclass(frozen=True)
class Migration:
    """One numbered step of the ledger's schema. It only adds: older versions go on working beside it."""

    number: int
    name: str
    statements: tuple[str, ...]


_FIRST = (
    """CREATE TABLE {s}.safe_ops_target (
  target_id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  identity text NOT NULL UNIQUE,
  created_at timestamptz NOT NULL DEFAULT clock_timestamp())""",
    """CREATE TABLE {s}.safe_ops_attempt (
  attempt_id uuid PRIMARY KEY,
  target_id bigint NOT NULL,
  partition_key text NOT NULL,
  scope text NOT NULL,
  strategy text NOT NULL,
  state text NOT NULL,
  instance text NOT NULL DEFAULT '',
  dag_id text, task_id text, map_index integer, run_id text, run_type text, try_number integer,
  clear_number integer, logical_date timestamptz, user_name text, code_version text, parameters text,
  sql_hash text,
  started_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  finished_at timestamptz,
  rows_read bigint, rows_deleted bigint, rows_inserted bigint, rows_updated bigint, rows_unchanged bigint,
  rows_moved bigint, rows_after bigint,
  changed boolean, checksum text, checksum_of text, seconds double precision,
  error_code text, error_class text, error_message text)""",
    "CREATE INDEX safe_ops_attempt_by_partition ON {s}.safe_ops_attempt (target_id, partition_key, started_at)",
    "CREATE INDEX safe_ops_attempt_by_start ON {s}.safe_ops_attempt (started_at)",
    """CREATE TABLE {s}.safe_ops_claim (
  claim_id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  ticket bigint NOT NULL,
  target_id bigint NOT NULL,
  attempt_id uuid NOT NULL UNIQUE,
  scopes text NOT NULL,
  held boolean NOT NULL,
  touched_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  owner text NOT NULL)""",
    "CREATE INDEX safe_ops_claim_by_target ON {s}.safe_ops_claim (target_id)",
    "CREATE SEQUENCE {s}.safe_ops_ticket",
    """CREATE TABLE {s}.safe_ops_partition (
  target_id bigint NOT NULL,
  partition_key text NOT NULL,
  scope text NOT NULL,
  lo timestamp, hi timestamp,
  state text NOT NULL,
  attempt_id uuid,
  row_count bigint, checksum text, checksum_of text,
  published_at timestamptz NOT NULL,
  PRIMARY KEY (target_id, partition_key))""",
    "CREATE INDEX safe_ops_partition_by_range ON {s}.safe_ops_partition (target_id, lo, hi)",
    """CREATE TABLE {s}.safe_ops_check (
  check_id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  target_id bigint NOT NULL,
  attempt_id uuid NOT NULL,
  partition_key text NOT NULL,
  phase text NOT NULL, name text NOT NULL, passed boolean NOT NULL, observed text, required text NOT NULL,
  checked_at timestamptz NOT NULL DEFAULT clock_timestamp())""",
    "CREATE INDEX safe_ops_check_by_attempt ON {s}.safe_ops_check (attempt_id)",
)

MIGRATIONS = (Migration(1, "targets, attempts, claims, partitions, checks", _FIRST),)


class LedgerSql:
    """
    The ledger's statements. Every table is named with its schema: nothing depends on a search path.

    :param schema: the ledger's schema, unquoted.
    """

    def __init__(self, schema: str) -> None:
        self.schema = schema
        self._s = quoted(schema)

    def _t(self, table: str) -> str:
        return f"{self._s}.safe_ops_{table}"

    # --- schema -------------------------------------------------------------------------------------------

    def where_is_ledger(self) -> Statement:
        """The schemas that hold a ledger's targets, and whether this one holds migration numbers."""
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
                "applied_at timestamptz NOT NULL DEFAULT clock_timestamp(), "
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

    def next_ticket(self) -> Statement:
        """A place in the queue; called under the target's lock, so places follow the order of arrival."""
        return Statement(f"SELECT nextval('{self._t('ticket').replace(chr(39), chr(39) * 2)}') AS ticket")

    def put_claim(self, values: Mapping[str, Any]) -> Statement:
        """Our row in the queue, or its new scopes."""
        names = ("ticket", "target_id", "attempt_id", "scopes", "held", "owner")
        return Statement(
            f"INSERT INTO {self._t('claim')} ({', '.join(names)}) VALUES ({', '.join(map(bind, names))}) "
            "ON CONFLICT (attempt_id) DO UPDATE SET scopes = excluded.scopes, held = excluded.held, "
            "ticket = excluded.ticket, touched_at = clock_timestamp()",
            values,
        )

    def claims(self, target_id: int) -> Statement:
        """The target's queue, with the seconds since each was last seen alive by its clock."""
        return Statement(
            "SELECT claim_id, ticket, attempt_id::text AS attempt_id, scopes, held, owner, "
            f"extract(epoch FROM clock_timestamp() - touched_at)::float8 AS idle FROM {self._t('claim')} "
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
            f"SELECT extract(epoch FROM clock_timestamp() - touched_at)::float8 AS idle FROM {self._t('claim')} "
            f"WHERE claim_id = {bind('claim_id')} FOR UPDATE",
            {"claim_id": claim_id},
        )

    def touch_claim(self, attempt_id: str) -> Statement:
        """We are alive: nobody behind us takes our place while we look again."""
        return Statement(
            f"UPDATE {self._t('claim')} SET touched_at = clock_timestamp() "
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
            f"UPDATE {self._t('attempt')} SET state = 'published', finished_at = clock_timestamp(), {sets} "
            f"WHERE attempt_id = CAST({bind('attempt_id')} AS uuid) AND state = 'started'",
            {**{name: facts.get(name) for name in ATTEMPT_FACTS}, "attempt_id": attempt_id},
        )

    def fail_attempt(self, attempt_id: str, values: Mapping[str, Any]) -> Statement:
        """The attempt as ``failed``, unless it was published after all."""
        sets = ", ".join(f"{name} = {bind(name)}" for name in values)
        return Statement(
            f"UPDATE {self._t('attempt')} SET state = 'failed', finished_at = clock_timestamp(), {sets} "
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

    def put_partition(self, values: Mapping[str, Any]) -> Statement:
        """The partition as ``published`` by the attempt."""
        names = tuple(values)
        given = ", ".join(f"CAST({bind(n)} AS uuid)" if n == "attempt_id" else bind(n) for n in names)
        sets = ", ".join(f"{n} = excluded.{n}" for n in names if n not in ("target_id", "partition_key"))
        return Statement(
            f"INSERT INTO {self._t('partition')} ({', '.join(names)}, state, published_at) "
            f"VALUES ({given}, 'published', clock_timestamp()) ON CONFLICT (target_id, partition_key) "
            f"DO UPDATE SET {sets}, state = 'published', published_at = clock_timestamp()",
            values,
        )

    def partitions(self, target_id: int, lo: Any = None, hi: Any = None) -> Statement:
        """The target's recorded partitions; with a range only those that could overlap it."""
        ranged = lo is not None and hi is not None
        also = f" AND (lo IS NULL OR (lo < {bind('hi')} AND hi > {bind('lo')}))" if ranged else ""
        return Statement(
            "SELECT partition_key, scope, state, attempt_id::text AS attempt_id, row_count, checksum, checksum_of "
            f"FROM {self._t('partition')} WHERE target_id = {bind('target_id')}{also}",
            {"target_id": target_id, "lo": lo, "hi": hi},
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

    def history(self, table: str | None, partition: str | None, limit: int) -> Statement:
        """
        Attempts, newest last, with the state that holds now: ``started`` without a living claim is ``lost``.

        A living claim's row is locked by its owner's transaction, so SKIP LOCKED passes it over.
        """
        where = ["TRUE"]
        if table:
            where.append(f"t.identity = {bind('table')}")
        if partition:
            where.append(f"a.partition_key = {bind('partition')}")
        return Statement(
            f"WITH idle AS (SELECT attempt_id FROM {self._t('claim')} "
            "WHERE clock_timestamp() - touched_at > interval '5 seconds' FOR KEY SHARE SKIP LOCKED), "
            "newest AS (SELECT t.identity, a.*, c.attempt_id IS NOT NULL AND i.attempt_id IS NULL AS alive "
            f"FROM {self._t('attempt')} AS a JOIN {self._t('target')} AS t USING (target_id) "
            f"LEFT JOIN {self._t('claim')} AS c USING (attempt_id) LEFT JOIN idle AS i USING (attempt_id) "
            f"WHERE {' AND '.join(where)} ORDER BY a.started_at DESC, a.attempt_id LIMIT {bind('limit')}) "
            "SELECT *, CASE WHEN state = 'started' AND NOT alive THEN 'lost' WHEN state = 'started' THEN 'running' "
            "ELSE state END AS outcome FROM newest ORDER BY started_at, attempt_id",
            {"table": table, "partition": partition, "limit": limit},
        )

    def summary(self, table: str | None) -> Statement:
        """Each recorded partition with its state and how its attempts ended."""
        where = f"WHERE t.identity = {bind('table')} " if table else ""
        return Statement(
            "SELECT t.identity, p.partition_key, p.state, p.row_count, p.published_at, "
            "p.attempt_id::text AS attempt_id, count(a.attempt_id) AS attempts, "
            "count(*) FILTER (WHERE a.state = 'published') AS published, "
            "count(*) FILTER (WHERE a.state = 'failed') AS failed, "
            f"count(*) FILTER (WHERE a.state = 'started') AS unfinished FROM {self._t('partition')} AS p "
            f"JOIN {self._t('target')} AS t USING (target_id) LEFT JOIN {self._t('attempt')} AS a "
            f"ON a.target_id = p.target_id AND a.partition_key = p.partition_key {where}"
            "GROUP BY t.identity, p.target_id, p.partition_key, p.lo ORDER BY t.identity, p.lo, p.partition_key",
            {"table": table},
        )

    def _old_attempts(self) -> str:
        """Attempts that began so long ago and are not the one that published a partition as it stands."""
        return (
            f"FROM {self._t('attempt')} AS a "
            f"WHERE a.started_at < clock_timestamp() - make_interval(secs => {bind('seconds')}) "
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
