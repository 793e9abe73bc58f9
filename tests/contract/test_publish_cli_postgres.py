"""What people do about publications: list them, settle them, prune the ledger, bring an older one up to date."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from threading import Timer
from typing import TYPE_CHECKING, Any

import pytest

from airflow_safe_ops.errors import PublicationRefused, PublicationUndecided
from airflow_safe_ops.sql.ledger import LedgerSql
from airflow_safe_ops.sql.ledger_tables import MIGRATIONS
from tests.contract.command_line import CONN, json_of
from tests.contract.publications import KEY, age, die, fails, publish, row
from tests.receiver import HANG, LOSE, Receiver, receiving

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.contract.postgres import PostgresWarehouse


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with receiving() as listening:
        yield listening


@pytest.mark.parametrize(("said", "posts", "state"), [("done", 1, "done"), ("not-sent", 2, "intended")])
def test_a_person_settles_it(new_postgres: PostgresWarehouse, cli: Any, said: str, posts: int, state: str) -> None:
    with receiving(will=[LOSE]) as receiver:
        fails(PublicationUndecided, receiver, asks=False)
        code, out, err = cli("publications", "list", *CONN, "--state", "undecided")
        assert code == 0, err
        assert (KEY in out, "SO-724" in out) == (True, True)
        code, out, err = cli("publications", "settle", KEY, *CONN, "--as", said, "--reason", "asked Ms. Kim")
        assert code == 0, err
        assert row(new_postgres, "state, reason, error_code, settled_by IS NULL") == (
            state, "asked Ms. Kim", None, False
        )  # fmt: skip
        assert publish(receiver, asks=False).how == ("settled" if said == "done" else "sent")
        assert len(receiver.posts) == posts == len(set(receiver.keys))
    assert cli("publications", "list", *CONN, "--state", "undecided")[1] == "The ledger knows no such publication.\n"


def test_a_reason_that_the_ledger_cannot_hold(new_postgres: PostgresWarehouse, cli: Any, receiver: Receiver) -> None:
    """A byte of another encoding on the command line."""
    publish(receiver)
    code, _, err = cli("publications", "settle", KEY, *CONN, "--as", "not-sent", "--reason", "asked M\udcfcller")
    assert (code, err) == (0, "")
    assert row(new_postgres, "state, reason") == ("intended", "asked M?ller")


def test_what_a_lookup_finds_is_not_sent_anew(new_postgres: PostgresWarehouse, cli: Any, receiver: Receiver) -> None:
    """As settle says: the receiver must drop it first."""
    publish(receiver)
    settle = ("publications", "settle", KEY, *CONN, "--as", "not-sent", "--reason", "they lost it")
    assert "unless a lookup finds it" in cli(*settle)[1]
    assert publish(receiver).how == "found"
    cli(*settle)
    receiver.effects.clear()
    assert publish(receiver).how == "sent"


def test_what_a_person_may_not_settle(new_postgres: PostgresWarehouse, cli: Any, receiver: Receiver) -> None:
    publish(receiver)
    for key, reason in (("other", "x"), (KEY, " ")):
        code, out, err = cli("publications", "settle", key, *CONN, "--as", "done", "--reason", reason)
        assert (code, out, bool(err)) == (1, "", True)
    assert row(new_postgres) == ("done", "sent", 1)


def test_pruning_leaves_publications(new_postgres: PostgresWarehouse, cli: Any, receiver: Receiver) -> None:
    publish(receiver)
    age(new_postgres, 1e9)
    assert cli("ledger", "prune", *CONN, "--keep", "1d", "--yes")[0] == 0
    publish(receiver)
    assert len(receiver.effects) == 1


def test_a_publisher_that_died_is_listed_as_unknown(new_postgres: PostgresWarehouse, cli: Any) -> None:
    with receiving(will=[400]) as receiver:
        fails(PublicationRefused, receiver)
    die(new_postgres)
    code, out, _ = cli("publications", "list", *CONN, "--output", "json")
    assert (code, '"state": "unknown"' in out) == (0, True)


def test_a_ledger_of_before_publications(new_postgres: PostgresWarehouse, cli: Any, receiver: Receiver) -> None:
    """The third version made it; the first publication brings it up to date, and what it knew stays."""
    sql = LedgerSql("safe_ops")
    for statement in sql.create_schema():
        new_postgres.execute(str(statement))
    for migration in MIGRATIONS[:3]:
        for statement in sql.migrate(migration)[:-1]:
            new_postgres.execute(str(statement))
        new_postgres.execute(sql.record_literally(migration))
    new_postgres.execute("INSERT INTO safe_ops.safe_ops_target (identity) VALUES ('known')")
    code, _, err = cli("publications", "list", *CONN)
    assert (code, err[:6]) == (1, "SO-504")
    publish(receiver)
    assert row(new_postgres) == ("done", "sent", 1)
    assert new_postgres.ledger("target", "identity") == [("known",)]
    assert new_postgres.ledger("schema", "max(number)") == [(MIGRATIONS[-1].number,)]


def test_no_ledger(new_postgres: PostgresWarehouse, cli: Any) -> None:
    for command in (["list"], ["settle", KEY, "--as", "done", "--reason", "x"]):
        code, out, err = cli("publications", *command, *CONN)
        assert (code, out, err[:6]) == (1, "", "SO-500")


def test_listed_by_receiver_and_key(new_postgres: PostgresWarehouse, cli: Any, receiver: Receiver) -> None:
    for name in ("a", "b"):
        with receiving() as other:
            publish(other, receiver=name)
    listed = ("publications", "list", *CONN, "--output", "json")
    assert [line["receiver"] for line in json_of(cli(*listed))] == ["a", "b"]
    assert [line["state"] for line in json_of(cli(*listed, "--receiver", "b", "--key", KEY))] == ["done"]
    assert json_of(cli(*listed, "--receiver", "c")) == []
    assert [line["receiver"] for line in json_of(cli(*listed, "--limit", "1"))] == ["b"]


def test_a_person_waits_for_a_publisher(new_postgres: PostgresWarehouse, cli: Any, receiver: Receiver) -> None:
    """What it is about to record is not overtaken."""
    receiver.will.append(HANG)
    with ThreadPoolExecutor(1) as pool:
        publishing = pool.submit(publish, receiver)
        while not receiver.effects:
            assert not publishing.done()
        Timer(0.5, receiver.go_on.set).start()
        code, out, err = cli("publications", "settle", KEY, *CONN, "--as", "not-sent", "--reason", "impatient")
        assert (code, "was done" in out) == (0, True), err
        assert publishing.result().how == "sent"
    assert row(new_postgres, "state") == ("intended",)
