"""`airflow safe-ops ledger` against a real database, and against a standby of it."""

from __future__ import annotations

import json
import time
from datetime import date, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from airflow_safe_ops.definition.checks import RowCount
from airflow_safe_ops.sql.ledger_tables import MIGRATIONS
from tests import servers
from tests.conftest import Database
from tests.contract.command_line import CONN, Said, everything, json_of
from tests.contract.harness import D1, D2, SALES_SQL, run, sale

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.conftest import PgServer
    from tests.contract.postgres import PostgresWarehouse

D1_KEY, D2_KEY = "day=2026-01-02..2026-01-03", "day=2026-01-03..2026-01-04"


def test_init_makes_the_ledger_once(new_postgres: PostgresWarehouse, cli: Any) -> None:
    assert cli("ledger", "init", *CONN)[:2] == (
        0, f"Ledger in schema 'safe_ops' of connection 'warehouse': {MIGRATIONS[-1].number} migration(s) applied.\n"
    )  # fmt: skip
    before = everything(new_postgres.database)
    code, out, _ = cli("ledger", "init", *CONN)
    assert (code, out) == (0, "Ledger in schema 'safe_ops' of connection 'warehouse': is there and up to date.\n")
    assert everything(new_postgres.database) == before


@pytest.mark.parametrize("schema", ["safe_ops", 'other "one"'])
def test_the_printed_sql_makes_the_same_ledger(new_postgres: PostgresWarehouse, cli: Any, schema: str) -> None:
    before = everything(new_postgres.database)
    code, sql, err = cli("ledger", "init", *CONN, "--print-sql", "--schema", schema)
    assert code == 0
    assert everything(new_postgres.database) == before
    assert ("ledger_schema" in err) == (schema != "safe_ops")
    new_postgres.execute(sql)
    made = everything(new_postgres.database)
    assert "up to date" in cli("ledger", "init", *CONN, "--schema", schema)[1]
    assert everything(new_postgres.database) == made
    assert cli("ledger", "show", *CONN, "--schema", schema)[:2] == (0, "The ledger knows no partition yet.\n")


def test_a_second_ledger_is_refused(new_postgres: PostgresWarehouse, cli: Any) -> None:
    cli("ledger", "init", *CONN)
    code, _, err = cli("ledger", "init", *CONN, "--schema", "other")
    assert (code, err[:7]) == (1, "SO-502 ")


@pytest.mark.parametrize("command", [["show"], ["prune", "--keep", "1d", "--yes"]])
def test_no_ledger(new_postgres: PostgresWarehouse, cli: Any, command: list[str]) -> None:
    code, out, err = cli("ledger", command[0], *CONN, *command[1:])
    assert (code, out) == (1, "")
    assert err == (
        "SO-500 There is no ledger in schema 'safe_ops' of connection 'warehouse'. "
        "Run `airflow safe-ops ledger init`, or let the first load make it.\n"
    )


@pytest.mark.parametrize("uri", ["sqlite:///x.db", "http://example.org", "nosuchkind://host"])
def test_a_connection_without_a_dialect(cli: Any, monkeypatch: pytest.MonkeyPatch, uri: str) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_ODD", uri)
    code, out, err = cli("ledger", "show", "--conn-id", "odd")
    assert (code, out, err[:7]) == (1, "", "SO-307 ")


def test_a_connection_that_is_not_there(cli: Any) -> None:
    code, _, err = cli("ledger", "show", "--conn-id", "nowhere")
    assert code == 1
    assert "nowhere" in err
    assert "Traceback" not in err


# --- ledger show ----------------------------------------------------------------------------------------------------


