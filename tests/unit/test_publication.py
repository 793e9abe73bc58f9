"""What is decided of a side effect outside the database, before anything is sent."""

from __future__ import annotations

import json
import math
from datetime import date, timedelta
from itertools import product
from types import MappingProxyType, SimpleNamespace
from typing import Any

import pytest
from airflow.sdk import DAG, task

from airflow_safe_ops import FileReceiver, Found, HttpReceiver, PublishOnceOperator
from airflow_safe_ops.definition.publication import (
    AlreadyThere,
    Publication,
    Refused,
    holds,
    outcome_text,
    wait_as_header,
)
from airflow_safe_ops.errors import InvalidPublication, OtherIntent, PublicationUndecided, ReceiverHasOther
from airflow_safe_ops.ledger.store import _failure
from airflow_safe_ops.ledger.text import storable
from airflow_safe_ops.plan.publication import (
    Known,
    Move,
    State,
    can_repeat,
    judge_found,
    needs_new_key,
    next_move,
    seconds_to_settle,
    stays_in_doubt,
)
from airflow_safe_ops.publish.http import UnclearAnswerError, judge_answer

INTENT = {"day": "2026-01-01", "rows": 3}
ONE = Publication("one", INTENT)
KEYED = Publication("one", INTENT, idempotent=True)


def known(state: State, **more: Any) -> Known:
    return Known(**{"state": state, "intent_hash": ONE.intent_hash, "idempotency_key": "k", **more})


@pytest.mark.parametrize("key", ["", " ", "a ", "a\nb", "a\x00", "\ud800", "x" * 513, "訂" * 512, None, 7, b"a"])
def test_what_is_no_key(key: Any) -> None:
    with pytest.raises(InvalidPublication, match="key is"):
        Publication(key, INTENT)


@pytest.mark.parametrize("key", ["a", "orders/2026-01-01 EU", "Aufträge 2026", "x" * 512, "訂" * 341])
def test_what_is_a_key(key: str) -> None:
    assert Publication(key, INTENT).key == key


@pytest.mark.parametrize(
    "intent",
    [
        None,
        {"day": date(2026, 1, 1)},
        {"rows": {1, 2}},
        {1: "a"},
        {"a": [{"b": object()}]},
        float("nan"),
        [float("inf")],
        b"bytes",
        "x" * 1_000_001,
        lambda: None,
    ],
)
def test_what_is_no_intent(intent: Any) -> None:
    with pytest.raises(InvalidPublication, match="intent"):
        Publication("one", intent)


def test_an_intent_that_holds_itself() -> None:
    intent: list[Any] = []
    intent.append(intent)
    with pytest.raises(InvalidPublication, match="intent"):
        Publication("one", intent)


def test_one_hash_for_one_meaning() -> None:
    same = [{"a": 1, "b": [1, 2]}, {"b": [1, 2], "a": 1}, {"b": (1, 2), "a": 1}]
    other = [{"a": 1.5, "b": [1, 2]}, {"a": "1", "b": [1, 2]}, {"a": True, "b": [1, 2]}, {"b": [2, 1], "a": 1}]
    hashes = [Publication("one", intent).intent_hash for intent in (*same, *other)]
    assert len(set(hashes[: len(same)])) == 1
    assert len(set(hashes)) == 1 + len(other)


def test_other_mappings_are_refused_or_taken_whole() -> None:
    with pytest.raises(InvalidPublication):
        Publication("one", MappingProxyType({"a": 1}))


@pytest.mark.parametrize("settle", [-1, float("nan"), float("inf"), "5", None, True])
def test_what_is_no_time_to_settle(settle: Any) -> None:
    with pytest.raises(InvalidPublication, match="settle"):
        Publication("one", INTENT, settle=settle)


@pytest.mark.parametrize("idempotent", [None, 1, "yes", timedelta(0), timedelta(days=-1)])
def test_what_says_nothing_about_keys(idempotent: Any) -> None:
    with pytest.raises(InvalidPublication, match="idempotent"):
        Publication("one", INTENT, idempotent=idempotent)


