"""The ledger's statements about side effects outside the database."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from airflow_safe_ops.plan.model import Statement, bind
from airflow_safe_ops.sql.ledger_history import is_row_locked
from airflow_safe_ops.sql.text import quoted

_SINCE = "extract(epoch FROM pg_catalog.clock_timestamp() - {})::float8"
_KNOWN = (
    "state, intent_hash, idempotency_key::text AS idempotency_key, token::text AS token, sends, in_doubt, "
    f"{_SINCE.format('sent_at')} AS idle, {_SINCE.format('greatest(sent_at, answered_at)')} AS quiet, "
    f"{_SINCE.format('keyed_at')} AS key_age, how, outcome, "
    "concat(dag_id, '.', task_id, ' ', run_id, ' try ', try_number) AS owner"
)
_UUIDS = ("idempotency_key", "token")


class PublicationSql:
    """
    The statements of ``safe_ops_publication``: one row a business key of a receiver.

    :param schema: the ledger's schema, unquoted.
    """

    def __init__(self, schema: str) -> None:
        self._table = f"{quoted(schema)}.safe_ops_publication"

    def intend(self, values: Mapping[str, Any]) -> Statement:
        """The intent, if its key has none yet."""
        return Statement(
            f"INSERT INTO {self._table} ({', '.join(values)}, state) "
            f"VALUES ({', '.join(map(_given, values))}, 'intended') ON CONFLICT (receiver, business_key) DO NOTHING",
            values,
        )

    def read(self, receiver: str, key: str) -> Statement:
        """What is known of it, without waiting."""
        return Statement(
            f"SELECT {_KNOWN} FROM {self._table} WHERE receiver = {bind('receiver')} AND business_key = {bind('key')}",
            {"receiver": receiver, "key": key},
        )

    def lock(self, receiver: str, key: str) -> Statement:
        """Its one publisher at a time; waits until the one before is over or dead."""
        read = self.read(receiver, key)
        return Statement(f"{read.text} FOR UPDATE", read.binds)

    def still_here(self) -> Statement:
        """A sign of life, so that the server does not take a transaction that waits for a receiver for a dead one."""
        return Statement("SELECT 1")

    def begin(self, receiver: str, key: str, values: Mapping[str, Any], *, new_key: bool) -> Statement:
        """
        A send begins; committed before anything is sent.

        :param values: the columns that change, with the new token.
        :param new_key: the Idempotency-Key was not sent before.
        """
        keyed = "pg_catalog.clock_timestamp()" if new_key else "coalesce(keyed_at, pg_catalog.clock_timestamp())"
        sets = [
            *(f"{name} = {_given(name)}" for name in values),
            "state = 'sending', sends = sends + 1, sent_at = pg_catalog.clock_timestamp()",
            f"keyed_at = {keyed}, answered_at = NULL, how = NULL, outcome = NULL",
            "error_code = NULL, error_class = NULL, error_message = NULL",
        ]
        return self._update(receiver, key, ", ".join(sets), values)

    def end(self, receiver: str, key: str, token: str, values: Mapping[str, Any]) -> Statement:
        """
        What became of the send that was begun with this token; no row if somebody else has begun one since.

        ``intended``: it never left. It counts as no send, and its Idempotency-Key has no age yet.
        """
        never_left = ", sends = sends - 1, keyed_at = NULL" if values["state"] == "intended" else ""
        found = self._update(receiver, key, _sets(values) + never_left, values)
        return Statement(
            f"{found.text} AND state = 'sending' AND token = CAST({bind('mine')} AS uuid)",
            {**found.binds, "mine": token},
        )

    def note(self, receiver: str, key: str, values: Mapping[str, Any]) -> Statement:
        """What was found out without a send, under the row's lock; a send that was begun is over."""
        return self._update(receiver, key, f"{_sets(values)}, token = NULL", values)

    def settle(self, receiver: str, key: str, values: Mapping[str, Any]) -> Statement:
        """What a person says of it; a send that was begun may no longer record its outcome."""
        sets = ", ".join(f"{name} = {_given(name)}" for name in values)
        if "idempotency_key" in values:  # a new one, which nobody has seen
            sets += ", keyed_at = NULL"
        return self._update(
            receiver,
            key,
            f"{sets}, token = NULL, in_doubt = FALSE, settled_at = pg_catalog.clock_timestamp(), "
            "error_code = NULL, error_class = NULL, error_message = NULL",
            values,
        )

    def listed(
        self, *, state: str | None, receiver: str | None, key: str | None, limit: int | None, grace: float
    ) -> Statement:
        """
        Publications, newest last, each with its ``outcome`` as it stands now; the newest ``limit`` of them.

        ``sending`` whose publisher is dead is ``unknown``. Takes no lock and needs nothing but SELECT.
        """
        idle = f"pg_catalog.clock_timestamp() - p.sent_at >= make_interval(secs => {bind('grace')})"
        stands = (
            f"CASE WHEN p.state = 'sending' AND {idle} AND NOT {is_row_locked('p')} THEN 'unknown' ELSE p.state END"
        )
        given = {"receiver": receiver, "business_key": key, "stands": state}
        where = " AND ".join(f"{name} = {bind(name)}" for name, value in given.items() if value is not None) or "TRUE"
        return Statement(
            f"WITH all_of_them AS (SELECT p.*, {stands} AS stands FROM {self._table} AS p), "
            f"newest AS (SELECT *, count(*) OVER () AS total FROM all_of_them WHERE {where} "
            "ORDER BY coalesce(sent_at, intended_at) DESC, publication_id DESC "
            f"LIMIT CAST({bind('limit')} AS bigint)) "
            "SELECT * FROM newest ORDER BY coalesce(sent_at, intended_at), publication_id",
            {**given, "limit": limit, "grace": grace},
        )

    def _update(self, receiver: str, key: str, sets: str, values: Mapping[str, Any]) -> Statement:
        where = f"receiver = {bind('of_receiver')} AND business_key = {bind('of_key')}"
        return Statement(
            f"UPDATE {self._table} SET {sets} WHERE {where}",
            {**values, "of_receiver": receiver, "of_key": key},
        )


def _sets(values: Mapping[str, Any]) -> str:
    """An outcome's columns, and when it came."""
    return ", ".join([*(f"{n} = {_given(n)}" for n in values), "answered_at = pg_catalog.clock_timestamp()"])


def _given(name: str) -> str:
    return f"CAST({bind(name)} AS uuid)" if name in _UUIDS else bind(name)
