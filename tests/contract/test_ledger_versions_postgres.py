"""A ledger that an older version of the package made goes on; what it recorded is known."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from airflow_safe_ops.sql.ledger import LedgerSql
from airflow_safe_ops.sql.ledger_tables import MIGRATIONS
from tests.contract.command_line import CONN, everything
from tests.contract.harness import D1, run, sale

if TYPE_CHECKING:
    from tests.contract.postgres import PostgresWarehouse

SCOPE = (
    '{"scope": "time", "column": "day", "kind": "date", "start": "2026-01-02", "end": "2026-01-03", "timezone": "UTC"}'
)
ATTEMPT = "00000000-0000-4000-8000-000000000001"
# What the first version wrote of one load, with the columns that it knew.
RECORDED = f"""
INSERT INTO safe_ops.safe_ops_target (identity) VALUES ('"public"."sales"');
INSERT INTO safe_ops.safe_ops_attempt (attempt_id, target_id, partition_key, scope, strategy, state, rows_after)
  SELECT '{ATTEMPT}', target_id, 'day=2026-01-02..2026-01-03', '{SCOPE}', 'delete_insert', 'published', 1
  FROM safe_ops.safe_ops_target;
INSERT INTO safe_ops.safe_ops_partition
  (target_id, partition_key, scope, range_of, lo, hi, attempt_id, row_count, checksum, checksum_of, state, published_at)
  SELECT target_id, 'day=2026-01-02..2026-01-03', '{SCOPE}', 'day date', '2026-01-02', '2026-01-03', '{ATTEMPT}', 1,
  NULL, NULL, 'published', now() FROM safe_ops.safe_ops_target
"""


@pytest.fixture
def old(new_postgres: PostgresWarehouse) -> PostgresWarehouse:
    """A ledger of the first version that knows one day."""
    rows = [sale(D1, 1, "1")]
    new_postgres.sales(rows, held=rows)
    sql = LedgerSql("safe_ops")
    for statement in (*sql.create_schema(), *sql.migrate(MIGRATIONS[0])[:-1]):
        new_postgres.execute(str(statement))
    new_postgres.execute(sql.record_literally(MIGRATIONS[0]))
    new_postgres.execute(RECORDED)
    return new_postgres


def versions(warehouse: PostgresWarehouse) -> list[int]:
    return [number for (number,) in warehouse.ledger("schema", "number", "ORDER BY number")]


def test_the_next_load_brings_it_up_to_date(old: PostgresWarehouse) -> None:
    old.load(D1)
    assert versions(old) == [migration.number for migration in MIGRATIONS]
    assert old.states() == ["published", "published"]
    assert [(state, rows) for _, state, rows, *_ in old.partitions()] == [("published", 1)]


def test_an_older_version_goes_on_beside_it(old: PostgresWarehouse, cli: Any) -> None:
    """It names the columns that it knows."""
    assert cli("ledger", "init", *CONN)[0] == 0
    other = (
        RECORDED.partition(";\n")[2]
        .replace(ATTEMPT, ATTEMPT[:-1] + "2")
        .replace("01-02", "01-05")
        .replace("01-03", "01-06")
    )
    old.execute(other)
    old.load(D1)
    assert len(old.partitions()) == 2


def test_readers_say_what_to_do(old: PostgresWarehouse, cli: Any) -> None:
    before = everything(old.database)
    code, out, err = cli("ledger", "show", *CONN)
    assert (code, out, err[:6]) == (1, "", "SO-504")
    with pytest.raises(Exception, match="SO-504"):
        old.operator().plans(run(D1))
    assert everything(old.database) == before


def test_a_login_that_may_not_alter_it(old: PostgresWarehouse, monkeypatch: pytest.MonkeyPatch) -> None:
    old.execute(
        "CREATE ROLE loader_of_old LOGIN; GRANT USAGE ON SCHEMA public, safe_ops TO loader_of_old; "
        "GRANT ALL ON ALL TABLES IN SCHEMA public, safe_ops TO loader_of_old"
    )
    try:
        uri = old.database.airflow_uri.replace("postgres:@", "loader_of_old:@")
        monkeypatch.setenv(f"AIRFLOW_CONN_{old.conn_id.upper()}", uri)
        old.refused("SO-501")
        assert versions(old) == [1]
    finally:
        old.execute("DROP OWNED BY loader_of_old; DROP ROLE loader_of_old")
