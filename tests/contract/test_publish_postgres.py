"""A side effect outside the database happens once: a real receiver, a real ledger, every way to lose an answer."""

from __future__ import annotations

import socket
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from airflow_safe_ops import HttpReceiver, SafeRetryPolicy, publish_once
from airflow_safe_ops.errors import (
    FailureClass,
    OtherIntent,
    PublicationNotSent,
    PublicationRefused,
    PublicationUndecided,
    PublicationUnknown,
    ReceiverHasOther,
    SafeOpsError,
)
from airflow_safe_ops.failures.classify import classify
from tests.contract.publications import INTENT, KEY, OTHER, age, die, fails, publish, row, to
from tests.receiver import DROP, LOSE, Receiver, receiving

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.contract.postgres import PostgresWarehouse


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with receiving() as listening:
        yield listening


def test_it_is_sent_once_and_then_told(postgres: PostgresWarehouse, receiver: Receiver) -> None:
    first, again = publish(receiver), publish(receiver)
    assert receiver.effects == [(KEY, INTENT)]
    assert (first.how, first.sends, again.how, again.sends) == ("sent", 1, "recorded", 1)
    assert first.outcome == again.outcome == {"status": 201, "body": {"key": KEY, "accepted": True}}
    assert receiver.keys == [first.idempotency_key] == [again.idempotency_key]
    assert row(postgres) == ("done", "sent", 1)
    assert row(postgres, "intent_hash, dag_id, run_type, user_name IS NOT NULL") == (
        first.intent_hash, "safe-ops", "python", True
    )  # fmt: skip


def test_the_order_of_the_intents_keys_does_not_matter(postgres: PostgresWarehouse, receiver: Receiver) -> None:
    publish(receiver)
    publish(receiver, dict(reversed(INTENT.items())))
    assert len(receiver.effects) == 1


def test_another_intent_under_its_key(postgres: PostgresWarehouse, receiver: Receiver) -> None:
    done = publish(receiver)
    error = fails(OtherIntent, receiver, OTHER)
    assert error.facts["recorded_hash"] == done.intent_hash != error.facts["intent_hash"]
    assert done.intent_hash[:16] in error.what
    assert error.facts["intent_hash"][:16] in error.what
    assert receiver.effects == [(KEY, INTENT)]


def test_receivers_have_keys_of_their_own(postgres: PostgresWarehouse, receiver: Receiver) -> None:
    with receiving() as second:
        publish(receiver, receiver="a")
        publish(second, receiver="b")
        assert (len(receiver.effects), len(second.effects)) == (1, 1)
    assert postgres.ledger("publication", "receiver, state", "ORDER BY 1") == [("a", "done"), ("b", "done")]


@pytest.mark.parametrize("way", ["lookup", "key", "both"])
def test_an_answer_that_is_lost(postgres: PostgresWarehouse, way: str) -> None:
    """apache/airflow#66905: the server did the work and the reply was lost."""
    asks = way != "key"
    with receiving(takes_keys=way != "lookup", will=[LOSE]) as receiver:
        lost = fails(PublicationUnknown, receiver, asks=asks)
        assert not lost.terminal
        assert row(postgres) == ("unknown", None, 1)
        done = publish(receiver, asks=asks)
        assert receiver.effects == [(KEY, INTENT)]
        assert len(set(receiver.keys)) == 1
        assert done.how == ("found" if asks else "sent")
    assert row(postgres, "state") == ("done",)


def test_an_answer_that_is_lost_and_nobody_to_ask(postgres: PostgresWarehouse) -> None:
    with receiving(will=[LOSE]) as receiver:
        for _ in range(3):
            error = fails(PublicationUndecided, receiver, asks=False)
            assert error.terminal
            assert "airflow safe-ops publications settle" in error.fix
        assert receiver.effects == [(KEY, INTENT)]
        assert len(receiver.posts) == 1
        assert row(postgres) == ("undecided", None, 1)
        assert publish(receiver).how == "found"  # the DAG was given a lookup


