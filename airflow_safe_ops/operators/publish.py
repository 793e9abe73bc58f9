"""PublishOnceOperator: a side effect outside the database, once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, ClassVar

from airflow.providers.common.compat.sdk import AirflowSkipException
from airflow.providers.common.sql.operators.sql import BaseSQLOperator

from airflow_safe_ops.context import database_of, run_identity
from airflow_safe_ops.definition.publication import SETTLE, Lookup, Publication, Send
from airflow_safe_ops.errors import SafeOpsError
from airflow_safe_ops.publish import arguments, check_not_sent, publisher, ways_to
from airflow_safe_ops.retry import give_policy, hand_over, use_rules
from airflow_safe_ops.settings import load_settings

if TYPE_CHECKING:
    from airflow_safe_ops.execution.publish import Publisher
    from airflow_safe_ops.publish import Receiver


HOW = {
    "sent": "sent",
    "found": "the receiver had it, nothing was sent",
    "recorded": "done before, nothing was sent",
    "settled": "settled by a person before, nothing was sent",
}


class PublishOnceOperator(BaseSQLOperator):
    """
    Send something to somebody outside the database, once: a partner's file, a post to an API.

    What makes a re-run safe: the intent is committed to the ledger under its business key before anything is sent,
    one task at a time has the key, the receiver is looked up before every send, and the outcome is recorded. A
    retry, a clear, a backfill, a kill at any moment and a lost answer therefore lead to one send that counts, where
    the receiver can be looked up or takes an Idempotency-Key; where it can do neither, to a task that fails as
    undecided and never sends again by itself.

    .. exampleinclude:: dags/partner_report.py

    :param conn_id: connection of the database that has the ledger; PostgreSQL 15 or later (templated)
    :param key: the business key: what all runs that mean the same side effect have in common, and no others. Never
        the run id: a second run of one date means the same (templated)
    :param intent: what is sent, as JSON: dicts, lists, text, numbers, booleans. At most 1 MB, and no secrets: the
        ledger keeps it (templated)
    :param to: a receiver such as :class:`HttpReceiver` or :class:`FileReceiver`, in place of the next two
    :param send: ``send(key, intent, idempotency_key)``; see :func:`publish_once`
    :param lookup: ``lookup(key)``: None or a :class:`Found`. Default None: the receiver cannot be asked
    :param receiver: a name for whom it is sent to; keys are unique within it. Default ``""`` (templated)
    :param idempotent: whether the receiver takes the Idempotency-Key, or for how long it keeps one. Default False,
        or what ``to`` says
    :param settle: seconds after a send whose answer was lost before a lookup that finds nothing is believed.
        Default 60
    :param not_sent: exceptions of ``send`` that mean that nothing has reached the receiver, besides ``NotSent``
    :param skip_run_types: runs that do not publish but are skipped, for example ``("backfill",)``. Default none
    :param lock_timeout: longest wait for another publisher of the key, in seconds or as timedelta; default
        ``[safe_ops] lock_timeout``, 600 seconds
    :param retry_policy: Airflow 3.3: default :class:`~airflow_safe_ops.SafeRetryPolicy`, unless the task or its
        ``default_args`` give another one
    :raises SafeOpsError: it was not sent, is undecided, or nobody knows; the retry policy sees by its class whether a
        retry can help
    :raises AirflowFailException: before Airflow 3.3, or with ``retry_on_failure=False``: no retry is to follow;
        ``__cause__`` is the :class:`~airflow_safe_ops.errors.SafeOpsError`
    """

    template_fields: Sequence[str] = ("conn_id", "database", "hook_params", "key", "intent", "receiver")
    template_fields_renderers: ClassVar[dict[str, str]] = {"intent": "json"}
    ui_color = "#dae8fc"
    safe_to_repeat: ClassVar[bool] = True  # what the cluster policy asks for

    def __init__(
        self,
        *,
        key: str,
        intent: Any,
        to: Receiver | None = None,
        send: Send | None = None,
        lookup: Lookup | None = None,
        receiver: str = "",
        idempotent: bool | timedelta | None = None,
        settle: float = SETTLE,
        not_sent: Sequence[type[Exception]] = (),
        skip_run_types: Sequence[str] = (),
        lock_timeout: float | timedelta | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        give_policy(self)
        self.key = key
        self.intent = intent
        self.to = to
        self.send = send
        self.lookup = lookup
        self.receiver = receiver
        self.idempotent = idempotent
        self.settle = settle
        self.not_sent = not_sent
        self.skip_run_types = skip_run_types
        self.lock_timeout = lock_timeout
        self._publisher: Publisher | None = None
        self._check_literals()

    def execute(self, context: Any) -> dict[str, Any]:
        """Send it, unless it was sent; see the class."""
        settings = load_settings()
        use_rules(settings.failure_rules)
        run = run_identity(context, instance=settings.instance)
        if run.run_type in self.skip_run_types:
            raise AirflowSkipException(f"A {run.run_type} run does not publish {self.key!r}.")
        try:
            self._publisher = self._ready(run)
            published = self._publisher.execute()
        except SafeOpsError as error:
            hand_over(self, error)
            raise
        self.log.info("%s: %s (sends of all tries: %d)", published.key, HOW[published.how], published.sends)
        return published.as_dict()

    def on_kill(self) -> None:
        """Stop waiting; a send that is under way is left the seconds that it has."""
        if self._publisher is not None:
            self._publisher.cancel()

    def _ready(self, run: Any) -> Publisher:
        hook, dialect = database_of(self.conn_id or "", get_hook=self.get_db_hook)
        hook.connection  # noqa: B018 - looked up here: the worker thread only connects
        return publisher(
            self._given(),
            hook.get_conn,
            dialect,
            run,
            lock_timeout=self.lock_timeout,
            seconds=self.execution_timeout.total_seconds() if self.execution_timeout else None,
        )

    def _given(self) -> dict[str, Any]:
        return arguments(
            self.key,
            self.intent,
            self.lookup,
            self.send,
            self.to,
            receiver=self.receiver,
            idempotent=self.idempotent,
            settle=self.settle,
            not_sent=self.not_sent,
        )

    def _check_literals(self) -> None:
        """Refuse at parse time what is wrong whatever a run renders."""
        ways_to(self.lookup, self.send, self.to)
        check_not_sent(self.not_sent)
        is_rendered = [_is_rendered(value) for value in (self.key, self.intent, self.receiver)]
        Publication(
            "key" if is_rendered[0] else self.key,
            "intent" if is_rendered[1] else self.intent,
            "" if is_rendered[2] else self.receiver,
            False if self.idempotent is None else self.idempotent,
            self.settle,
        )


def _is_rendered(value: Any) -> bool:
    """Whether only a run knows it: a template, or what another task returns, however deep it stands."""
    inner = value.values() if isinstance(value, Mapping) else value
    if isinstance(value, Mapping | list | tuple | set):
        try:
            return any(map(_is_rendered, inner))
        except RecursionError:  # it holds itself, which no run renders
            return False
    if isinstance(value, str):
        return "{{" in value or "{%" in value
    return hasattr(value, "resolve")
