"""
One side effect outside the database, from its intent to its outcome.

intent committed → row locked, receiver asked → ``sending`` committed → row locked again, sent, outcome committed.
The lock is a row lock of an open transaction: a dead publisher's is gone with its connection. Between its two
transactions a publisher holds nothing; what it began carries a token, and the second transaction sends only if the
token is still there. A death anywhere leaves ``intended`` (nothing was sent) or ``sending`` (unknown: ask first).
"""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from tenacity import Retrying, retry_if_exception_type, stop_after_delay, wait_exponential

from airflow_safe_ops.definition.identity import RunIdentity
from airflow_safe_ops.definition.publication import Found
from airflow_safe_ops.errors import (
    InvalidPublication,
    PublicationUnknown,
    PublisherBusy,
    SafeOpsError,
    StatementFailed,
)
from airflow_safe_ops.execution.courier import Answer, Courier
from airflow_safe_ops.execution.session import ConnectionLostError, Session
from airflow_safe_ops.ledger import publications
from airflow_safe_ops.ledger.claims import Patience
from airflow_safe_ops.ledger.migrations import init_ledger
from airflow_safe_ops.plan.model import Executor
from airflow_safe_ops.plan.publication import (
    ASK,
    BEGIN,
    INTENT,
    LOCK,
    OUTCOME,
    SEND,
    Known,
    Move,
    State,
    next_move,
    seconds_to_settle,
)
from airflow_safe_ops.sql.dialect import Connection, Dialect

log = logging.getLogger(__name__)
Observer = Callable[[str, str], None]
# The server takes a transaction that is silent for a minute for a dead one.
BEAT = 15.0
_TRIES = 20
_PAUSE = 0.1
_NAP = 0.5
_OWN_LOCK = 10.0
_ANSWER = 30.0
_LOCK_OF_THE_DEAD = 70.0


@dataclass(frozen=True)
class Published:
    """
    A side effect that happened.

    :param how: ``sent`` by this try; ``found`` at the receiver; ``recorded`` by an earlier try; ``settled`` by a
        person.
    :param sends: how often it was sent, by all tries; 0 where it was found before the first.
    :param outcome: what the receiver said.
    """

    key: str
    receiver: str
    how: str
    sends: int
    idempotency_key: str
    intent_hash: str
    outcome: Any = None

    def as_dict(self) -> dict[str, Any]:
        """Plain data."""
        return dict(vars(self))


def _nobody(_step: str, _when: str) -> None:
    """Watch nothing."""


