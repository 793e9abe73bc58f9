"""PublishOnceOperator: what its task does, with a real receiver and a real ledger."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import pytest
from airflow.providers.common.compat.sdk import AirflowFailException, AirflowSkipException
from airflow.sdk.exceptions import AirflowTaskTimeout
from airflow.sdk.execution_time.timeout import timeout

from airflow_safe_ops import HttpReceiver, PublishOnceOperator, publish_once
from airflow_safe_ops.errors import (
    LedgerDenied,
    LoadCancelled,
    PublicationNotSent,
    PublicationUndecided,
    PublicationUnknown,
    PublisherBusy,
    SafeOpsError,
    UnsupportedConnection,
)
from tests.contract.command_line import CONN
from tests.contract.harness import D1, run
from tests.receiver import HANG, LOSE, Receiver, receiving

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.contract.postgres import PostgresWarehouse

INTENT = {"day": "2026-01-02", "rows": 3}


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with receiving() as listening:
        yield listening


def operator(receiver: Receiver, /, **more: Any) -> PublishOnceOperator:
    to = HttpReceiver(receiver.url + "/{key}", more.pop("lookup_url", receiver.lookup_url))
    given = {"task_id": "send", "conn_id": "warehouse", "key": "orders", "intent": INTENT, "to": to, "settle": 0}
    return PublishOnceOperator(**{**given, **more})


def cause(error: BaseException) -> BaseException | None:
    return error.__cause__ if isinstance(error, AirflowFailException) else error


def test_retry_clear_and_backfill_send_it_once(postgres: PostgresWarehouse, receiver: Receiver) -> None:
    contexts = [run(D1), run(D1, try_number=2), run(D1, clear_number=1), run(D1, run_id="backfill__1")]
    hows = [operator(receiver).execute(context)["how"] for context in contexts]
    assert hows == ["sent", "recorded", "recorded", "recorded"]
    assert receiver.effects == [("orders", INTENT)]
    assert postgres.ledger("publication", "dag_id, task_id, try_number, user_name, code_version, state") == [
        ("sales", "load", 1, "ops", None, "done")
    ]


def test_the_code_that_sent_it_is_recorded(postgres: PostgresWarehouse, receiver: Receiver) -> None:
    """apache/airflow#67657: which version of the code a run used."""
    operator(receiver).execute(run(D1, code_version="v5"))
    operator(receiver).execute(run(D1, code_version="v6", clear_number=1))
    assert postgres.ledger("publication", "code_version") == [("v5",)]


def test_key_and_intent_are_rendered(postgres: PostgresWarehouse, receiver: Receiver) -> None:
    task = operator(receiver, key="{{ ds }}", intent={"day": "{{ ds }}", "rows": 3}, receiver="{{ ds_nodash }}")
    context: Any = {**run(D1), "ds": "2026-01-02", "ds_nodash": "20260102"}
    task.render_template_fields(context)
    task.execute(context)
    assert receiver.effects == [("2026-01-02", INTENT)]
    assert postgres.ledger("publication", "receiver, business_key") == [("20260102", "2026-01-02")]


def test_a_run_that_does_not_publish(postgres: PostgresWarehouse, receiver: Receiver) -> None:
    """apache/airflow#52665: a backfill of many dates does not fire as many messages."""
    context = run(D1)
    context["dag_run"].run_type = "backfill"
    with pytest.raises(AirflowSkipException):
        operator(receiver, skip_run_types=("backfill",)).execute(context)
    assert receiver.posts == []
    operator(receiver, skip_run_types=("backfill",)).execute(run(D1))
    assert len(receiver.posts) == 1


@pytest.mark.parametrize(
    ("will", "lookup_url", "kind"),
    [(LOSE, None, PublicationUndecided), (LOSE, "/", PublicationUnknown), (429, "/", PublicationNotSent)],
)
def test_what_airflow_is_told(
    postgres: PostgresWarehouse, receiver: Receiver, will: Any, lookup_url: str | None, kind: type[SafeOpsError]
) -> None:
    receiver.will.append(will)
    task = operator(receiver, lookup_url=lookup_url and receiver.lookup_url)
    with pytest.raises((SafeOpsError, AirflowFailException)) as failed:
        task.execute(run(D1))
    assert isinstance(cause(failed.value), kind)
    if getattr(task, "retry_policy", None) is None:
        assert isinstance(failed.value, AirflowFailException) is kind.terminal
    task.retry_on_failure = False
    receiver.will.append(500)
    with pytest.raises(AirflowFailException):
        operator(receiver, key="other", retry_on_failure=False).execute(run(D1))


