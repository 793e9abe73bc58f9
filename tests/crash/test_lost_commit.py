"""The connection breaks at COMMIT: what is reported is what happened, and nothing is there twice."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from tests.crash.harness import Child, Outcome
from tests.crash.proxy import Loss, Proxy
from tests.crash.warehouse import Shop

if TYPE_CHECKING:
    from tests.conftest import Database

BOTH = pytest.mark.parametrize("strategy", ["delete_insert", "merge"])


@pytest.fixture
def proxy(db: Database) -> Iterator[Proxy]:
    proxy = Proxy(db.folder, db.name)
    yield proxy
    proxy.close()


def _load_through(proxy: Proxy, shop: Shop, loss: Loss, strategy: str, driver: str, timeout: float = 20) -> Outcome:
    """One load whose COMMIT of data and ledger meets the loss."""
    job = shop.job(shop.load(strategy=strategy), driver=driver, pauses=frozenset({"commit:before"}))
    child = Child(type(job)(**{**vars(job), "uri": proxy.uri}))
    child.until("commit:before")
    proxy.loss = loss
    child.go()
    outcome = child.outcome(timeout)
    assert proxy.lost == 1
    return outcome


@BOTH
def test_a_lost_answer_is_still_success(db: Database, proxy: Proxy, driver: str, strategy: str) -> None:
    shop = Shop(db)
    shop.run()
    shop.new_version()
    outcome = _load_through(proxy, shop, "answer", strategy, driver)
    assert outcome.published, outcome.error
    assert outcome.partitions[0]["rows_after"] == len(shop.rows())
    assert shop.wrong() == []
    assert [a["outcome"] for a in shop.attempts()] == ["published", "published"]
    assert shop.publishers() == [outcome.partitions[0]["attempt_id"]]


def test_a_commit_still_under_way_is_waited_for(db: Database, proxy: Proxy, driver: str) -> None:
    """The server takes its time to commit: whoever asks what became of it must not be told too early."""
    shop = Shop(db)
    db.execute(
        "CREATE FUNCTION slowly() RETURNS trigger LANGUAGE plpgsql AS "
        "$$ BEGIN PERFORM pg_sleep(0.3); RETURN NULL; END $$;"
        f"CREATE CONSTRAINT TRIGGER slow AFTER INSERT ON {shop.target} DEFERRABLE INITIALLY DEFERRED "
        "FOR EACH ROW EXECUTE FUNCTION slowly()"
    )
    outcome = _load_through(proxy, shop, "answer_not_awaited", "delete_insert", driver)
    assert outcome.published, outcome.error
    assert outcome.seconds > 1
    assert shop.wrong() == []
    assert [a["outcome"] for a in shop.attempts()] == ["published"]


@BOTH
def test_a_commit_that_never_arrived_is_a_failure_that_heals(
    db: Database, proxy: Proxy, driver: str, strategy: str
) -> None:
    shop = Shop(db)
    shop.run()
    before = shop.rows()
    shop.new_version()
    outcome = _load_through(proxy, shop, "request", strategy, driver)
    assert (outcome.code, outcome.terminal) == ("SO-403", False)
    assert shop.rows() == before
    assert shop.claims() == []
    attempts = shop.attempts()
    assert [(a["outcome"], a["error_code"]) for a in attempts] == [("published", None), ("failed", "SO-403")]
    assert Child(shop.job(shop.load(strategy=strategy), driver=driver)).outcome().published
    assert shop.wrong() == []
    assert [a["outcome"] for a in shop.attempts()] == ["published", "failed", "published"]


@pytest.mark.long
def test_a_server_that_never_learns_of_it(db: Database, proxy: Proxy, driver: str) -> None:
    """The network swallows COMMIT and the goodbye: the server ends the transaction by itself within a minute."""
    shop = Shop(db)
    shop.run()
    before = shop.rows()
    shop.new_version()
    outcome = _load_through(proxy, shop, "everything", "delete_insert", driver, timeout=90)
    assert not outcome.published
    assert not outcome.terminal
    assert shop.rows() == before
    again = Child(shop.job(driver=driver)).outcome()
    assert again.published, again.error
    assert again.seconds < 5
    assert shop.wrong() == []
