"""
A write that is not ours, under our claim: dbt, a stored procedure, Spark, COPY.

What the writer commits cannot be part of our transaction. So the claim is held by a transaction that stays open on
a connection of its own while the writer works, the ledger has the partition as ``unconfirmed`` from before the first
row until the end, and rows that are there already are a decision before the writer starts.
"""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field, replace

from airflow_safe_ops.definition.guard import GuardedTarget
from airflow_safe_ops.definition.identity import RunIdentity
from airflow_safe_ops.definition.scope import Scope, TimeScope
from airflow_safe_ops.errors import EmptySource, SafeOpsError, StatementFailed, Unfenced, WriteRepeated
from airflow_safe_ops.execution import held
from airflow_safe_ops.execution.held import ClaimLostError, HeldClaim
from airflow_safe_ops.execution.prepare import all_columns, target_scopes
from airflow_safe_ops.execution.session import ConnectionLostError, Session, harmless
from airflow_safe_ops.execution.transaction import judge
from airflow_safe_ops.ledger import store
from airflow_safe_ops.ledger.claims import Claim, Patience
from airflow_safe_ops.ledger.migrations import init_ledger
from airflow_safe_ops.plan.load import PUBLISH, check_steps, refuse_cascade
from airflow_safe_ops.plan.model import Facts, LoadTask, Recorded, Step
from airflow_safe_ops.plan.outcome import checksum_of
from airflow_safe_ops.sql.dialect import Connection, Dialect

log = logging.getLogger(__name__)
_CONNECT = 3  # times the pause between two questions to the claim's connection
_OUTCOME = 70.0  # a connection that fell silent is dropped after a minute
_COMMITTED = "The writer has committed its rows; the ledger has the partition as unconfirmed."


