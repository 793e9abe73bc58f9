"""One plan, executed: stage, look, write, count and publish in the transaction that holds the claim."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass

from airflow_safe_ops.definition.scope import Scope, covers
from airflow_safe_ops.errors import OtherWriter, StatementFailed, StatementRefused
from airflow_safe_ops.execution.session import ConnectionLostError, Session
from airflow_safe_ops.ledger import claims, store
from airflow_safe_ops.ledger.claims import Claim
from airflow_safe_ops.plan.load import COMMIT, HOLD, PUBLISH
from airflow_safe_ops.plan.model import Facts, Plan, Statement, Step
from airflow_safe_ops.plan.outcome import checksum_of, is_changed, new_state, rows_unchanged

_SAMPLES = 5
Observer = Callable[[str, str], None]


class WiderClaimError(Exception):
    """Keys moved from partitions that are not claimed yet."""

    def __init__(self, scopes: tuple[Scope, ...]) -> None:
        super().__init__()
        self.scopes = scopes


class CommitUnknownError(Exception):
    """The connection broke at COMMIT: only the ledger knows whether the load took place."""


@dataclass(frozen=True)
class DataTransaction:
    """
    The transaction of one plan.

    :param began: when the load began, by ``time.monotonic()``.
    :param lock: longest wait for a lock, in seconds.
    :param log_samples: whether refusals show sample rows.
    :param observe: called with each step's name and ``before`` or ``after``.
    """

    session: Session
    plan: Plan
    claim: Claim
    began: float
    lock: float
    log_samples: bool
    observe: Observer

    def run(self) -> Facts:
        """
        Execute every step and commit.

        :return: what the steps counted.
        :raises SafeOpsError: a step refused the load, or a statement failed; everything is rolled back.
        :raises FencedError: the claim is no longer ours; everything is rolled back.
        :raises WiderClaimError: keys moved from partitions that are not claimed; everything is rolled back.
        :raises CommitUnknownError: the answer to COMMIT was lost.
        """
        facts: Facts = {}
        at = ""
        try:
            with self.session.transaction(lock=self.lock):
                for step in self.plan.steps:
                    at = step.name
                    self.observe(at, "before")
                    self._step(step, facts)
                    if at != COMMIT:  # it ends with the block
                        self.observe(at, "after")
        except ConnectionLostError as error:
            if at == COMMIT:
                raise CommitUnknownError from error
            raise
        self.observe(COMMIT, "after")
        return facts

    def _step(self, step: Step, facts: Facts) -> None:
        self.session.doing(step.name)
        if step.name == HOLD:
            claims.hold(self.session, self.session.dialect.ledger, self.claim)
        elif step.name == PUBLISH:
            self._publish(facts)
        elif step.statement is not None:
            self._execute(step, step.statement, facts)
        judge(self.session, step, facts, log_samples=self.log_samples)

    def _execute(self, step: Step, statement: Statement, facts: Facts) -> None:
        if step.violation is not None:
            facts[step.violation] = self._is_violated(step, statement)
            return
        try:
            with self.session.part(reads_only=step.reads_only) if step.reads_only or step.asks else nullcontext():
                result = self.session.run(statement)
        except StatementRefused as error:
            self._ask_why(step, error, facts)
            raise
        if step.fact:
            facts[step.fact] = result.rowcount
        elif result.rows:
            facts.update(result.named[0])
        if step.name == "target.moved":
            self._claim_moved(step, facts)

    def _ask_why(self, step: Step, error: StatementRefused, facts: Facts) -> None:
        """
        Who broke a unique index: a key that is staged twice, or stands in another partition; else another writer.

        :raises SafeOpsError: the answer; none where the index has nothing to do with the load's key.
        """
        task = self.plan.task
        broken = self.session.dialect.broken_constraint(error)
        if broken is None:
            return
        for ask in step.asks:
            self._step(ask, facts)
        keys = [set(columns) for name, columns in task.table.unique_keys if name == broken]
        # An index on fewer columns than the key may be broken by the staged rows themselves, or by rows that stay.
        are_told_apart = bool(step.asks) and not task.load.leaves_rows
        if any(key == set(task.load.key) or (are_told_apart and key < set(task.load.key)) for key in keys):
            what = f"Another load or writer brought a staged key to {task.table.name} ({broken})."
            raise OtherWriter(what) from error

    def _is_violated(self, step: Step, statement: Statement) -> bool:
        """A constraint cannot be built where it is broken, or where a type knows none: then the query decides."""
        try:
            with self.session.part():
                self.session.run(statement)
        except StatementFailed:
            return step.sample is None or bool(self.session.run(step.sample).rows)
        return False

    def _claim_moved(self, step: Step, facts: Facts) -> None:
        """Moved keys are taken out of other partitions only while these are claimed too."""
        task = self.plan.task
        if task.load.on_key_moved != "move" or not facts["keys_moved"] or step.sample is None:
            return
        where = self.session.dialect.moved_scopes(self.session, task.scope, step.sample)
        missing = tuple(scope for scope in where if not any(covers(held, scope) for held in self.claim.scopes))
        if missing:
            raise WiderClaimError(missing)

    def _publish(self, facts: Facts) -> None:
        task, sql = self.plan.task, self.session.dialect.ledger
        facts["seconds"] = time.monotonic() - self.began
        facts.setdefault("rows_deleted", 0)
        facts.setdefault("rows_inserted", 0)
        if task.load.keeps_rows or task.load.appends:
            facts["rows_unchanged"] = rows_unchanged(facts)
        facts["checksum_of"] = checksum_of(task, self.session.dialect.name)
        recorded = store.recorded(self.session, sql, self.claim.target_id, task.scope)
        before = next((record.content for record in recorded if record.key == task.key), None)
        facts["changed"] = is_changed(task, facts, before)
        store.publish(self.session, sql, self.claim, task.scope, new_state(task, facts, recorded), facts)


def judge(session: Session, step: Step, facts: Facts, *, log_samples: bool = False) -> None:
    """
    Let a step's refusals decide.

    :param log_samples: whether a refusal shows sample rows.
    :raises SafeOpsError: the first refusal.
    """
    for refusal in step.refusals:
        error = refusal(facts, [])
        if error is None:
            continue
        if step.sample is not None and log_samples:
            error = refusal(facts, session.run(step.sample).named[:_SAMPLES]) or error
        raise error
