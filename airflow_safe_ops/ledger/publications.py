"""What the ledger keeps of side effects outside the database."""

from __future__ import annotations

import uuid
from typing import Any

from airflow_safe_ops.definition.identity import RunIdentity
from airflow_safe_ops.definition.publication import Publication
from airflow_safe_ops.errors import SafeOpsError
from airflow_safe_ops.ledger.text import storable
from airflow_safe_ops.plan.model import Database, Executor
from airflow_safe_ops.plan.publication import Known, State, needs_new_key, stays_in_doubt
from airflow_safe_ops.sql.ledger_publication import PublicationSql

_MESSAGE = 2000
_WHO = (
    "instance",
    "dag_id",
    "task_id",
    "map_index",
    "run_id",
    "run_type",
    "try_number",
    "clear_number",
    "logical_date",
    "code_version",
)


def intend(database: Database, sql: PublicationSql, publication: Publication, run: RunIdentity) -> None:
    """Commit what is meant, before anything else; nothing where the key has an intent already."""
    with database.transaction() as tx:
        tx.run(
            sql.intend(
                {
                    "receiver": publication.receiver,
                    "business_key": publication.key,
                    **_intent(publication),
                    "idempotency_key": str(uuid.uuid4()),
                    **_who(run),
                }
            )
        )


def lock(tx: Executor, sql: PublicationSql, publication: Publication) -> Known | None:
    """Be its one publisher until the transaction ends; None where the ledger does not know it."""
    rows = tx.run(sql.lock(publication.receiver, publication.key)).named
    return Known.from_row(rows[0]) if rows else None


def read(tx: Executor, sql: PublicationSql, publication: Publication) -> Known | None:
    """What is known of it, without waiting for its publisher."""
    rows = tx.run(sql.read(publication.receiver, publication.key)).named
    return Known.from_row(rows[0]) if rows else None


def begin(
    tx: Executor, sql: PublicationSql, publication: Publication, known: Known, run: RunIdentity, *, was_asked: bool
) -> str:
    """
    A send begins, under the row's lock.

    :param was_asked: the receiver was looked up, and has nothing.
    :return: its token: only who has it may send, and record what came of it.
    """
    token = str(uuid.uuid4())
    is_new = needs_new_key(known, publication)
    values = {
        **_intent(publication),
        "token": token,
        "idempotency_key": str(uuid.uuid4()) if is_new else known.idempotency_key,
        "in_doubt": stays_in_doubt(known, publication, was_asked=was_asked),
        **_who(run),
    }
    tx.run(sql.begin(publication.receiver, publication.key, values, new_key=is_new))
    return token


def end(tx: Executor, sql: PublicationSql, publication: Publication, token: str, state: State, **facts: Any) -> bool:
    """
    What came of the send that was begun with the token.

    :param facts: ``how``, ``outcome``, ``error``.
    :return: whether it was recorded; not if another publisher has begun a send since.
    """
    return tx.run(sql.end(publication.receiver, publication.key, token, _found_out(state, **facts))).rowcount == 1


def note(tx: Executor, sql: PublicationSql, publication: Publication, state: State, **facts: Any) -> None:
    """What was found out without a send, under the row's lock; ``done`` is this publication's intent."""
    intent = _intent(publication) if state == State.DONE else {}
    tx.run(sql.note(publication.receiver, publication.key, {**intent, **_found_out(state, **facts)}))


def settle(tx: Executor, sql: PublicationSql, receiver: str, key: str, *, done: bool, reason: str, by: str) -> bool:
    """
    What a person found out; whether the ledger knows the key.

    Not sent: the next send has a new Idempotency-Key, and may have another intent.
    """
    what: dict[str, Any] = {"state": str(State.DONE if done else State.INTENDED), "how": "settled" if done else None}
    values = {**what, "outcome": None, "reason": storable(reason)[:_MESSAGE], "settled_by": by}
    if not done:
        values["idempotency_key"] = str(uuid.uuid4())
    return tx.run(sql.settle(receiver, key, values)).rowcount == 1


def _found_out(
    state: State, *, how: str | None = None, outcome: str | None = None, error: SafeOpsError | None = None
) -> dict[str, Any]:
    return {
        "state": str(state),
        "how": how,
        "outcome": outcome,
        "error_code": error and error.code,
        "error_class": error and type(error).__name__,
        "error_message": error and storable(str(error))[:_MESSAGE],
    }


def _intent(publication: Publication) -> dict[str, Any]:
    return {"intent": publication.text, "intent_hash": publication.intent_hash}


def _who(run: RunIdentity) -> dict[str, Any]:
    return {**{name: getattr(run, name) for name in _WHO}, "user_name": run.user}