@dataclass
class Publisher:
    """
    Publishes once.

    :param connect: opens a connection to the ledger's database.
    :param patience: how long another publisher of the key is waited for, and one that does not begin is left alone.
    :param seconds: longest that all of it may take; None without an execution timeout.
    :param observe: called with each step's name and ``before`` or ``after``.
    """

    courier: Courier
    run: RunIdentity
    connect: Callable[[], Connection]
    dialect: Dialect
    patience: Patience = field(default_factory=Patience)
    seconds: float | None = None
    observe: Observer = _nobody
    session: Session = field(init=False)

    def __post_init__(self) -> None:
        began = time.monotonic()
        self._until = began + self.patience.lock_timeout
        self._deadline = None if self.seconds is None else began + self.seconds
        self.publication = self.courier.publication
        self._is_sending = self._is_stopped = False
        self._sql = self.dialect.ledger.publications
        self.session = self._session()

    def execute(self) -> Published:
        """
        Send it, unless it was sent; the outcome is recorded when this returns.

        :raises SafeOpsError: it was not sent, or nobody knows; the ledger says which.
        """
        try:
            self.session.open()
            self.session.doing("ledger")
            init_ledger(self.session, self.dialect.ledger, self.dialect.sqlstate)
            with self._step(INTENT):
                publications.intend(self.session, self._sql, self.publication, self.run)
            return self._publish()
        except ConnectionLostError as error:
            raise StatementFailed(f"The connection to the ledger was lost ({error}).") from error
        finally:
            self.session.close()

    def cancel(self) -> None:
        """Stop waiting. A send that is under way is left the seconds that it has: its outcome is worth more."""
        self._is_stopped = True
        if not self._is_sending:
            self.session.cancel()

    def _publish(self) -> Published:
        taken_over = 0
        while taken_over < _TRIES:
            begun = self._begin()
            if isinstance(begun, Published):
                return begun
            if begun is not None:
                done = self._send(begun)
                if done is not None:
                    return done
                taken_over += 1
        raise PublisherBusy(f"{self.publication.name} was taken over {_TRIES} times before it was sent.")

    # --- before the send ------------------------------------------------------------------------------------

    def _begin(self) -> Published | str | None:
        """
        Look at what is known, ask the receiver, and commit that a send begins.

        :return: the outcome that was there; the token of the send; None: look again.
        """
        answer, token = None, None
        try:
            with self._locked() as tx:
                known = publications.lock(tx, self._sql, self.publication)
                if known is None:
                    raise InvalidPublication(f"{self.publication.name} was deleted from the ledger meanwhile.")
                move = next_move(known, self.publication, self.patience.grace)
                if move == Move.ASK:
                    answer = self.courier.judged(known, self._asked(known))
                    token = self._decided(tx, known, answer)
        except ConnectionLostError:
            if token is not None:  # the answer to COMMIT was lost
                self._take_back(token)
            raise
        if move == Move.TELL:
            return self._told(known, "recorded")
        if answer is not None:
            return self._ended(known, answer)
        if token is None:
            self._pause(known)
        else:
            self.observe(BEGIN, "after")
        return token

    def _decided(self, tx: Executor, known: Known, answer: Answer | None) -> str | None:
        """Write down that a send begins, and its token; or what was found out without one."""
        if answer is not None:
            publications.note(tx, self._sql, self.publication, **vars(answer))
            return None
        self.observe(BEGIN, "before")
        asked = self.courier.can_ask
        return publications.begin(tx, self._sql, self.publication, known, self.run, was_asked=asked)

    def _asked(self, known: Known) -> Found | None:
        """Ask; "nothing" is asked once more after a while where an earlier send may not be visible yet."""
        if not self.courier.can_ask:
            return None
        with self._step(ASK), self._alive():
            found = self.courier.look_up()
            wait = seconds_to_settle(known, self.publication)
            if found is None and wait:
                log.info("%s may have been sent: asking again in %.0f s", self.publication.name, wait)
                self._sleep(wait)
                found = self.courier.look_up()
        return found

    def _pause(self, known: Known) -> None:
        """Another publisher has begun a send and is about to lock the row, or died just now."""
        if time.monotonic() >= self._until:
            raise self._busy(known.owner)
        self._sleep(_PAUSE)

    def _sleep(self, seconds: float) -> None:
        """In pieces: a task that is killed does not sleep on."""
        end = time.monotonic() + seconds
        while not self._is_stopped and (left := end - time.monotonic()) > 0:
            time.sleep(min(left, _NAP))

    # --- the send -------------------------------------------------------------------------------------------

    def _send(self, token: str) -> Published | None:
        """Send under the lock, if the send that was begun is still ours; None: somebody else took over, look again."""
        known: Known | None = None
        answer: Answer | None = None
        try:
            with self._locked(at_least=_OWN_LOCK) as tx:
                known = publications.lock(tx, self._sql, self.publication)
                if known is None or known.token != token or known.state != State.SENDING:
                    log.warning("%s was taken over before it was sent", self.publication.name)
                    return None
                answer = self._delivered(known)
                self.observe(OUTCOME, "before")
                publications.end(tx, self._sql, self.publication, token, **vars(answer))
        except (ConnectionLostError, SafeOpsError) as error:
            if answer is None or known is None:
                self._take_back(token)
                raise
            known = self._record_again(token, known.sends, answer, error)
        self.observe(OUTCOME, "after")
        return self._ended(known, answer)

    def _take_back(self, token: str) -> None:
        """It failed before anything was sent: best effort, so that nobody has to ask."""
        with suppress(SafeOpsError, ConnectionLostError):
            self._reconnect(seconds=1.0)
            self.session.allow_last_words()
            self._end(token)

    def _ended(self, known: Known, answer: Answer) -> Published:
        if answer.error is not None:
            raise answer.error from answer.error.__cause__
        return self._told(known, answer.how or "", answer)

    def _delivered(self, known: Known) -> Answer:
        """Call ``send``, and say what came of it."""
        self._is_sending = True
        self.session.expect_answers_within(_ANSWER)  # a silent server is no reason to lose the receiver's answer
        try:
            with self._step(SEND), self._alive():
                return self.courier.deliver(known)
        finally:
            self._is_sending = False

    def _record_again(self, token: str, sends: int, answer: Answer, lost: Exception) -> Known:
        """The receiver has answered and the ledger's connection broke: tell it on a new one."""
        log.warning("the connection to the ledger was lost after the send; recording the outcome on a new one")
        try:
            self._reconnect(seconds=30.0)
            if (known := self._end(token, answer, sends)) is not None:
                return known
        except (SafeOpsError, ConnectionLostError) as error:
            lost = error
        raise PublicationUnknown(
            f"The receiver's answer to {self.publication.name} ({answer.state}) could not be recorded: {lost}."
        ) from lost

    def _end(self, token: str, answer: Answer | None = None, sends: int = 0) -> Known | None:
        """
        Record the outcome of our send on a new connection; None where somebody else has begun one since.

        The old connection may hold its lock until the server notices.

        :param answer: None where nothing was sent.
        :param sends: how many sends there were with ours.
        """
        with self.session.transaction(lock=_LOCK_OF_THE_DEAD, waits=True) as tx:
            known = publications.lock(tx, self._sql, self.publication)
            if known is None:
                return None
            if known.token == token:
                if known.state == State.SENDING:  # else the COMMIT took place, and its answer was lost
                    came = answer or Answer(State.UNKNOWN if known.in_doubt else State.INTENDED)
                    publications.end(tx, self._sql, self.publication, token, **vars(came))
                return known
            if answer is not None and known.is_unknown and known.sends == sends:
                # Somebody looked meanwhile and could not tell; nobody has sent it again.
                publications.note(tx, self._sql, self.publication, **vars(answer))
                return known
            return None

    # --- the ledger -----------------------------------------------------------------------------------------

    @contextmanager
    def _locked(self, at_least: float = 0.05) -> Iterator[Executor]:
        """A transaction that waits for the key's publisher, as long as lock_timeout allows."""
        left = max(at_least, self._until - time.monotonic())
        self.session.doing(LOCK)
        try:
            with self.session.transaction(lock=left, waits=True) as tx:
                yield tx
        except SafeOpsError as error:
            if self.dialect.is_lock_timeout(error):
                raise self._busy(self._owner()) from error
            raise

    def _owner(self) -> str:
        with suppress(SafeOpsError, ConnectionLostError), self.session.transaction() as tx:
            known = publications.read(tx, self._sql, self.publication)
            return known.owner if known else ""
        return ""

    def _busy(self, owner: str) -> PublisherBusy:
        waited = self.patience.lock_timeout
        return PublisherBusy(
            f"{self.publication.name} is held by {owner or 'another publisher'} for longer than lock_timeout "
            f"({waited:g} s).",
            owner=owner,
            lock_timeout=waited,
        )

    @contextmanager
    def _alive(self) -> Iterator[None]:
        """Give the lock's transaction signs of life while the receiver is waited for."""
        over = threading.Event()

        def beat() -> None:
            with suppress(SafeOpsError, ConnectionLostError):  # it is noticed where the outcome is recorded
                while not over.wait(BEAT):
                    self.session.run(self._sql.still_here())

        beating = threading.Thread(target=beat, name="safe_ops_beat", daemon=True)
        beating.start()
        try:
            yield
        finally:
            over.set()
            beating.join(timeout=5)

    @contextmanager
    def _step(self, name: str) -> Iterator[None]:
        self.session.doing(name)
        self.observe(name, "before")
        yield
        self.observe(name, "after")

    def _session(self) -> Session:
        run = self.run
        return Session(
            self.connect,
            self.dialect,
            label=f"safe_ops {run.dag_id}.{run.task_id}",
            comment="/* safe_ops publish */ ",
            deadline=self._deadline,
            lock=self.patience.statement,
        )

    def _reconnect(self, seconds: float) -> None:
        self.session.close()
        self.session = self._session()
        patiently = Retrying(
            stop=stop_after_delay(seconds),
            wait=wait_exponential(max=5),
            retry=retry_if_exception_type(StatementFailed),
            reraise=True,
        )
        patiently(self.session.open)

    def _told(self, known: Known, how: str, answer: Answer | None = None) -> Published:
        outcome = known.outcome if answer is None else answer.outcome
        return Published(
            key=self.publication.key,
            receiver=self.publication.receiver,
            how="settled" if known.how == "settled" else how,
            sends=known.sends,
            idempotency_key=known.idempotency_key,
            intent_hash=self.publication.intent_hash,
            outcome=None if outcome is None else json.loads(outcome),
        )