@pytest.mark.parametrize("way", ["lookup", "key"])
def test_a_connection_that_is_closed_before_anything_is_done(postgres: PostgresWarehouse, way: str) -> None:
    with receiving(takes_keys=way == "key", will=[DROP]) as receiver:
        fails(PublicationUnknown, receiver, asks=way == "lookup")
        assert receiver.effects == []
        assert publish(receiver, asks=way == "lookup").sends == 2
        assert receiver.effects == [(KEY, INTENT)]
        assert len(set(receiver.keys)) == 1


@pytest.mark.parametrize("asks", [True, False])
def test_too_many_requests(postgres: PostgresWarehouse, asks: bool) -> None:
    """apache/airflow#63181: a key that was answered with 429 is not used again."""
    with receiving(takes_keys=True, will=[429]) as receiver:
        error = fails(PublicationNotSent, receiver, asks=asks)
        assert not error.terminal
        assert row(postgres) == ("refused", None, 1)
        assert publish(receiver, asks=asks).how == "sent"
        assert receiver.effects == [(KEY, INTENT)]
        assert len(set(receiver.keys)) == 2


def test_too_many_requests_after_a_lost_answer(postgres: PostgresWarehouse) -> None:
    """The refusal says nothing of the send before it: its key stays."""
    with receiving(takes_keys=True, will=[LOSE, DROP]) as receiver:
        fails(PublicationUnknown, receiver, asks=False)
        fails(PublicationUnknown, receiver, asks=False)
        receiver._answers.clear()  # it answers 429 before it looks at the key
        receiver.will.append(429)
        fails(PublicationUnknown, receiver, asks=False)
        assert row(postgres, "state") == ("unknown",)
        assert len(set(receiver.keys)) == 1


@pytest.mark.parametrize(
    ("status", "asks", "kind"),
    [(422, False, PublicationUndecided), (422, True, PublicationUnknown), (429, False, PublicationUnknown)],
)
def test_a_repeat_that_is_refused_is_not_told_as_not_sent(
    postgres: PostgresWarehouse, status: int, asks: bool, kind: type[SafeOpsError]
) -> None:
    """Whoever believed that would settle it as not sent, and it would be sent twice."""
    with receiving(takes_keys=True, will=[LOSE, status], hides=9) as receiver:
        fails(PublicationUnknown, receiver, asks=asks)
        receiver._answers.clear()  # it refuses before it looks at the key
        error = fails(kind, receiver, asks=asks)
        assert "an earlier one, whose answer was lost, is still open" in error.what
        assert "did not happen" not in str(error)
        assert row(postgres, "state, error_code") == (
            "undecided" if kind is PublicationUndecided else "unknown",
            kind.code,
        )
        assert len(set(receiver.keys)) == 1


def test_a_repeat_that_did_not_leave_is_not_told_as_not_sent(postgres: PostgresWarehouse) -> None:
    with receiving(takes_keys=True, will=[LOSE]) as receiver:
        fails(PublicationUnknown, receiver, asks=False)
        nowhere = HttpReceiver("http://no-such-host.invalid/x", idempotent=True)
        assert "still open" in fails(PublicationUnknown, receiver, to=nowhere).what
        assert row(postgres, "state") == ("unknown",)


def test_the_receiver_says_for_how_long_to_wait(postgres: PostgresWarehouse, receiver: Receiver) -> None:
    pytest.importorskip("airflow.sdk.definitions.retry_policy", reason="Airflow has them since 3.3")
    for status, header, seconds, failure in [
        (429, "1800", 1800, "Resource"),
        (429, "0", 1, "Resource"),
        (503, "1800", 1800, "Transient"),
    ]:
        receiver.retry_after = header
        receiver.will.append(status)
        kind = PublicationNotSent if status == 429 else PublicationUnknown
        decision = SafeRetryPolicy().evaluate(fails(kind, receiver), 1, 5)
        assert decision.retry_delay == timedelta(seconds=seconds)
        assert str(decision.reason).startswith(f"{failure} failure")