@pytest.mark.parametrize(
    ("there", "intent", "same"),
    [
        ({"a": 1, "id": 7}, {"a": 1}, True),
        ({"a": {"b": [1], "c": 2}}, {"a": {"b": [1]}}, True),
        ({"a": 1.0}, {"a": 1}, True),
        ({"a": [1, 2, 3]}, {"a": [1, 2]}, False),
        ({"a": [{"b": 1, "id": 1}]}, {"a": [{"b": 1}]}, True),
        ({"a": True}, {"a": 1}, False),
        ({"a": 0}, {"a": False}, False),
        ({"a": "1"}, {"a": 1}, False),
        ({}, {"a": None}, False),
        ([], {"a": 1}, False),
        ("x", "x", True),
    ],
)
def test_whether_the_receiver_holds_it(there: Any, intent: Any, same: bool) -> None:
    assert holds(there, intent) is same


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (200, None),
        (201, None),
        (204, None),
        (301, UnclearAnswerError),
        (400, Refused),
        (401, Refused),
        (404, Refused),
        (408, UnclearAnswerError),
        (409, AlreadyThere),
        (422, Refused),
        (425, UnclearAnswerError),
        (429, Refused),
        (500, UnclearAnswerError),
        (503, UnclearAnswerError),
    ],
)
def test_what_a_status_says(status: int, kind: type[Exception] | None) -> None:
    if kind is None:
        judge_answer(status, "")
        return
    with pytest.raises(kind) as raised:
        judge_answer(status, "said")
    assert getattr(raised.value, "again", False) is (status == 429)


@pytest.mark.parametrize("state", State)
def test_what_is_done_with_each_state(state: State) -> None:
    moves = [next_move(known(state, idle=idle), ONE, grace=5) for idle in (1.0, 9.0)]
    expected = {State.DONE: [Move.TELL] * 2, State.SENDING: [Move.WAIT, Move.ASK]}
    assert moves == expected.get(state, [Move.ASK] * 2)


@pytest.mark.parametrize("state", State)
def test_another_intent_may_only_replace_what_was_not_sent(state: State) -> None:
    other = Publication("one", {**INTENT, "rows": 4})
    if state in (State.INTENDED, State.REFUSED):
        assert next_move(known(state), other, grace=5) == Move.ASK
        assert needs_new_key(known(state), other)
        return
    with pytest.raises(OtherIntent):
        next_move(known(state, idle=9.0), other, grace=5)


@pytest.mark.parametrize(("state", "was_asked", "publication"), list(product(State, [True, False], [ONE, KEYED])))
def test_it_is_never_sent_again_where_nobody_could_tell(
    state: State, was_asked: bool, publication: Publication
) -> None:
    """apache/airflow#63181: the key stays while the outcome is unknown."""
    now = known(state, key_age=1.0, idle=9.0)
    may = can_repeat(now, publication, was_asked=was_asked)
    assert may is (not now.is_unknown or was_asked or publication is KEYED)
    if now.is_unknown:
        assert not needs_new_key(now, publication)
    assert needs_new_key(now, publication) is (state == State.REFUSED)


def test_a_negative_lookup_ends_the_doubt_where_it_was_believed() -> None:
    unknown = known(State.UNKNOWN, key_age=1.0)
    assert not stays_in_doubt(unknown, ONE, was_asked=True)
    assert stays_in_doubt(unknown, KEYED, was_asked=True)  # it was not waited for
    assert stays_in_doubt(unknown, KEYED, was_asked=False)
    assert not stays_in_doubt(known(State.REFUSED), KEYED, was_asked=False)


@pytest.mark.parametrize(
    ("state", "quiet", "publication", "seconds"),
    [
        (State.UNKNOWN, 10.0, ONE, 50.0),
        (State.UNKNOWN, 70.0, ONE, 0.0),
        (State.SENDING, 59.0, ONE, 1.0),
        (State.UNKNOWN, 10.0, KEYED, 0.0),
        (State.INTENDED, None, ONE, 0.0),
        (State.REFUSED, 1.0, ONE, 0.0),
    ],
)
def test_how_long_a_negative_lookup_is_not_believed(
    state: State, quiet: float | None, publication: Publication, seconds: float
) -> None:
    assert seconds_to_settle(known(state, quiet=quiet, key_age=1.0), publication) == seconds


def test_a_key_that_the_receiver_forgot_is_none() -> None:
    forgets = Publication("one", INTENT, idempotent=timedelta(hours=1))
    assert can_repeat(known(State.UNKNOWN, key_age=3599.0), forgets, was_asked=False)
    assert not can_repeat(known(State.UNKNOWN, key_age=3601.0), forgets, was_asked=False)


@pytest.mark.parametrize(
    ("found", "kind"),
    [
        (Found(INTENT), None),
        (Found(same=True), None),
        (Found(same=lambda intent: intent["rows"] == 3), None),
        (Found({"rows": 3}), ReceiverHasOther),
        (Found(same=False), ReceiverHasOther),
        (Found(), PublicationUndecided),
        (Found(same=lambda intent: intent["none"]), InvalidPublication),
    ],
)
def test_what_is_found(found: Found, kind: type[Exception] | None) -> None:
    error = judge_found(found, ONE)
    assert (type(error) if error else None) is kind


