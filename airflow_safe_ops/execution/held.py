"""A claim that is held by a transaction which stays open, for as long as somebody else writes."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress

from airflow_safe_ops.definition.scope import overlaps
from airflow_safe_ops.errors import InvalidArgument
from airflow_safe_ops.execution.session import ConnectionLostError, Session
from airflow_safe_ops.ledger import claims
from airflow_safe_ops.ledger.claims import Claim, FencedError, Patience
from airflow_safe_ops.plan.load import CLAIM, HOLD

log = logging.getLogger(__name__)
# How often the connection that holds the claim is asked whether it still does, in seconds. The server drops it after a
# minute of silence.
EVERY = 10.0
_PATIENCE = 2  # times that, for the answer
_mine = threading.local()


class _GiveUpError(Exception):
    """The open transaction is rolled back, for an error that is raised elsewhere."""


class ClaimLostError(Exception):
    """The claim is gone, or nobody can say whether it is."""


class HeldClaim:
    """
    One claim, from its place in the queue to the end of the transaction that holds it.

    The connection is asked every few seconds, on a thread of its own, whether it still holds.

    :param session: an open session that nobody else uses meanwhile.
    """

    def __init__(self, session: Session, claim: Claim) -> None:
        self.claim = claim
        self.is_begun = False
        self._session = session
        self._open: ExitStack | None = None
        self._over = threading.Event()
        self._watch = threading.Thread(target=self._keep_watch, name="safe_ops_guard", daemon=True)
        self._lost: Exception | None = None
        self._siblings: list[HeldClaim] = []

    def take(self, patience: Patience, begin: Callable[[Session], None]) -> None:
        """
        Wait for the claim, begin, hold it, and watch.

        :param begin: what is committed under the claim before it is held for long; again if the claim was lost in
            between, where it is left alone for ``claim_grace``.
        :raises ClaimTimeout: somebody else held it for longer than ``lock_timeout``.
        :raises InvalidArgument: this thread holds it already, and would wait for itself.
        """
        self._refuse_own()
        dialect = self._session.dialect
        self._session.doing(CLAIM)
        for _ in claims.taken(self._session, dialect, self.claim, patience):
            self._session.doing(HOLD)
            with suppress(FencedError):
                with self._session.transaction() as tx:
                    claims.hold(tx, dialect.ledger, self.claim)
                    begin(self._session)
                    tx.run(dialect.ledger.touch_claim(self.claim.attempt_id))
                self.is_begun = True
                self._hold()
                break
            self._session.doing(CLAIM)
        self._siblings = _mine.__dict__.setdefault("held", [])
        self._siblings.append(self)
        self._session.doing("guard")
        self._session.expect_answers_within(EVERY * _PATIENCE)
        self._watch.start()

    @contextmanager
    def last_words(self) -> Iterator[Session]:
        """
        What the holding transaction does before it commits and with that gives the claim back.

        :raises ClaimLostError: it was not held to the end.
        """
        self._stop_watching()
        if self._open is None or self._lost is not None:
            raise ClaimLostError(str(self._lost or "it was never held")) from self._lost
        try:
            with self._open:
                yield self._session
        except (ConnectionLostError, FencedError) as error:
            raise ClaimLostError(str(error) or "it was taken away") from error

    def give_up(self) -> None:
        """Roll the holding transaction back, whatever state it is in."""
        self._stop_watching()
        if self._open is not None:
            with suppress(Exception), self._open:
                raise _GiveUpError

    def _hold(self) -> None:
        self._session.doing(HOLD)
        with ExitStack() as stack:
            tx = stack.enter_context(self._session.transaction())
            tx.run(self._session.dialect.without_time_limit())
            claims.hold(tx, self._session.dialect.ledger, self.claim)
            self._open = stack.pop_all()

    def _refuse_own(self) -> None:
        for other in _mine.__dict__.get("held", ()):
            mine = ((one, two) for one in other.claim.scopes for two in self.claim.scopes)
            if other.claim.identity == self.claim.identity and any(overlaps(one, two) for one, two in mine):
                raise InvalidArgument(
                    f"This task guards {other.claim.scopes[0].key} of {self.claim.identity} already.",
                    why="It would wait for itself.",
                    fix="Leave one of the guards out.",
                )

    def _keep_watch(self) -> None:
        while not self._over.wait(EVERY):
            try:
                claims.hold(self._session, self._session.dialect.ledger, self.claim)
            except Exception as error:
                self._lost = error
                log.exception("the claim on %s was lost while the writer writes", self.claim.scopes[0].key)
                return

    def _stop_watching(self) -> None:
        self._over.set()
        if self in self._siblings:
            self._siblings.remove(self)
        if self._watch.is_alive():
            self._watch.join()
        if self._lost is None:
            self._session.expect_answers_within(None)
