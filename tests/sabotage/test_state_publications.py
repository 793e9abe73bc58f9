"""What a receiver and the ledger hold after publications: the receiver is a table that a send inserts into."""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

import psycopg

from airflow_safe_ops.definition.publication import Found, Publication, Refused
from airflow_safe_ops.errors import SafeOpsError
from airflow_safe_ops.execution.courier import Courier
from airflow_safe_ops.execution.publish import Publisher
from airflow_safe_ops.ledger.claims import Patience
from airflow_safe_ops.sql.dialect import dialect_for
from tests.sabotage.scene import RUN, Observer, at

if TYPE_CHECKING:
    from tests.conftest import Database

LOST, LATER = "lost", "later"


@dataclass
class Partner:
    """
    A receiver that keeps what it gets in the table ``inbox``, and its answers by Idempotency-Key in ``answers``.

    :param will: what becomes of the next answers: lost, or a refusal for now that is remembered with its key.
    """

    db: Database
    takes_keys: bool = False
    asked: bool = False
    will: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.db.execute("CREATE TABLE inbox (key text); CREATE TABLE answers (id text PRIMARY KEY, said text)")

    def send(self, key: str, _intent: Any, idempotency_key: str) -> str:
        will = self.will.pop(0) if self.will else ""
        known = self.db.execute("SELECT said FROM answers WHERE id = %s", (idempotency_key,))
        said = known[0][0] if known and self.takes_keys else will
        if not known:
            self.db.execute("INSERT INTO answers VALUES (%s, %s)", (idempotency_key, said if said == LATER else ""))
        if said == LATER or will == LATER:
            raise Refused("too many requests", again=True)
        if not (known and self.takes_keys):
            self.db.execute("INSERT INTO inbox VALUES (%s)", (key,))
        if will == LOST:
            raise ConnectionResetError
        return "taken"

    def lookup(self, key: str) -> Found | None:
        return Found(same=True) if self.db.execute("SELECT 1 FROM inbox WHERE key = %s", (key,)) else None

    def publish(self, *, observe: Observer = lambda _step, _when: None, lock_timeout: float = 20.0) -> None:
        """One try, whatever comes of it."""
        publisher = Publisher(
            Courier(
                Publication("one", {"rows": 3}, idempotent=self.takes_keys, settle=0),
                self.lookup if self.asked else None,
                self.send,
            ),
            RUN,
            partial(psycopg.connect, self.db.uri),
            dialect_for("postgresql"),
            Patience(lock_timeout, 0.2),
            observe=observe,
        )
        with suppress(SafeOpsError):
            publisher.execute()


def _tried(times: int, partner: Partner) -> None:
    for _ in range(times):
        partner.publish()


def test_it_is_looked_up_after_a_lost_answer(db: Database) -> None:
    _tried(3, Partner(db, asked=True, will=[LOST]))
    assert db.execute("SELECT key FROM inbox") == [("one",)]


def test_it_has_one_key_while_its_outcome_is_unknown(db: Database) -> None:
    _tried(3, Partner(db, takes_keys=True, will=[LOST, LOST]))
    assert db.execute("SELECT key FROM inbox") == [("one",)]


def test_nobody_sends_again_what_nobody_can_tell(db: Database) -> None:
    _tried(3, Partner(db, will=[LOST]))
    assert db.execute("SELECT key FROM inbox") == [("one",)]
    assert db.execute("SELECT state, sends FROM safe_ops.safe_ops_publication") == [("undecided", 1)]


def test_a_refused_key_is_not_used_again(db: Database) -> None:
    _tried(2, Partner(db, takes_keys=True, will=[LATER]))
    assert db.execute("SELECT key FROM inbox") == [("one",)]


def test_a_refusal_says_nothing_of_the_send_before_it(db: Database) -> None:
    _tried(3, Partner(db, takes_keys=True, will=[LOST, LATER]))
    assert db.execute("SELECT key FROM inbox") == [("one",)]


def test_one_publisher_at_a_time(db: Database) -> None:
    partner = Partner(db, asked=True)

    def another() -> None:
        time.sleep(0.5)  # longer than an owner that does not begin is left alone
        partner.publish(lock_timeout=1.0)

    partner.publish(observe=at("publish.send:before", another))
    assert db.execute("SELECT key FROM inbox") == [("one",)]


def test_a_send_is_on_record_before_it_is_made(db: Database) -> None:
    """As another connection sees it."""
    partner, seen = Partner(db), list[Any]()

    def look() -> None:
        seen.extend(db.execute("SELECT state FROM safe_ops.safe_ops_publication"))

    partner.publish(observe=at("publish.send:before", look))
    assert db.execute("SELECT key FROM inbox") == [("one",)]
    assert (seen, db.execute("SELECT state FROM safe_ops.safe_ops_publication")) == ([("sending",)], [("done",)])
