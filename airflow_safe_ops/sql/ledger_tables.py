"""The ledger's tables, as numbered migrations."""

from __future__ import annotations

from dataclasses import dataclass


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
  last_ticket bigint NOT NULL DEFAULT 0,
  created_at timestamptz NOT NULL DEFAULT pg_catalog.clock_timestamp())""",
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
  started_at timestamptz NOT NULL DEFAULT pg_catalog.clock_timestamp(),
  finished_at timestamptz,
  rows_read bigint, rows_deleted bigint, rows_inserted bigint, rows_updated bigint, rows_unchanged bigint,
  rows_moved bigint, rows_after bigint,
  changed boolean, checksum text, checksum_of text, seconds double precision,
  error_code text, error_class text, error_message text)""",
    "CREATE INDEX safe_ops_attempt_by_partition ON {s}.safe_ops_attempt (target_id, partition_key, started_at)",
    "CREATE INDEX safe_ops_attempt_by_run ON {s}.safe_ops_attempt (run_id, dag_id)",
    "CREATE INDEX safe_ops_attempt_by_start ON {s}.safe_ops_attempt (started_at)",
    """CREATE TABLE {s}.safe_ops_claim (
  claim_id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  ticket bigint NOT NULL,
  target_id bigint NOT NULL,
  attempt_id uuid NOT NULL UNIQUE,
  scopes text NOT NULL,
  held boolean NOT NULL,
  touched_at timestamptz NOT NULL DEFAULT pg_catalog.clock_timestamp(),
  owner text NOT NULL)""",
    "CREATE INDEX safe_ops_claim_by_target ON {s}.safe_ops_claim (target_id)",
    """CREATE TABLE {s}.safe_ops_partition (
  target_id bigint NOT NULL,
  partition_key text NOT NULL,
  scope text NOT NULL,
  range_of text, lo timestamp, hi timestamp,
  state text NOT NULL,
  attempt_id uuid,
  row_count bigint, checksum text, checksum_of text,
  published_at timestamptz NOT NULL,
  PRIMARY KEY (target_id, partition_key))""",
    "CREATE INDEX safe_ops_partition_by_range ON {s}.safe_ops_partition (target_id, range_of, lo, hi)",
    """CREATE TABLE {s}.safe_ops_check (
  check_id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  target_id bigint NOT NULL,
  attempt_id uuid NOT NULL,
  partition_key text NOT NULL,
  phase text NOT NULL, name text NOT NULL, passed boolean NOT NULL, observed text, required text NOT NULL,
  checked_at timestamptz NOT NULL DEFAULT pg_catalog.clock_timestamp())""",
    "CREATE INDEX safe_ops_check_by_attempt ON {s}.safe_ops_check (attempt_id)",
)

_SECOND = (
    "ALTER TABLE {s}.safe_ops_attempt ADD COLUMN source_slice text, ADD COLUMN reason text",
    "ALTER TABLE {s}.safe_ops_partition ADD COLUMN source_slice text",
)

_THIRD = ("ALTER TABLE {s}.safe_ops_attempt ADD COLUMN failure_class text, ADD COLUMN failure_reason text",)

_FOURTH = (
    """CREATE TABLE {s}.safe_ops_publication (
  publication_id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  receiver text NOT NULL,
  business_key text NOT NULL,
  intent text NOT NULL,
  intent_hash text NOT NULL,
  state text NOT NULL,
  idempotency_key uuid NOT NULL,
  token uuid,
  sends integer NOT NULL DEFAULT 0,
  in_doubt boolean NOT NULL DEFAULT FALSE,
  instance text NOT NULL DEFAULT '',
  dag_id text, task_id text, map_index integer, run_id text, run_type text, try_number integer,
  clear_number integer, logical_date timestamptz, user_name text, code_version text,
  intended_at timestamptz NOT NULL DEFAULT pg_catalog.clock_timestamp(),
  keyed_at timestamptz, sent_at timestamptz, answered_at timestamptz,
  how text, outcome text,
  error_code text, error_class text, error_message text,
  reason text, settled_by text, settled_at timestamptz,
  UNIQUE (receiver, business_key))""",
    "CREATE INDEX safe_ops_publication_by_state ON {s}.safe_ops_publication (state)",
)

MIGRATIONS = (
    Migration(1, "targets, attempts, claims, partitions, checks", _FIRST),
    Migration(2, "slices of a source, reasons", _SECOND),
    Migration(3, "classes of failure", _THIRD),
    Migration(4, "publications", _FOURTH),
)