@pytest.fixture
def story(new_postgres: PostgresWarehouse) -> PostgresWarehouse:
    """A day published, cleared and loaded again, then refused; a day that only failed."""
    new_postgres.sales([sale(D1, 1, "1"), sale(D1, 2, "2"), sale(D2, 3, "3")])
    new_postgres.load(run(D1))
    again = run(D1)
    again["dag_run"].clear_number = 1
    again["dag_run"].run_type = "backfill"
    new_postgres.load(again)
    new_postgres.refused("SO-101", run(D1, try_number=2), sql=SALES_SQL + " AND id = 0")
    new_postgres.refused("SO-109", run(D2), audits=[RowCount(min=9)])
    return new_postgres


def test_a_line_a_partition(story: PostgresWarehouse, cli: Any) -> None:
    first, second = json_of(cli("ledger", "show", *CONN, "-o", "json"))
    counts = ("table", "partition", "state", "rows", "attempts", "published", "failed", "lost", "running")
    assert [first[n] for n in counts] == ['"public"."sales"', D1_KEY, "published", 2, 3, 2, 1, 0, 0]
    assert [second[n] for n in counts] == ['"public"."sales"', D2_KEY, "missing", None, 1, 0, 1, 0, 0]
    assert datetime.fromisoformat(first["published_at"]).utcoffset() == timedelta(0)
    assert second["published_at"] is None
    out = cli("ledger", "show", *CONN, "--table", "sales")[1]
    assert out.startswith('"public"."sales"\n')
    assert D1_KEY in out
    assert "missing" in out


def test_the_story_of_a_partition(story: PostgresWarehouse, cli: Any) -> None:
    lines = json_of(cli("ledger", "show", *CONN, "--table", "public.sales", "--partition", D1_KEY, "-o", "json"))
    assert [line["state"] for line in lines] == ["published", "published", "failed"]
    assert [line["rows_inserted"] for line in lines] == [2, 2, None]
    assert [line["rows_deleted"] for line in lines] == [0, 2, None]
    assert [line["clear_number"] for line in lines] == [0, 1, 0]
    assert [line["error_code"] for line in lines] == [None, None, "SO-101"]
    assert [line["started_at"] for line in lines] == sorted(line["started_at"] for line in lines)
    assert all(line["seconds"] >= 0 for line in lines)
    out = cli("ledger", "show", *CONN, "-p", D1_KEY)[1]
    assert f'"public"."sales"  {D1_KEY}\n' in out
    assert "(backfill)" in out
    assert "1, clear 1" in out
    assert "SO-101 The query returned no rows" in " ".join(out.split())


@pytest.mark.parametrize("output", ["table", "plain", "json", "yaml"])
@pytest.mark.parametrize("partition", [[], ["-p", D1_KEY]])
def test_every_output(story: PostgresWarehouse, cli: Any, output: str, partition: list[str]) -> None:
    code, out, err = cli("ledger", "show", *CONN, *partition, "-o", output)
    assert (code, err) == (0, "")
    assert "published" in out


def test_a_part_of_the_partitions_name_does(story: PostgresWarehouse, cli: Any) -> None:
    found = json_of(cli("ledger", "show", *CONN, "-p", "..2026-01-04", "-o", "json"))
    assert [attempt["error_code"] for attempt in found] == ["SO-109"]
    code, out, err = cli("ledger", "show", *CONN, "-p", "2026-01-03")
    assert (code, out) == (1, "")
    assert err == f"2 partitions have '2026-01-03' in their name: {D1_KEY}, {D2_KEY}. Name one of them.\n"
    assert cli("ledger", "show", *CONN, "-p", "1999") == (1, "", "The ledger knows no attempt on partition '1999'.\n")


def test_the_newest_are_shown_and_the_rest_is_said(story: PostgresWarehouse, cli: Any) -> None:
    code, out, err = cli("ledger", "show", *CONN, "-p", D1_KEY, "--limit", "1", "-o", "json")
    assert (code, [a["state"] for a in json.loads(out)]) == (0, ["failed"])
    assert err == "The last 1 of 3 attempts; --limit 0 shows all.\n"
    code, out, err = cli("ledger", "show", *CONN, "--limit", "1", "-o", "json")
    assert [p["partition"] for p in json.loads(out)] == [D2_KEY]
    assert err == "The last 1 of 2 partitions; --limit 0 shows all.\n"
    assert len(json_of(cli("ledger", "show", *CONN, "--limit", "0", "-o", "json"))) == 2


