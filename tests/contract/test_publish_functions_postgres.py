"""Lookups and sends of the author's own, and files: whatever they return or raise, nothing is sent twice."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from airflow_safe_ops import AlreadyThere, FileReceiver, Found, HttpReceiver, NotSent, Refused, publish_once
from airflow_safe_ops.errors import (
    FailureClass,
    InvalidPublication,
    LookupFailed,
    PublicationNotSent,
    PublicationRefused,
    PublicationUndecided,
    PublicationUnknown,
    ReceiverHasOther,
    SafeOpsError,
)
from airflow_safe_ops.failures.classify import classify
from tests.contract.publications import INTENT, KEY, OTHER, row
from tests.receiver import receiving

if TYPE_CHECKING:
    from pathlib import Path

    from tests.contract.postgres import PostgresWarehouse


def by_functions(lookup: Any, send: Any, **more: Any) -> Any:
    return publish_once(KEY, INTENT, lookup, send, conn_id="warehouse", settle=0, **more)


@pytest.mark.parametrize("answer", [True, False, {}, {"rows": 3}, [], "yes", 1])
def test_a_lookup_that_returns_rubbish(postgres: PostgresWarehouse, answer: Any) -> None:
    sent: list[Any] = []
    with pytest.raises(InvalidPublication, match="returned"):
        by_functions(lambda _key: answer, lambda *args: sent.append(args))
    assert sent == []
    assert row(postgres, "state") == ("intended",)


def test_a_lookup_that_fails(postgres: PostgresWarehouse) -> None:
    sent: list[Any] = []

    def lookup(_key: str) -> None:
        raise ValueError("no JSON")

    with pytest.raises(LookupFailed) as failed:
        by_functions(lookup, lambda *args: sent.append(args))
    assert isinstance(failed.value.__cause__, ValueError)
    assert (sent, row(postgres, "state")) == ([], ("intended",))


def test_what_cannot_be_compared(postgres: PostgresWarehouse) -> None:
    sent: list[Any] = []
    for found in (Found(), Found(outcome="there")):
        with pytest.raises(PublicationUndecided):
            by_functions(lambda _key, found=found: found, lambda *args: sent.append(args))
    assert by_functions(lambda _key: Found(same=lambda intent: intent == INTENT), sent.append).how == "found"
    assert sent == []


@pytest.mark.parametrize(
    ("error", "kind", "state"),
    [
        (NotSent("no line"), PublicationNotSent, "intended"),
        (TimeoutError(), PublicationNotSent, "intended"),
        (Refused("no"), PublicationRefused, "refused"),
        (Refused("later", again=True), PublicationNotSent, "refused"),
        (AlreadyThere("there"), PublicationUnknown, "unknown"),
        (ConnectionResetError(), PublicationUnknown, "unknown"),
        (KeyError("odd"), PublicationUnknown, "unknown"),
    ],
)
def test_what_send_raises(postgres: PostgresWarehouse, error: Exception, kind: type[SafeOpsError], state: str) -> None:
    def send(*_args: Any) -> None:
        raise error

    with pytest.raises(kind) as failed:
        by_functions(lambda _key: None, send, not_sent=(TimeoutError,))
    assert failed.value.__cause__ is error
    assert row(postgres, "state, error_code") == (state, kind.code)


@pytest.mark.parametrize("outcome", [None, {"a": 1}, object(), {1: {2}}, "x" * 50_000])
def test_whatever_send_returns_is_kept_as_it_can_be(postgres: PostgresWarehouse, outcome: Any) -> None:
    first = by_functions(None, lambda *_args: outcome)
    again = by_functions(None, lambda *_args: pytest.fail("sent again"))
    assert first.outcome == again.outcome
    assert len(row(postgres, "outcome")[0]) < 8100


def test_send_may_change_what_it_is_given(postgres: PostgresWarehouse) -> None:
    intent = {"rows": [1, 2]}
    publish_once(KEY, intent, None, lambda _key, given, _id: given["rows"].clear(), conn_id="warehouse")
    assert intent == {"rows": [1, 2]}
    assert row(postgres, "intent") == ('{"rows":[1,2]}',)


def test_a_file_is_written_once(postgres: PostgresWarehouse, tmp_path: Path) -> None:
    receiver = FileReceiver(str(tmp_path))
    how: dict[str, Any] = {"conn_id": "warehouse", "to": receiver}
    publish_once(KEY, INTENT, **how)
    (file,) = tmp_path.iterdir()
    assert file.name == "orders%2F2026-01-01.json"
    before = file.stat().st_mtime_ns
    assert publish_once(KEY, INTENT, **how).how == "recorded"
    postgres.execute("DELETE FROM safe_ops.safe_ops_publication")
    assert publish_once(KEY, INTENT, **how).how == "found"
    postgres.execute("DELETE FROM safe_ops.safe_ops_publication")
    with pytest.raises(ReceiverHasOther):
        publish_once(KEY, OTHER, **how)
    assert [path.stat().st_mtime_ns for path in tmp_path.iterdir()] == [before]


def fails_early(_intent: Any) -> bytes:
    raise KeyError("day")


def as_text(_intent: Any) -> Any:
    return "no bytes"


@pytest.mark.parametrize(
    ("make", "failure"),
    [
        (lambda _folder: HttpReceiver("/x", http_conn_id="nobody_knows_it"), FailureClass.CONTRACT),
        (lambda _folder: HttpReceiver("http://127.0.0.1:port/x"), FailureClass.CONTRACT),
        (lambda _folder: HttpReceiver("http://127.0.0.1:9/x", headers={"a": "訂"}), FailureClass.DATA),
        (lambda folder: FileReceiver(str(folder), content=fails_early), FailureClass.TRANSIENT),
        (lambda folder: FileReceiver(str(folder), content=as_text), FailureClass.CONTRACT),
        (lambda folder: FileReceiver(str(folder / "none")), FailureClass.CONTRACT),
    ],
    ids=range(6),
)
def test_what_fails_before_the_first_byte(
    postgres: PostgresWarehouse, tmp_path: Path, make: Any, failure: FailureClass
) -> None:
    """It was not sent, nobody has to ask, and the cause says whether a retry can help."""
    with pytest.raises(PublicationNotSent) as failed:
        publish_once(KEY, INTENT, None, make(tmp_path).send, conn_id="warehouse")
    assert classify(failed.value).failure is failure
    assert row(postgres) == ("intended", None, 0)
    assert list(tmp_path.iterdir()) == []


def test_a_header_that_cannot_be_written(postgres: PostgresWarehouse) -> None:
    with receiving() as receiver:
        to = HttpReceiver(receiver.url + "/{key}", headers={"X-Tenant": "blue\n"})
        with pytest.raises(PublicationNotSent):
            publish_once(KEY, INTENT, conn_id="warehouse", to=to)
        assert (receiver.posts, row(postgres)) == ([], ("intended", None, 0))


def test_a_name_that_is_too_long(postgres: PostgresWarehouse, tmp_path: Path) -> None:
    how: dict[str, Any] = {"conn_id": "warehouse", "to": FileReceiver(str(tmp_path))}
    for length, kind in ((300, LookupFailed), (240, PublicationNotSent)):  # the temporary name is longer
        with pytest.raises(kind) as failed:
            publish_once("x" * length, INTENT, **how)
        assert classify(failed.value).failure is FailureClass.CONTRACT
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_cannot_be_asked_for(postgres: PostgresWarehouse, tmp_path: Path) -> None:
    """It is not taken for one that is not there, and not overwritten."""
    there = tmp_path / "orders%2F2026-01-01.json"
    there.symlink_to(there)
    with pytest.raises(LookupFailed):
        publish_once(KEY, INTENT, conn_id="warehouse", to=FileReceiver(str(tmp_path)))
    assert there.is_symlink()


class OddError(Exception):
    """Cannot be told, as its answer cannot."""

    def __str__(self) -> str:
        raise LookupError

    __repr__ = __str__


@pytest.mark.parametrize(
    ("raised", "kind", "state"),
    [
        (OddError(), PublicationUnknown, "unknown"),
        (ValueError("a\x00b\ud800"), PublicationUnknown, "unknown"),
        (NotSent("\x00"), PublicationNotSent, "intended"),
    ],
    ids=range(3),
)
def test_whatever_send_raises_is_kept(
    postgres: PostgresWarehouse, raised: Exception, kind: type[SafeOpsError], state: str
) -> None:
    def send(*_args: Any) -> None:
        raise raised

    with pytest.raises(kind):
        by_functions(lambda _key: None, send)
    assert row(postgres, "state, error_code") == (state, kind.code)


def test_an_answer_that_cannot_be_told(postgres: PostgresWarehouse) -> None:
    """It was sent all the same."""
    assert by_functions(None, lambda *_args: {"odd": OddError()}).how == "sent"
    assert row(postgres, "state, sends") == ("done", 1)