@pytest.mark.parametrize("header", ["9" * 400, "Fri, 31 Dec 9999 23:59:59 GMT", "²", "soon", "-5"])
def test_a_receiver_that_says_it_oddly(postgres: PostgresWarehouse, receiver: Receiver, header: str) -> None:
    receiver.retry_after = header
    receiver.will.append(429)
    verdict = classify(fails(PublicationNotSent, receiver))
    assert verdict.failure is FailureClass.RESOURCE
    assert verdict.retry_after in (None, 0, timedelta(days=30).total_seconds())


def test_what_the_receiver_says_is_kept_without_what_the_ledger_refuses(
    postgres: PostgresWarehouse, receiver: Receiver
) -> None:
    receiver.says = b"bad field \x00 value"
    receiver.will.append(422)
    fails(PublicationRefused, receiver)
    state, message = row(postgres, "state, error_message")
    assert state == "refused"
    assert "bad field \ufffd value" in message


def test_a_refusal_is_final_and_is_tried_anew_after_a_clear(postgres: PostgresWarehouse, receiver: Receiver) -> None:
    receiver.will.append(422)
    error = fails(PublicationRefused, receiver)
    assert error.terminal
    assert row(postgres, "state, error_code") == ("refused", "SO-725")
    publish(receiver, OTHER)  # what was refused may be corrected
    assert receiver.effects == [(KEY, OTHER)]
    assert len(set(receiver.keys)) == 2
    assert row(postgres, "state, error_code") == ("done", None)


@pytest.mark.parametrize("status", [500, 502, 503, 408, 302])
def test_a_status_that_says_nothing(postgres: PostgresWarehouse, receiver: Receiver, status: int) -> None:
    receiver.will.append(status)
    fails(PublicationUnknown, receiver)
    publish(receiver)
    assert receiver.effects == [(KEY, INTENT)]
    assert len(set(receiver.keys)) == 1


def test_a_receiver_that_is_not_there(postgres: PostgresWarehouse, receiver: Receiver) -> None:
    """Nobody can be asked, and nobody needs to be: nothing was sent."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        nowhere = HttpReceiver(f"http://127.0.0.1:{free.getsockname()[1]}/x")
    error = fails(PublicationNotSent, receiver, to=nowhere)
    assert not error.terminal
    assert row(postgres) == ("intended", None, 0)
    fails(PublicationNotSent, receiver, to=HttpReceiver("http://no-such-host.invalid/x"))
    assert row(postgres, "sends, keyed_at") == (0, None)
    assert publish(receiver, asks=False).how == "sent"
    assert receiver.effects == [(KEY, INTENT)]


def test_a_keys_age_counts_from_the_send_that_left(postgres: PostgresWarehouse) -> None:
    a_day = timedelta(hours=24)
    with receiving(takes_keys=True, will=[LOSE]) as receiver:
        nowhere = HttpReceiver("http://no-such-host.invalid/x", idempotent=a_day)
        fails(PublicationNotSent, receiver, to=nowhere)
        age(postgres, 90_000)
        fails(PublicationUnknown, receiver, asks=False, idempotent=a_day)
        done = publish(receiver, asks=False, idempotent=a_day)
        assert (done.how, done.sends, receiver.effects) == ("sent", 2, [(KEY, INTENT)])


def test_the_longest_names(postgres: PostgresWarehouse, receiver: Receiver) -> None:
    longest = "".join(chr(0x4E00 + 7919 * at % 20_000) for at in range(341))  # few bytes fewer than may be
    publish_once(longest, INTENT, to=to(receiver), receiver=longest[::-1], conn_id="warehouse")
    assert row(postgres, "business_key, state") == (longest, "done")


def test_already_there_after_a_lost_answer(postgres: PostgresWarehouse) -> None:
    """apache/airflow#66905: 409 for what is the same is success."""
    with receiving(is_unique=True, will=[LOSE], hides=2) as receiver:
        fails(PublicationUnknown, receiver)
        fails(PublicationUnknown, receiver)  # the lookup does not show it yet, and the post is answered with 409
        assert publish(receiver).how == "found"
        assert receiver.effects == [(KEY, INTENT)]


