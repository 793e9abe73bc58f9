"""``publish_once``: a side effect outside the database, once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Protocol

from airflow_safe_ops.definition.publication import SETTLE, Found, Lookup, Publication, Send
from airflow_safe_ops.errors import InvalidPublication

if TYPE_CHECKING:
    from airflow_safe_ops.definition.identity import RunIdentity
    from airflow_safe_ops.execution.publish import Published, Publisher


class Receiver(Protocol):
    """What ``to`` takes: a receiver that knows how it is sent to and, if it can, how it is looked up."""

    @property
    def lookup(self) -> Lookup | None:
        """See :func:`publish_once`."""

    @property
    def send(self) -> Send:
        """See :func:`publish_once`."""

    @property
    def idempotent(self) -> bool | timedelta:
        """See :func:`publish_once`."""


def publish_once(
    key: str,
    intent: Any,
    lookup: Lookup | None = None,
    send: Send | None = None,
    *,
    conn_id: str,
    to: Receiver | None = None,
    receiver: str = "",
    idempotent: bool | timedelta | None = None,
    settle: float = SETTLE,
    not_sent: Sequence[type[Exception]] = (),
    lock_timeout: float | timedelta | None = None,
) -> Published:
    """
    Send something to somebody outside the database, once.

    What makes a re-run safe: the intent is committed to the ledger under its business key before anything is sent;
    one publisher at a time has the key; the receiver is looked up before every send; that a send begins, and what
    came of it, are committed before and after it. Killed or its answer lost at any point, it happens once where the
    receiver can be looked up or takes an Idempotency-Key. Where it can do neither, it is never sent again by itself
    but reported as undecided.

    Call it in a task or anywhere else. It opens a connection of its own and holds a row lock on it until it returns.

    :param key: the business key: what all runs that mean the same side effect have in common, and no others
    :param intent: what is sent, as JSON: dicts, lists, text, numbers, booleans. At most 1 MB, and no secrets: the
        ledger keeps it
    :param lookup: ``lookup(key)`` asks the receiver: None, it has nothing under the key; or a :class:`Found`.
        Default None: it cannot be asked
    :param send: ``send(key, intent, idempotency_key)`` sends it; what it returns is kept as outcome. It raises
        :class:`NotSent`, :class:`Refused` or :class:`AlreadyThere`; whatever else it raises leaves the outcome
        unknown
    :param conn_id: connection of the database that has the ledger; PostgreSQL 15 or later
    :param to: a receiver such as :class:`HttpReceiver` in place of ``lookup``, ``send`` and ``idempotent``
    :param receiver: a name for whom it is sent to; keys are unique within it. Default ``""``
    :param idempotent: whether the receiver takes the Idempotency-Key, so that a repeat of it does nothing; or for
        how long it keeps one. Default False, or what ``to`` says
    :param settle: seconds after a send whose answer was lost before a lookup that finds nothing is believed: longer
        than a send takes until a lookup shows it. Default 60. Not waited for with an Idempotency-Key
    :param not_sent: exceptions of ``send`` that mean that nothing has reached the receiver, besides ``NotSent``
    :param lock_timeout: longest wait for another publisher of the key, in seconds or as timedelta; default
        ``[safe_ops] lock_timeout``, 600 seconds
    :return: how it came to be there, how often it was sent, and the outcome
    :raises SafeOpsError: it was not sent, or nobody knows; ``terminal`` says whether a retry can help
    """
    from airflow_safe_ops.context import database_of

    hook, dialect = database_of(conn_id)
    given = arguments(
        key, intent, lookup, send, to, receiver=receiver, idempotent=idempotent, settle=settle, not_sent=not_sent
    )
    hook.connection  # noqa: B018 - looked up here: the worker thread only connects
    return publisher(given, hook.get_conn, dialect, running(), lock_timeout=lock_timeout).execute()


def arguments(
    key: str,
    intent: Any,
    lookup: Lookup | None,
    send: Send | None,
    to: Receiver | None,
    *,
    receiver: str,
    idempotent: bool | timedelta | None,
    settle: float,
    not_sent: Sequence[type[Exception]],
) -> dict[str, Any]:
    """
    What :class:`Courier` takes of it.

    :raises InvalidPublication: it is not usable.
    """
    ways = ways_to(lookup, send, to)
    if idempotent is None:
        idempotent = False if to is None else to.idempotent
    return {
        "publication": Publication(key, intent, receiver, idempotent, settle),
        **ways,
        "not_sent": check_not_sent(not_sent),
    }


def ways_to(lookup: Any, send: Any, to: Any) -> dict[str, Any]:
    """
    How the receiver is sent to and looked up.

    :raises InvalidPublication: both ways or none were given, or one is not callable.
    """
    if to is not None:
        if lookup is not None or send is not None:
            raise InvalidPublication("to and lookup or send are given.", fix="Give to alone, or lookup and send.")
        lookup, send = getattr(to, "lookup", None), getattr(to, "send", None)
    if not callable(send):
        raise InvalidPublication(f"send is {send!r}, which cannot be called.", fix="Give send=… or to=HttpReceiver(…).")
    if lookup is not None and not callable(lookup):
        raise InvalidPublication(f"lookup is {lookup!r}, which cannot be called.", fix="Give a function, or None.")
    return {"lookup": lookup, "send": send}


def check_not_sent(kinds: Any) -> tuple[type[Exception], ...]:
    """
    The exceptions that mean that nothing was sent.

    :raises InvalidPublication: one is no exception, or means everything.
    """
    for kind in tuple(kinds):
        if not (isinstance(kind, type) and issubclass(kind, Exception)) or kind in (Exception, OSError):
            raise InvalidPublication(
                f"not_sent holds {kind!r}.", fix="Name exceptions that are only raised where nothing was sent."
            )
    return tuple(kinds)


def publisher(
    given: dict[str, Any],
    connect: Callable[[], Any],
    dialect: Any,
    run: RunIdentity,
    *,
    lock_timeout: float | timedelta | None,
    seconds: float | None = None,
) -> Publisher:
    """It, ready to execute."""
    from airflow_safe_ops.execution.courier import Courier
    from airflow_safe_ops.execution.publish import Publisher
    from airflow_safe_ops.ledger.claims import Patience
    from airflow_safe_ops.settings import load_settings

    settings = load_settings()
    wait = lock_timeout.total_seconds() if isinstance(lock_timeout, timedelta) else lock_timeout
    patience = Patience(settings.lock_timeout if wait is None else float(wait), settings.claim_grace)
    return Publisher(Courier(**given), run, connect, dialect, patience, seconds)


def running() -> RunIdentity:
    """The task that runs here, or the person who calls it by hand."""
    from airflow.sdk import get_current_context

    from airflow_safe_ops.context import run_identity, user_name
    from airflow_safe_ops.definition.identity import RunIdentity
    from airflow_safe_ops.settings import load_settings

    instance = load_settings().instance
    try:
        context = get_current_context()
    except RuntimeError:  # there is no task here
        context = None
    if context is not None:
        return run_identity(context, instance=instance)
    return RunIdentity(
        dag_id="safe-ops",
        task_id="publish_once",
        run_id=f"python__{datetime.now(UTC).isoformat()}",
        run_type="python",
        user=user_name(),
        instance=instance,
    )


__all__ = ["Found", "Receiver", "publish_once"]