@pytest.mark.parametrize(
    "options",
    [
        {"url": "partner.example/x"},
        {"url": "/x"},
        {"url": "ftp://x/y"},
        {"url": ""},
        {"url": "https://x/y", "lookup_url": "https://x/y"},
        {"url": "https://x/y", "lookup_url": "/y/{key}"},
    ],
)
def test_what_is_no_http_receiver(options: dict[str, Any]) -> None:
    with pytest.raises(InvalidPublication):
        HttpReceiver(**options)


@pytest.mark.parametrize("name", ["report.json", "a/{key}"])
def test_what_is_no_file(name: str) -> None:
    with pytest.raises(InvalidPublication):
        FileReceiver("/tmp", name)  # noqa: S108 - nothing is written


def send(*_args: Any) -> None:
    """Send nothing."""


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"send": "send"},
        {"send": send, "lookup": "lookup"},
        {"send": send, "to": HttpReceiver("https://x/y")},
        {"send": send, "key": ""},
        {"send": send, "intent": {"day": date(2026, 1, 1)}},
        {"send": send, "not_sent": (Exception,)},
        {"send": send, "not_sent": ("ConnectionError",)},
        {"send": send, "settle": -1},
        {"send": send, "idempotent": "yes"},
        {"to": object()},
    ],
)
def test_what_the_operator_refuses_when_it_is_parsed(options: dict[str, Any]) -> None:
    with pytest.raises(InvalidPublication):
        PublishOnceOperator(task_id="t", conn_id="dwh", **{"key": "one", "intent": INTENT, **options})


def test_what_is_rendered_later_is_not_judged_early() -> None:
    task = PublishOnceOperator(
        task_id="t", conn_id="dwh", key="{{ ds }}", intent={"day": "{{ ds }}"}, receiver="{{ params.to }}", send=send
    )
    assert task.safe_to_repeat


def test_what_other_tasks_return_may_stand_anywhere_in_the_intent() -> None:
    """A DAG file with it parses, and the task waits for them and gets what they returned."""

    @task
    def report() -> dict[str, int]:
        return {"x": 3}

    with DAG(dag_id="reports", schedule=None):
        given: Any = report()
        intents: list[Any] = [{"rows": given}, [given], {"rows": given["x"]}, {"a": ({"b": [given["x"]]}, "{% %}")}]
        tasks = [
            PublishOnceOperator(task_id=f"send_{at}", conn_id="dwh", key="one", intent=intent, send=send)
            for at, intent in enumerate(intents)
        ]
    assert [one.upstream_task_ids for one in tasks] == [{"report"}] * 4
    context: Any = {"ti": SimpleNamespace(xcom_pull=lambda **how: {"x": 3}[how["key"]])}
    tasks[2].render_template_fields(context)
    assert tasks[2].intent == {"rows": 3}


def test_an_intent_of_known_parts_is_judged_when_it_is_parsed() -> None:
    holds_itself: list[Any] = []
    holds_itself.append(holds_itself)
    for intent in ({"rows": [date(2026, 1, 1)]}, {"rows": ({1: "{"},)}, holds_itself):
        with pytest.raises(InvalidPublication):
            PublishOnceOperator(task_id="t", conn_id="dwh", key="one", intent=intent, send=send)


class Untold:
    """An object that cannot be told."""

    def __str__(self) -> str:
        raise LookupError

    __repr__ = __str__


@pytest.mark.parametrize("outcome", [Untold(), {"a": [Untold()]}, (10**5000,), [math.nan], "\ud800\x00"], ids=range(5))
def test_any_answer_can_be_kept(outcome: Any) -> None:
    assert json.loads(outcome_text(outcome)) is not None
    assert outcome_text(outcome).isascii()


@pytest.mark.parametrize(
    ("seconds", "header"),
    [
        (1800, "1800"),
        (0.2, "1"),
        (0, "0"),
        (math.inf, "2592000"),
        (1e300, "2592000"),
        (-1, None),
        (math.nan, None),
        (None, None),
        ("5", None),
        (True, None),
    ],
)
def test_how_long_a_receiver_may_ask_to_wait(seconds: Any, header: str | None) -> None:
    assert wait_as_header(seconds).get("Retry-After") == header


@pytest.mark.parametrize("text", ["a\x00b", "a\ud800b", "\udc80\x00"])
def test_text_that_the_ledger_cannot_hold(text: str) -> None:
    kept = storable(text)
    assert "\x00" not in kept
    assert len(kept.encode()) >= len(text)
    assert storable("Aufträge 訂") == "Aufträge 訂"
    assert _failure(ValueError(text))["error_message"] == kept