def test_already_there_with_something_else(postgres: PostgresWarehouse) -> None:
    with receiving(is_unique=True) as receiver:
        receiver.effects.append((KEY, OTHER))
        sent_blindly = {"send": to(receiver).send, "lookup": None, "to": None}
        assert fails(PublicationUndecided, receiver, **sent_blindly).terminal
        assert fails(ReceiverHasOther, receiver).terminal
        assert receiver.effects == [(KEY, OTHER)]


def test_somebody_sent_it_by_hand(postgres: PostgresWarehouse, receiver: Receiver) -> None:
    receiver.effects.append((KEY, INTENT))
    done = publish(receiver)
    assert (done.how, done.sends, receiver.posts) == ("found", 0, [])
    assert row(postgres) == ("done", "found", 0)


def test_somebody_sent_something_else_by_hand(postgres: PostgresWarehouse, receiver: Receiver) -> None:
    receiver.effects.append((KEY, OTHER))
    fails(ReceiverHasOther, receiver)
    assert receiver.posts == []
    assert row(postgres, "state, error_code") == ("intended", "SO-723")
    receiver.effects.clear()
    publish(receiver)
    assert receiver.effects == [(KEY, INTENT)]


def test_a_lookup_that_shows_it_late(postgres: PostgresWarehouse) -> None:
    with receiving(will=[LOSE], hides=1) as receiver:
        fails(PublicationUnknown, receiver)
        assert publish(receiver, settle=3.0).how == "found"
        assert receiver.effects == [(KEY, INTENT)]
        assert len(receiver.lookups) == 3


def test_settling_is_not_waited_for_where_the_key_is_known(postgres: PostgresWarehouse) -> None:
    with receiving(takes_keys=True, will=[LOSE], hides=99) as receiver:
        fails(PublicationUnknown, receiver)
        assert publish(receiver, settle=60).how == "sent"
        assert receiver.effects == [(KEY, INTENT)]


def test_a_key_that_the_receiver_has_forgotten(postgres: PostgresWarehouse) -> None:
    with receiving(takes_keys=True, will=[LOSE]) as receiver:
        fails(PublicationUnknown, receiver, asks=False, idempotent=timedelta(hours=24))
        age(postgres, 90_000)
        fails(PublicationUndecided, receiver, asks=False, idempotent=timedelta(hours=24))
        assert len(receiver.posts) == 1


@pytest.mark.parametrize(
    ("asks", "takes_keys", "was_done", "posts", "state"),
    [
        (True, False, True, 0, "done"),
        (True, False, False, 1, "done"),
        (False, True, False, 1, "done"),
        (False, False, False, 0, "undecided"),
    ],
)
def test_a_publisher_that_died(
    postgres: PostgresWarehouse, asks: bool, takes_keys: bool, was_done: bool, posts: int, state: str
) -> None:
    with receiving(takes_keys=takes_keys, will=[400]) as receiver:
        fails(PublicationRefused, receiver)
        receiver.posts.clear()
        receiver._answers.clear()
        die(postgres)
        if was_done:
            receiver.effects.append((KEY, INTENT))
        if state == "done":
            publish(receiver, asks=asks)
            assert receiver.effects == [(KEY, INTENT)]
        else:
            fails(PublicationUndecided, receiver, asks=asks)
        assert len(receiver.posts) == posts
    assert row(postgres, "state") == (state,)


def test_another_intent_while_the_first_is_unknown(postgres: PostgresWarehouse) -> None:
    with receiving(will=[LOSE]) as receiver:
        fails(PublicationUnknown, receiver)
        fails(OtherIntent, receiver, OTHER)
        assert receiver.effects == [(KEY, INTENT)]


def test_eight_at_once(postgres: PostgresWarehouse, receiver: Receiver) -> None:
    with ThreadPoolExecutor(8) as pool:
        done = [future.result() for future in [pool.submit(publish, receiver, asks=False) for _ in range(8)]]
    assert receiver.effects == [(KEY, INTENT)]
    assert sorted(one.how for one in done) == ["recorded"] * 7 + ["sent"]