@pytest.mark.parametrize("written", ["sales", "public.sales", '"public"."sales"', "SALES", "a_view", "dropped"])
def test_a_table_is_found_as_it_is_written(story: PostgresWarehouse, cli: Any, written: str) -> None:
    story.execute("CREATE VIEW a_view AS SELECT * FROM sales; CREATE TABLE other (LIKE sales)")
    story.load(run(D2), table="other")
    if written == "dropped":
        story.execute("DROP TABLE sales CASCADE")
        written = "public.sales"
    found = json_of(cli("ledger", "show", *CONN, "--table", written, "-o", "json"))
    assert {line["table"] for line in found} == {'"public"."sales"'}


def test_a_table_that_nobody_knows(story: PostgresWarehouse, cli: Any) -> None:
    assert cli("ledger", "show", *CONN, "--table", "nothing")[2].startswith("SO-301 ")


def test_who_lives_and_who_is_lost(story: PostgresWarehouse, cli: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """While its transaction holds its claim an attempt is running; when that ends without an outcome, it is lost."""
    monkeypatch.setenv("AIRFLOW__SAFE_OPS__CLAIM_GRACE", "1")
    seen: list[Any] = []
    runner = story.runner(run(date(2026, 1, 5)), on_empty="replace")

    def look(step: str, when: str) -> None:
        if (step, when) == ("target.insert", "before"):
            seen.extend(json_of(cli("ledger", "show", *CONN, "-p", "01-05..", "-o", "json")))
            seen.extend(json_of(cli("ledger", "show", *CONN, "-o", "json"))[-1:])
            raise _DiesError

    runner.observe = look
    monkeypatch.setattr(type(runner), "_record_failure", lambda *_: None, raising=False)
    with pytest.raises(_DiesError):
        runner.execute()
    assert [line["state"] for line in seen] == ["running", "loading"]
    time.sleep(1.1)  # the grace
    assert [a["state"] for a in json_of(cli("ledger", "show", *CONN, "-p", "01-05..", "-o", "json"))] == ["lost"]
    assert json_of(cli("ledger", "show", *CONN, "-o", "json"))[-1]["state"] == "lost"
    assert len(story.claims()) == 1


class _DiesError(BaseException):
    """A kill, as far as the runner can tell."""


def test_show_reads_where_nothing_can_be_written(
    story: PostgresWarehouse, cli: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A login that may only read, on a session that only reads."""
    name = story.database.name
    story.execute(
        f"CREATE ROLE reader_{name} LOGIN; GRANT USAGE ON SCHEMA safe_ops TO reader_{name}; "
        f"GRANT SELECT ON ALL TABLES IN SCHEMA safe_ops TO reader_{name}; "
        f"ALTER ROLE reader_{name} SET default_transaction_read_only = on"
    )
    try:
        uri = story.database.airflow_uri.replace("postgres:@", f"reader_{name}:@")
        monkeypatch.setenv("AIRFLOW_CONN_WAREHOUSE", uri)
        assert len(json_of(cli("ledger", "show", *CONN, "-o", "json"))) == 2
        assert len(json_of(cli("ledger", "show", *CONN, "-p", D1_KEY, "-t", "sales", "-o", "json"))) == 3
        code, _, err = cli("ledger", "prune", *CONN, "--keep", "0d", "--yes")
        assert (code, err[:7]) == (1, "SO-503 ")
    finally:
        story.execute(f"DROP OWNED BY reader_{name}; DROP ROLE reader_{name}")


@pytest.fixture
def standby(pg_server: PgServer, story: PostgresWarehouse) -> Iterator[Path]:
    """The folder of a hot standby of the server."""
    with servers.standby(servers.behind(pg_server.folder)) as folder:
        yield folder


def test_show_works_on_a_standby(
    story: PostgresWarehouse, cli: Any, standby: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It sees who runs on the primary: the lock of a claim is in the log that the standby replays."""
    mirror = Database(story.database.name, standby)
    monkeypatch.setenv("AIRFLOW_CONN_MIRROR", mirror.airflow_uri)
    monkeypatch.setenv("AIRFLOW__SAFE_OPS__CLAIM_GRACE", "1")
    seen: list[Said] = []

    def look(step: str, when: str) -> None:
        if (step, when) == ("target.insert", "before"):
            ((now,),) = story.database.execute("SELECT pg_current_wal_insert_lsn()::text FROM txid_current()")
            while mirror.execute(f"SELECT pg_last_wal_replay_lsn() < '{now}'::pg_lsn") != [(False,)]:
                pass
            seen.append(cli("ledger", "show", "--conn-id", "mirror", "-p", "01-05..", "-o", "json"))

    runner = story.runner(run(date(2026, 1, 5)), on_empty="replace")
    runner.observe = look
    runner.execute()
    assert [a["state"] for a in json_of(seen[0])] == ["running"]
    partitions = json_of(cli("ledger", "show", "--conn-id", "mirror", "-t", "sales", "-o", "json"))
    assert [line["partition"] for line in partitions][:2] == [D1_KEY, D2_KEY]
    for command in (["init"], ["prune", "--keep", "0d", "--yes"]):
        code, _, err = cli("ledger", command[0], "--conn-id", "mirror", *command[1:])
        assert (code, "SO-503" in err) == ((0, False) if command == ["init"] else (1, True))


# --- ledger prune ---------------------------------------------------------------------------------------------------


def test_prune_keeps_what_published_a_partition(story: PostgresWarehouse, cli: Any) -> None:
    partitions = story.partitions()
    code, out, _ = cli("ledger", "prune", *CONN, "--keep", "0d", "--dry-run")
    assert (code, out) == (0, "3 attempts are older than 0 days and would be deleted.\n")
    assert len(story.states()) == 4
    code, out, _ = cli("ledger", "prune", *CONN, "--keep", "0d", "--yes")
    assert (code, out) == (0, "3 attempts older than 0 days deleted.\n")
    assert story.states() == ["published"]
    assert story.partitions() == partitions
    assert story.ledger("check", "count(*)") == [(0,)]
    assert cli("ledger", "prune", *CONN, "--keep", "0d")[1] == "0 attempts are older than 0 days: nothing to delete.\n"


def test_prune_keeps_what_is_young(story: PostgresWarehouse, cli: Any) -> None:
    older = "SET started_at = started_at - interval '91 days' WHERE error_code = 'SO-109'"
    story.execute(f"UPDATE safe_ops.safe_ops_attempt {older}")
    assert cli("ledger", "prune", *CONN, "--keep", "90d", "--yes")[1] == "1 attempts older than 90 days deleted.\n"
    assert sorted(story.states()) == ["failed", "published", "published"]


@pytest.mark.parametrize(("answer", "left"), [("y", 1), ("n", 4), (None, 4)])
def test_prune_asks(
    story: PostgresWarehouse, cli: Any, monkeypatch: pytest.MonkeyPatch, answer: str | None, left: int
) -> None:
    def asked() -> str:
        if answer is None:
            raise EOFError
        return answer

    monkeypatch.setattr("builtins.input", asked)
    code, _, err = cli("ledger", "prune", *CONN, "--keep", "0d")
    assert (code, len(story.states())) == (0 if answer == "y" else 1, left)
    assert err.startswith("Delete 3 attempts older than 0 days? The partitions' records stay. [y/n]\n")
    assert ("--yes" in err) == (answer is None)
