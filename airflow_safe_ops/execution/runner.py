"""
One load from its declaration to its record.

``prepare`` (nothing written) → ledger → claim → data transaction (stage, look, write, count, publish) → commit.
A failure anywhere rolls back, is recorded, and gives the claim back; a death anywhere leaves a claim that nobody
holds and an attempt that reads as lost.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace

from tenacity import Retrying, retry_if_exception_type, stop_after_delay, wait_exponential

from airflow_safe_ops.definition.identity import RunIdentity
from airflow_safe_ops.definition.load import Load
from airflow_safe_ops.errors import (
    CommitNotConfirmed,
    OutcomeUnknown,
    SafeOpsError,
    StatementFailed,
    TargetChanged,
)
from airflow_safe_ops.execution.prepare import prepare
from airflow_safe_ops.execution.result import LoadResult, PartitionResult
from airflow_safe_ops.execution.session import ConnectionLostError, Session, harmless
from airflow_safe_ops.execution.transaction import CommitUnknownError, DataTransaction, Observer, WiderClaimError
from airflow_safe_ops.ledger import claims, store
from airflow_safe_ops.ledger.claims import Claim, FencedError, Patience
from airflow_safe_ops.ledger.migrations import init_ledger, is_ledger_there
from airflow_safe_ops.plan.load import CLAIM, load_plan
from airflow_safe_ops.plan.model import Facts, LoadTask, Plan
from airflow_safe_ops.sql.dialect import Connection, Dialect

log = logging.getLogger(__name__)
PREPARE = "prepare"


def _nobody(_step: str, _when: str) -> None:
    """Watch nothing."""


@dataclass
class LoadRunner:
    """
    Runs one load.

    :param connect: opens a connection to the target's database.
    :param seconds: longest that all of it may take; None without an execution timeout.
    :param log_samples: whether refusals show sample rows.
    :param observe: called with each step's name and ``before`` or ``after``.
    """

    load: Load
    run: RunIdentity
    connect: Callable[[], Connection]
    dialect: Dialect
    patience: Patience = field(default_factory=Patience)
    seconds: float | None = None
    log_samples: bool = True
    observe: Observer = _nobody
    session: Session = field(init=False)

    def __post_init__(self) -> None:
        self._deadline = None if self.seconds is None else time.monotonic() + self.seconds
        self.session = self._session()

    def execute(self) -> LoadResult:
        """
        Load every partition that the run owns, oldest first, each in a transaction of its own.

        :raises SafeOpsError: what was refused or failed; partitions before it are published.
        """
        try:
            self.observe(PREPARE, "before")
            self.session.open()
            tasks = prepare(self.session, self.load, self.run)
            self.session.doing("ledger")
            init_ledger(self.session, self.dialect.ledger, self.dialect.sqlstate)
            self.observe(PREPARE, "after")
            done = self._load_each(tasks)
        except ConnectionLostError as error:
            raise _lost(error) from error
        finally:
            self.session.close()
        return done

    def plans(self) -> list[Plan]:
        """What :meth:`execute` would do now, with nothing written: the same plans."""
        try:
            self.session.open()
            return [self._plan_as_of_now(task) for task in prepare(self.session, self.load, self.run)]
        except ConnectionLostError as error:
            raise _lost(error) from error
        finally:
            self.session.close()

    def cancel(self) -> None:
        """Stop: the running statement ends, nothing is published."""
        self.session.cancel()

    def _session(self) -> Session:
        run = self.run
        facts = {"dag": run.dag_id, "task": run.task_id, "run": run.run_id, "try": run.try_number}
        words = " ".join(f"{name}={harmless(str(value))}" for name, value in facts.items())
        label = f"safe_ops {run.dag_id}.{run.task_id}"
        return Session(
            self.connect,
            self.dialect,
            label=label,
            comment=f"/* safe_ops {words} */ ",
            deadline=self._deadline,
            lock=self.patience.statement,
        )

    def _plan_as_of_now(self, task: LoadTask) -> Plan:
        sql = self.dialect.ledger
        self.session.doing("describe")
        with self.session.transaction() as tx:
            now = replace(self.dialect.describe(tx, self.load.table), server_version=task.table.server_version)
            new = {column.name for column in task.new_columns}  # an earlier partition of this run may have added them
            if replace(now, columns=tuple(c for c in now.columns if c.name not in new)) != task.table:
                raise TargetChanged(f"{task.table.name} is not what it was when this load began.")
            known = store.recorded_of(tx, sql, task.table.identity, task.scope) if is_ledger_there(tx, sql) else []
        return load_plan(task, self.dialect.load, known)

    def _load_each(self, tasks: Sequence[LoadTask]) -> LoadResult:
        done: list[PartitionResult] = []
        for task in tasks:
            try:
                done.append(self._load(task))
            except SafeOpsError as error:
                if done:
                    error.why = f"Published before it: {', '.join(result.partition for result in done)}. {error.why}"
                raise
        return LoadResult(tasks[0].table.identity, self.load.strategy, tuple(done), self._changed_in_run())

    def _changed_in_run(self) -> bool:
        """All is published by now: a ledger that does not answer fails no load; it may have changed something."""
        try:
            with self.session.transaction() as tx:
                return store.changed_in_run(tx, self.dialect.ledger, self.run)
        except (SafeOpsError, ConnectionLostError):
            log.warning("the ledger could not be asked whether this run changed anything", exc_info=True)
            return True

    def _load(self, task: LoadTask) -> PartitionResult:
        began = time.monotonic()
        claim = Claim(task.table.identity, store.attempt_row(task, self.run), (task.scope,), self.run.label)
        try:
            facts = self._until_held(task, claim, began)
        except BaseException as error:
            self._record_failure(claim, error, began)
            raise
        return PartitionResult.from_facts(task.key, task.attempt_id, facts, claim.waited)

    def _until_held(self, task: LoadTask, claim: Claim, began: float) -> Facts:
        """Claim and load; again when the claim was taken from us or has to be wider."""
        for _ in range(claims.TRIES):
            self.observe(CLAIM, "before")
            self.session.doing(CLAIM)
            claims.take(self.session, self.dialect, claim, self.patience)
            self.observe(CLAIM, "after")
            try:
                return self._transaction(task, claim, began).run()
            except CommitUnknownError as error:
                return self._ask_outcome(task, error)
            except FencedError:
                log.warning("the claim on %s was taken away before the load began; claiming again", task.key)
            except WiderClaimError as wider:
                log.info("keys moved from %s; claiming these too", ", ".join(s.key for s in wider.scopes))
                claim.widen(wider.scopes)
        raise claims.too_contended(claim)

    def _transaction(self, task: LoadTask, claim: Claim, began: float) -> DataTransaction:
        plan = self._plan_as_of_now(task)
        for note in plan.notes:
            log.info("%s: %s", task.table.name, note)
        lock = self.patience.statement
        return DataTransaction(self.session, plan, claim, began, lock, self.log_samples, self.observe)

    def _ask_outcome(self, task: LoadTask, error: CommitUnknownError) -> Facts:
        """Ask the ledger on a new connection."""
        log.warning("the answer to COMMIT was lost; looking at the ledger")
        try:
            self._reconnect(seconds=30.0)
            found = store.outcome(self.session, self.dialect.ledger, task.attempt_id, wait=70.0)
        except (SafeOpsError, ConnectionLostError) as silence:
            raise OutcomeUnknown(
                f"Attempt {task.attempt_id} of {task.key} was committed or not: {silence}",
                attempt=task.attempt_id,
            ) from silence
        if found["state"] == "published":
            return found
        raise CommitNotConfirmed(f"The load of {task.key} is {found['state']} in the ledger.") from error

    def _reconnect(self, seconds: float, *, last_words: bool = False) -> None:
        """A new connection; a server that fails over is given some time."""
        self.session.close()
        self.session = self._session()
        if last_words:
            self.session.allow_last_words()
        patiently = Retrying(
            stop=stop_after_delay(seconds),
            wait=wait_exponential(max=5),
            retry=retry_if_exception_type(StatementFailed),
            reraise=True,
        )
        patiently(self.session.open)

    def _record_failure(self, claim: Claim, error: BaseException, began: float) -> None:
        """Best effort, and quick, since a killed task has seconds: the load's own error is what is raised."""
        self.session.allow_last_words()
        seconds = time.monotonic() - began
        try:
            store.fail(self.session, self.dialect.ledger, claim, error, seconds)
        except Exception:
            log.warning("the failure could not be recorded; trying a new connection", exc_info=True)
            with suppress(Exception):
                self._reconnect(seconds=1.0, last_words=True)
                store.fail(self.session, self.dialect.ledger, claim, error, seconds)


def _lost(error: ConnectionLostError) -> SafeOpsError:
    return StatementFailed(f"The connection was lost ({error}).")