def test_a_connection_without_a_ledger(
    postgres: PostgresWarehouse, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_WEB", "http://example.org")
    with pytest.raises((SafeOpsError, AirflowFailException)) as failed:
        operator(receiver, conn_id="web").execute(run(D1))
    assert isinstance(cause(failed.value), UnsupportedConnection)
    assert receiver.posts == []


def test_killed_while_it_waits_for_another(postgres: PostgresWarehouse, receiver: Receiver) -> None:
    """It stops at once; one that sends goes on, and its outcome is recorded."""
    receiver.will.append(HANG)
    first, second = operator(receiver), operator(receiver)
    threads = [threading.Thread(target=lambda: first.execute(run(D1)))]
    threads[0].start()
    while not receiver.effects:
        threads[0].join(0.02)
    raised: list[BaseException] = []

    def wait() -> None:
        try:
            second.execute(run(D1))
        except Exception as error:  # noqa: BLE001 - it is looked at below
            raised.append(error)

    threads.append(threading.Thread(target=wait))
    threads[1].start()
    threads[1].join(1.0)
    assert threads[1].is_alive()
    second.on_kill()
    threads[1].join(5)
    assert isinstance(cause(raised[0]), LoadCancelled)
    first.on_kill()
    receiver.go_on.set()
    threads[0].join(10)
    assert postgres.ledger("publication", "state, sends") == [("done", 1)]


def test_it_waits_no_longer_than_it_may(postgres: PostgresWarehouse, receiver: Receiver) -> None:
    receiver.will.append(HANG)
    first = threading.Thread(target=lambda: operator(receiver).execute(run(D1)))
    first.start()
    while not receiver.effects:
        first.join(0.02)
    with pytest.raises((PublisherBusy, AirflowFailException)) as failed:
        operator(receiver, lock_timeout=0.3).execute(run(D1))
    assert "sales.load" in str(failed.value)
    receiver.go_on.set()
    first.join(10)
    assert len(receiver.posts) == 1


def test_a_login_without_the_right(
    new_postgres: PostgresWarehouse, receiver: Receiver, cli: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    cli("ledger", "init", *CONN)
    new_postgres.execute(
        "CREATE ROLE publisher_of_none LOGIN; GRANT USAGE ON SCHEMA safe_ops TO publisher_of_none; "
        "GRANT SELECT ON ALL TABLES IN SCHEMA safe_ops TO publisher_of_none"
    )
    try:
        uri = new_postgres.database.airflow_uri.replace("postgres:@", "publisher_of_none:@")
        monkeypatch.setenv("AIRFLOW_CONN_WAREHOUSE", uri)
        with pytest.raises((SafeOpsError, AirflowFailException)) as failed:
            operator(receiver).execute(run(D1))
        assert isinstance(cause(failed.value), LedgerDenied)
        assert receiver.posts == []
    finally:
        new_postgres.execute("DROP OWNED BY publisher_of_none; DROP ROLE publisher_of_none")


def test_an_http_connection_has_host_login_and_headers(
    postgres: PostgresWarehouse, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_PARTNER", f"http://me:secret@127.0.0.1:{receiver.port}/?X-Tenant=blue")
    to = HttpReceiver("/reports/{key}", "/reports/{key}", http_conn_id="partner")
    operator(receiver, to=to).execute(run(D1))
    assert receiver.effects == [("orders", INTENT)]
    assert (receiver.headers["X-Tenant"], receiver.headers["Authorization"][:6]) == ("blue", "Basic ")
    assert not [row for row in postgres.ledger("publication", "p::text", "AS p") if "secret" in row[0]]


def test_a_task_that_is_timed_out_while_it_sends(
    postgres: PostgresWarehouse, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody has its answer; the next try asks."""
    monkeypatch.setenv("AIRFLOW__SAFE_OPS__CLAIM_GRACE", "1")
    receiver.will.append(HANG)
    with pytest.raises(AirflowTaskTimeout), timeout(1):
        operator(receiver).execute(run(D1))
    assert postgres.ledger("publication", "state, sends") == [("sending", 1)]
    assert operator(receiver).execute(run(D1, try_number=2))["how"] == "found"
    assert receiver.effects == [("orders", INTENT)]


def test_the_id_of_a_job_is_kept(postgres: PostgresWarehouse, receiver: Receiver) -> None:
    """apache/airflow#69174: a worker that dies while it polls comes back to the job that it submitted."""
    submit: Any = lambda *_args: {"job": len(receiver.posts) + 4711}  # noqa: E731
    first = operator(receiver, to=None, send=submit).execute(run(D1))
    receiver.posts.append(("another", "job"))
    assert operator(receiver, to=None, send=submit).execute(run(D1, try_number=2))["outcome"] == first["outcome"]


def test_a_task_of_functions(postgres: PostgresWarehouse, receiver: Receiver, monkeypatch: pytest.MonkeyPatch) -> None:
    """`publish_once` knows in which task it runs."""
    monkeypatch.setattr("airflow.sdk.get_current_context", lambda: run(D1, task_id="by_function"))
    publish_once("orders", INTENT, conn_id="warehouse", to=HttpReceiver(receiver.url + "/{key}"))
    assert postgres.ledger("publication", "dag_id, task_id, run_type") == [("sales", "by_function", "scheduled")]