@dataclass(eq=False)
class GuardedWrite:
    """
    One write of a program that is not ours: :meth:`begin`, then the writer, then :meth:`end` or :meth:`fail`.

    :param connect: opens a connection to the target's database.
    """

    target: GuardedTarget
    run: RunIdentity
    connect: Callable[[], Connection]
    dialect: Dialect
    patience: Patience = field(default_factory=Patience)
    _task: LoadTask | None = field(init=False, default=None)
    _checks: Sequence[Step] = field(init=False, default=())
    _held: HeldClaim | None = field(init=False, default=None)
    _before: Recorded | None = field(init=False, default=None)
    _found: int = field(init=False, default=0)
    _deleted: int = field(init=False, default=0)
    _left: int = field(init=False, default=0)

    def __post_init__(self) -> None:
        self._session = self._new_session()
        self._began = time.monotonic()

    @property
    def scope(self) -> Scope:
        """The rows that the writer owns: one range, also with ``lookback``."""
        return self._described.scope

    def begin(self) -> None:
        """
        Claim the partition, decide over the rows that are there, and mark it ``unconfirmed``.

        :raises WriteRepeated: it holds rows, and nothing was declared for them.
        :raises ClaimTimeout: another load or writer held it for longer than ``lock_timeout``.
        """
        try:
            self._session.open()
            self._task = self._describe()
            self._session.doing("ledger")
            init_ledger(self._session, self.dialect.ledger, self.dialect.sqlstate)
            self._held = HeldClaim(self._session, self._new_claim())
            self._held.take(self.patience, self._begin_writing)
        except BaseException as error:
            self.fail(error)
            if isinstance(error, ConnectionLostError):
                raise StatementFailed(
                    f"The connection was lost ({error}).", why="The writer was not started."
                ) from error
            raise

    def end(self) -> None:
        """
        The writer has ended: judge what the partition holds, record it, give the claim back.

        :raises PostCheckFailed: the rows are not what they must be; they stay, and the partition is ``unconfirmed``.
        :raises Unfenced: the claim was lost meanwhile.
        """
        try:
            with self._claim.last_words():
                self._publish()
        except ClaimLostError as error:
            self._end_unfenced(error)
        except BaseException as error:
            if isinstance(error, SafeOpsError):
                error.why = _COMMITTED
            self._record_failure(error)
            raise
        finally:
            self._session.close()
        log.info("guarded: %s, deleted %d, %d rows now", self.scope.key, self._deleted, self._left)

    def fail(self, error: BaseException) -> None:
        """The writer has failed, or was not started: the claim is given back."""
        try:
            if self._held is not None:
                self._held.give_up()
                self._record_failure(error)
        finally:
            self._session.close()

    @property
    def _described(self) -> LoadTask:
        if self._task is None:
            raise RuntimeError("begin() comes first")
        return self._task

    @property
    def _claim(self) -> HeldClaim:
        if self._held is None:
            raise RuntimeError("begin() comes first")
        return self._held

    def _new_session(self) -> Session:
        label = f"safe_ops {self.run.dag_id}.{self.run.task_id} guard"
        comment = f"/* safe_ops guard {harmless(self.run.label)} */ "
        return Session(self.connect, self.dialect, label=label, comment=comment, lock=self.patience.statement)

    @contextmanager
    def _beside(self) -> Iterator[Session]:
        """
        A second connection: what it commits is there while the first one holds the claim.

        :raises SafeOpsError: the server does not answer.
        """
        session = self._new_session()
        session.expect_answers_within(_CONNECT * held.EVERY)
        try:
            session.open()
            session.expect_answers_within(None)
            yield session
        finally:
            session.close()

    def _new_claim(self) -> Claim:
        task, scope = self._described, self.scope
        attempt = store.attempt_of(self.run, task.attempt_id, scope.key, scope, None, doing="guarded")
        return Claim(task.table.identity, attempt, (scope,), self.run.label)

    def _describe(self) -> LoadTask:
        """What is guarded, as the catalog has it now; the checks' SQL is understood before anything is written."""
        self._session.doing("describe")
        with self._session.transaction() as tx:
            server = self.dialect.server(tx)
            table = replace(self.dialect.describe(tx, self.target.table), server_version=server.version)
            scopes = target_scopes(self._session, self.target.partition, table, self.run, server.now)
        if self.target.on_repeat == "clean_up":
            refuse_cascade(table)
        task = replace(all_columns(table, _as_one(scopes), str(uuid.uuid4())), binds=_as_one(scopes).binds)
        self._checks = check_steps(task, self.dialect.load, self.target.post_checks, staged=False)
        return task

    def _begin_writing(self, session: Session) -> None:
        """Committed before the writer starts: nothing that it does later can be undone."""
        task, sql, on_repeat = self._described, self.dialect.ledger, self.target.on_repeat
        session.doing("target.look")
        uncounted = replace(task, load=replace(task.load, checksum="off"))
        self._found = int(session.run(self.dialect.load.look_after(uncounted)).named[0]["rows_after"])
        known = store.recorded(session, sql, self._claim.claim.target_id, task.scope)
        self._before = next((record for record in known if record.key == task.scope.key), None)
        state = self._before.state if self._before else "unknown"
        said = f"{task.table.name} holds {self._found:,} rows in {task.scope.key}; the ledger has it as {state}."
        if self._found and on_repeat == "fail":
            raise WriteRepeated(said, rows=self._found, state=state)
        log.info("guarded: %s", said)
        if on_repeat == "clean_up":
            session.doing("target.delete")
            self._deleted = session.run(self.dialect.load.delete_partition(task)).rowcount
        session.doing("ledger.unconfirmed")
        store.put_unconfirmed(session, sql, self._claim.claim, task.scope)

    def _publish(self) -> None:
        session, sql, claim = self._session, self.dialect.ledger, self._claim.claim
        session.doing("target.count")
        table = replace(
            self.dialect.describe(session, self.target.table), server_version=self._described.table.server_version
        )
        task = all_columns(table, self.scope, claim.attempt_id)  # the writer may have added a column
        facts: Facts = {"rows_deleted": self._deleted, "checksum_of": checksum_of(task, self.dialect.name)}
        facts |= session.run(self.dialect.load.look_after(task)).named[0]
        self._left = int(facts["rows_after"])
        if not self._left:
            self._judge_empty()
        for step in self._checks:
            session.doing(step.name)
            if step.statement is not None:
                with session.part(reads_only=True):
                    facts.update(session.run(step.statement).named[0])
            judge(session, step, facts)
        after = Recorded("", task.scope, "", facts["rows_after"], facts.get("checksum"), facts["checksum_of"]).content
        facts["changed"] = after["checksum"] is None or self._before is None or after != self._before.content
        facts["seconds"] = time.monotonic() - self._began
        session.doing(PUBLISH)
        store.confirm(session, sql, claim, self.scope, facts)

    def _judge_empty(self) -> None:
        """
        The writer has left nothing: perhaps it wrote another partition than its guard's.

        :raises EmptySource: there were rows before, and it was not declared that none may follow.
        """
        what = f"The writer has left no row in {self.scope.key} of {self._described.table.name}"
        if self._found and self.target.on_empty == "fail":
            raise EmptySource(
                f"{what}, which held {self._found:,}.",
                fix="Look whether it wrote another partition than its guard's, and let both take their dates from one "
                'place. If no rows are right, declare on_empty="replace".',
                rows=self._found,
            )
        log.warning("guarded: %s. Look whether it wrote another partition than its guard's", what)

    def _end_unfenced(self, lost: Exception) -> None:
        """
        Record that the claim was gone; unless all that was lost is the answer to our COMMIT.

        :raises Unfenced: always else.
        """
        claim, sql = self._claim.claim, self.dialect.ledger
        what = f"The claim on {self.scope.key} of {claim.identity} was lost while the writer wrote: {lost}."
        unfenced = Unfenced(what, attempt=claim.attempt_id)
        try:
            with self._beside() as beside:
                if store.outcome(beside, sql, claim.attempt_id, wait=_OUTCOME)["state"] == "published":
                    return
                self._record(beside, unfenced, is_unfenced=True)
        except Exception:
            log.warning("that the claim was lost could not be recorded", exc_info=True)
        raise unfenced from lost

    def _record_failure(self, error: BaseException) -> None:
        """Best effort, and quick: the writer's own error is what is raised."""
        self._session.allow_last_words()
        try:
            self._record(self._session, error)
        except Exception:
            log.warning("the failure could not be recorded; trying a new connection", exc_info=True)
            with suppress(Exception), self._beside() as beside:
                beside.allow_last_words()
                self._record(beside, error)

    def _record(self, session: Session, error: BaseException, *, is_unfenced: bool = False) -> None:
        """A writer that failed and had lost its claim too has written beside whoever has it now."""
        claim, sql, seconds = self._claim.claim, self.dialect.ledger, time.monotonic() - self._began
        counted = {"rows_deleted": self._deleted} if self._claim.is_begun else {}
        if is_unfenced or (self._claim.is_begun and not store.is_claimed(session, sql, claim)):
            store.end_unfenced(session, sql, claim, self.scope, error, seconds, counted)
        else:
            store.fail(session, sql, claim, error, seconds, counted)


@contextmanager
def guarding(
    write: GuardedWrite, told: Callable[[], AbstractContextManager[None]] = nullcontext
) -> Iterator[GuardedWrite]:
    """
    The writer is the block.

    :param told: a context in which the guard's own refusals are raised; the writer's errors stay as they are.
    """
    with told():
        write.begin()
    try:
        yield write
    except BaseException as error:
        write.fail(error)
        raise
    with told():
        write.end()


def _as_one(scopes: Sequence[Scope]) -> Scope:
    """A writer that is not ours writes all its grains at once: they are one range, claimed and recorded as one."""
    first, last = scopes[0], scopes[-1]
    if isinstance(first, TimeScope) and isinstance(last, TimeScope):
        return replace(first, end=last.end)
    return first
