"""What the database holds after a load's end: its data and its record, of one mind, whatever cut in between."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

import psycopg
import pytest

from airflow_safe_ops.execution.session import Session
from airflow_safe_ops.sql.dialect import dialect_for
from tests.crash.harness import Child, eventually, holding, until_blocked
from tests.crash.proxy import Loss, Proxy
from tests.crash.warehouse import FIRST, Shop, stages
from tests.sabotage.scene import at, over, tried

if TYPE_CHECKING:
    from tests.conftest import Database

# A deferred trigger on the ledger fires in COMMIT itself.
SLOW_COMMIT = """
CREATE FUNCTION slowly() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_sleep(1); RETURN NULL; END $$;
CREATE CONSTRAINT TRIGGER slow AFTER INSERT OR UPDATE ON safe_ops.safe_ops_partition
  DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION slowly()
"""


@pytest.fixture
def shop(db: Database) -> Shop:
    """A day that was published once; the source has changed since."""
    shop = Shop(db, days=1)
    shop.run()
    shop.new_version()
    return shop


@pytest.fixture
def proxy(db: Database) -> Iterator[Proxy]:
    proxy = Proxy(db.folder, db.name)
    yield proxy
    proxy.close()


def test_killed_while_it_writes_its_record(shop: Shop) -> None:
    before = shop.rows(), shop.partitions()
    child = Child(shop.job(pauses=frozenset({"ledger.publish:before"})))
    child.until("ledger.publish:before")
    with holding(shop.db.uri, "SELECT 1 FROM safe_ops.safe_ops_partition FOR UPDATE"):
        child.go()
        until_blocked(child)
        child.kill()
    assert (shop.rows(), shop.partitions()) == before


@pytest.mark.parametrize(
    ("loss", "attempts"),
    [
        ("answer", ["published", "published"]),
        ("answer_not_awaited", ["published", "published"]),
        ("request", ["published", "failed", "published"]),
    ],
    ids=["answer", "not_awaited", "request"],
)
def test_a_lost_commit_is_loaded_again_only_if_it_did_not_take_place(
    shop: Shop, proxy: Proxy, loss: Loss, attempts: list[str]
) -> None:
    """Tried again, as Airflow does, only when it reported a failure; each try is an attempt."""
    if loss == "answer_not_awaited":
        shop.db.execute(SLOW_COMMIT)
    if not tried(proxy.uri, shop.load(), observe=at("commit:before", lambda: setattr(proxy, "loss", loss))):
        tried(shop.db.uri, shop.load())
    assert [a["outcome"] for a in shop.attempts()] == attempts
    assert shop.wrong() == []


class _TimeIsUpError(BaseException):
    """What Airflow raises wherever the task stands."""


def test_a_task_that_ends_just_after_its_commit(shop: Shop) -> None:
    """Its time is up when the data are committed: what is published stays recorded as published."""

    def stop() -> None:
        raise _TimeIsUpError

    with suppress(_TimeIsUpError):
        tried(shop.db.uri, shop.load(), observe=at("commit:after", stop))
    assert [a["outcome"] for a in shop.attempts()] == ["published", "published"]


def test_rows_that_another_writer_added_meanwhile(shop: Shop) -> None:
    before = shop.rows()
    insert = f"INSERT INTO {shop.target} VALUES (DATE '{FIRST}', 77, 0, 'by hand')"
    tried(shop.db.uri, shop.load(), observe=at("target.insert:after", lambda: shop.db.execute(insert)))
    assert [row for row in shop.rows() if row[1] != 77] == before


def test_a_deferred_trigger_that_deletes_rows(db: Database) -> None:
    """What it leaves is counted before the load is recorded."""
    shop = Shop(db, days=1)
    db.execute(
        "CREATE FUNCTION f() RETURNS trigger LANGUAGE plpgsql AS "
        f"$$ BEGIN DELETE FROM {shop.target} WHERE id = NEW.id AND NEW.id = 2; RETURN NULL; END $$;"
        f"CREATE CONSTRAINT TRIGGER t AFTER INSERT ON {shop.target} DEFERRABLE INITIALLY DEFERRED "
        "FOR EACH ROW EXECUTE FUNCTION f()"
    )
    tried(db.uri, shop.load())
    assert (shop.rows(), shop.partitions()) == ([], [])


def test_a_view_that_shows_another_table_meanwhile(db: Database) -> None:
    """The claim is on the first table: the second one's rows are not touched."""
    shop = Shop(db, days=1)
    view = "CREATE OR REPLACE VIEW seen AS SELECT day, id, amount, note FROM"
    db.execute(f"CREATE TABLE second (LIKE {shop.target}); {view} {shop.target}")
    switch = at("prepare:after", lambda: db.execute(f"{view} second"))
    tried(db.uri, shop.load(table="seen"), observe=switch)
    assert (shop.rows(), shop.rows("second")) == ([], [])


def test_no_stage_outlives_the_commit(shop: Shop) -> None:
    """Its session may be one of a pool, which goes on."""
    child = Child(shop.job(pauses=frozenset({"commit:after"})))
    child.until("commit:after")
    assert stages(shop.db) == []
    over(child)


def test_a_statement_whose_client_is_gone_ends(shop: Shop) -> None:
    child = Child(shop.job(shop.load(pause="pg_sleep(8)")))
    asleep = "SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND wait_event = 'PgSleep'"
    eventually(lambda: child.ended() or shop.db.execute(asleep), 20)
    child.kill()
    tried(shop.db.uri, shop.load(), lock_timeout=4.0)
    assert shop.wrong() == []


def test_a_ledger_that_somebody_makes_meanwhile(db: Database) -> None:
    """Both make it, one of them is refused by the database: it looks again and goes on."""
    shop = Shop(db, days=1)
    child = Child(shop.job(pauses=frozenset({"prepare:before"})))
    child.until("prepare:before")
    somebody = db.connect(autocommit=False)
    somebody.execute("CREATE SCHEMA safe_ops")
    child.go()
    until_blocked(child)
    somebody.commit()
    over(child)
    assert shop.wrong() == []


def test_a_second_ledger_is_not_made(db: Database) -> None:
    """Two ledgers do not exclude each other; this load has seen that there is none before the first was made."""
    shop = Shop(db, days=1)
    child = Child(shop.job(ledger_schema="other", pauses=frozenset({"prepare:before"})))
    child.until("prepare:before")
    with holding(db.uri, "CREATE SCHEMA other"):
        child.go()
        until_blocked(child)
        shop.run()
    over(child)
    assert db.execute("SELECT to_regnamespace('other')") == [(None,)]


def test_pruning_keeps_who_published(shop: Shop) -> None:
    dialect = dialect_for("postgresql")
    session = Session(partial(psycopg.connect, shop.db.uri), dialect, label="safe_ops", comment="")
    session.open()
    with session.transaction() as tx:
        for statement in dialect.ledger.history.prune(0):
            tx.run(statement)
    session.close()
    assert [a["attempt_id"] for a in shop.attempts()] == shop.publishers()
