"""
One load from its declaration to its record.

``prepare`` (nothing written) → ledger → claim → data transaction (stage, look, write, count, publish) → commit.
A failure anywhere rolls back, is recorded, and gives the claim back; a death anywhere leaves a claim that nobody
holds and an attempt that reads as lost.
"""

from __future__ import annotations

import hashlib
import json
import logging
import time
from collections.abc import Callable
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field
from typing import Any

from tenacity import Retrying, retry_if_exception_type, stop_after_delay, wait_exponential

from airflow_safe_ops.definition.identity import RunIdentity
from airflow_safe_ops.definition.load import Load
from airflow_safe_ops.definition.scope import Scope, covers, to_json
from airflow_safe_ops.errors import ClaimTooContended, CommitNotConfirmed, SafeOpsError, StatementFailed
from airflow_safe_ops.execution.prepare import prepare
from airflow_safe_ops.execution.result import LoadResult, PartitionResult
from airflow_safe_ops.execution.session import ConnectionLostError, Session
from airflow_safe_ops.ledger import claims, store
from airflow_safe_ops.ledger.claims import Claim, FencedError, Patience
from airflow_safe_ops.ledger.migrations import init_ledger
from airflow_safe_ops.plan.load import COMMIT, PUBLISH, load_plan
from airflow_safe_ops.plan.model import Facts, LoadTask, Plan, Statement, Step
from airflow_safe_ops.sql.dialect import Connection, Dialect

log = logging.getLogger(__name__)
CLAIM, PREPARE = "claim", "prepare"
_FENCED_TRIES = 20
_RECONNECT = 30.0
Observer = Callable[[str, str], None]


class _WiderClaimError(Exception):
    """Keys moved from partitions that are not claimed yet."""

    def __init__(self, scopes: tuple[Scope, ...]) -> None:
        super().__init__()
        self.scopes = scopes


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
            done = [self._load(task) for task in tasks]
        except ConnectionLostError as error:
            raise _lost(error) from error
        finally:
            self.session.close()
        return LoadResult(tasks[0].table.identity, self.load.strategy, tuple(done))

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
        words = " ".join(f"{name}={_harmless(str(value))}" for name, value in facts.items())
        label = f"safe_ops {run.dag_id}.{run.task_id}"
        return Session(
            self.connect, self.dialect, label=label, comment=f"/* safe_ops {words} */ ", seconds=self.seconds
        )

    def _plan_as_of_now(self, task: LoadTask) -> Plan:
        sql = self.dialect.ledger
        with self.session.transaction() as tx:
            has_ledger = sql.schema in [row[0] for row in tx.run(sql.where_is_ledger()).rows]
            known = store.known_scopes(tx, sql, task.table.identity, task.scope) if has_ledger else []
        return load_plan(task, self.dialect.load, known)

    def _load(self, task: LoadTask) -> PartitionResult:
        began = time.monotonic()
        claim = Claim(task.table.identity, self._attempt(task), (task.scope,), self.run.label)
        try:
            facts = self._until_held(task, claim, began)
        except BaseException as error:
            self._record_failure(claim, error)
            raise
        return PartitionResult.from_facts(task.scope.key, task.attempt_id, facts, claim.waited)

    def _until_held(self, task: LoadTask, claim: Claim, began: float) -> Facts:
        """Claim and load; again when the claim was taken from us or has to be wider."""
        for _ in range(_FENCED_TRIES):
            self.observe(CLAIM, "before")
            self.session.doing(CLAIM)
            claims.take(self.session, self.dialect.ledger, claim, self.patience, self._is_lock_timeout)
            self.observe(CLAIM, "after")
            try:
                return self._transaction(task, claim, began)
            except FencedError:
                log.warning("the claim on %s was taken away before the load began; claiming again", task.scope.key)
            except _WiderClaimError as wider:
                log.info("keys moved from %s; claiming these too", ", ".join(s.key for s in wider.scopes))
                claim.widen(wider.scopes)
            except SafeOpsError as error:
                if not self._is_fenced(error):
                    raise
        raise ClaimTooContended(f"The claim on {task.scope.key} of {task.table.name} was lost {_FENCED_TRIES} times.")

    def _transaction(self, task: LoadTask, claim: Claim, began: float) -> Facts:
        facts: Facts = {}
        committing = False
        try:
            with self.session.transaction(lock=self.patience.lock_timeout) as tx:
                if task.load.exclusive:
                    tx.run(self.dialect.load.lock_table(task))
                self.session.doing(CLAIM)
                claims.hold(tx, self.dialect.ledger, claim)
                known = store.known_scopes(tx, self.dialect.ledger, task.table.identity, task.scope)
                for step in load_plan(task, self.dialect.load, known).steps:
                    self.observe(step.name, "before")
                    self._step(task, claim, step, facts, began)
                    committing = step.name == COMMIT
                    if not committing:
                        self.observe(step.name, "after")
        except ConnectionLostError as error:
            return self._ask_outcome(task, error, committing=committing)
        self.observe(COMMIT, "after")
        return facts

    def _step(self, task: LoadTask, claim: Claim, step: Step, facts: Facts, began: float) -> None:
        self.session.doing(step.name)
        if step.name == PUBLISH:
            facts["seconds"] = time.monotonic() - began
            self._publish(task, claim, facts)
        elif step.statement is not None:
            self._execute(step, step.statement, facts)
        if step.name == "target.moved":
            self._claim_moved(task, claim, step, facts)
        self._judge(step, facts)

    def _execute(self, step: Step, statement: Statement, facts: Facts) -> None:
        if step.violation is not None:
            facts[step.violation] = self._is_violated(step, statement)
            return
        with self.session.part(reads_only=True) if step.reads_only else nullcontext():
            result = self.session.run(statement)
        if step.fact:
            facts[step.fact] = result.rowcount
        elif result.rows:
            facts.update(result.named[0])

    def _is_violated(self, step: Step, statement: Statement) -> bool:
        """A constraint cannot be built where it is broken, or where a type knows none: then the query decides."""
        try:
            with self.session.part():
                self.session.run(statement)
        except StatementFailed:
            return step.sample is None or bool(self.session.run(step.sample).rows)
        return False

    def _judge(self, step: Step, facts: Facts) -> None:
        for guard in step.guards:
            error = guard(facts, [])
            if error is None:
                continue
            if step.sample is not None and self.log_samples:
                error = guard(facts, self.session.run(step.sample).named[:5]) or error
            raise error

    def _claim_moved(self, task: LoadTask, claim: Claim, step: Step, facts: Facts) -> None:
        """Moved keys are taken out of other partitions only while these are claimed too."""
        if task.load.on_key_moved != "move" or not facts["keys_moved"] or step.sample is None:
            return
        where = self.dialect.moved_scopes(self.session, task.scope, step.sample)
        missing = tuple(scope for scope in where if not any(covers(held, scope) for held in claim.scopes))
        if missing:
            raise _WiderClaimError(missing)

    def _publish(self, task: LoadTask, claim: Claim, facts: Facts) -> None:
        sql = self.dialect.ledger
        facts.setdefault("rows_deleted", 0)
        if self.load.strategy == "merge":
            facts["rows_unchanged"] = facts["rows_staged"] - facts["rows_inserted"] - facts.get("rows_updated", 0)
        facts["checksum_of"] = self._checksum_of(task)
        before = {r.key: r for r in store.recorded(self.session, sql, claim.target_id, task.scope)}.get(task.scope.key)
        facts["changed"] = _changed(self.load, facts, before)
        store.publish(
            self.session,
            sql,
            target_id=claim.target_id,
            attempt_id=task.attempt_id,
            scope=task.scope,
            also=[scope for scope in claim.scopes if scope != task.scope],
            facts=facts,
        )
        claims.release(self.session, sql, claim)

    def _checksum_of(self, task: LoadTask) -> str | None:
        """What two checksums must share to be comparable."""
        if not task.hashed:
            return None
        major = task.table.server_version.partition(".")[0]
        columns = json.dumps([[c.name, c.type] for c in task.hashed])
        return f"1:{self.dialect.name}-{major}:{hashlib.sha256(columns.encode()).hexdigest()[:16]}"

    def _ask_outcome(self, task: LoadTask, error: ConnectionLostError, *, committing: bool) -> Facts:
        """The connection broke. If it was at COMMIT, the ledger knows what happened."""
        self._reconnect()
        if not committing:
            raise _lost(error) from error
        log.warning("the answer to COMMIT was lost; looking at the ledger")
        found = store.outcome(self.session, self.dialect.ledger, task.attempt_id, wait=60.0)
        if found["state"] == "published":
            return found
        raise CommitNotConfirmed(f"The load of {task.scope.key} is {found['state']} in the ledger.") from error

    def _reconnect(self) -> None:
        """A new connection; a server that fails over is given some time."""
        self.session.close()
        for attempt in Retrying(
            stop=stop_after_delay(_RECONNECT),
            wait=wait_exponential(max=5),
            retry=retry_if_exception_type(StatementFailed),
            reraise=True,
        ):
            with attempt:
                self.session = self._session()
                self.session.open()

    def _record_failure(self, claim: Claim, error: BaseException) -> None:
        """Best effort: the load's own error is what is raised."""
        self.session.allow_last_words()
        what = {
            "error_code": getattr(error, "code", None),
            "error_class": type(error).__name__,
            "error_message": str(error)[:2000],
        }
        try:
            store.fail(self.session, self.dialect.ledger, claim, what)
        except Exception:
            log.warning("the failure could not be recorded; trying a new connection", exc_info=True)
            with suppress(Exception):
                self._reconnect()
                store.fail(self.session, self.dialect.ledger, claim, what)

    def _attempt(self, task: LoadTask) -> dict[str, Any]:
        run = self.run
        return {
            "attempt_id": task.attempt_id,
            "partition_key": task.scope.key,
            "scope": to_json(task.scope),
            "strategy": self.load.strategy,
            "instance": run.instance,
            "dag_id": run.dag_id,
            "task_id": run.task_id,
            "map_index": run.map_index,
            "run_id": run.run_id,
            "run_type": run.run_type,
            "try_number": run.try_number,
            "clear_number": run.clear_number,
            "logical_date": run.logical_date,
            "user_name": run.user,
            "code_version": run.code_version,
            "parameters": json.dumps(run.params, default=str, sort_keys=True),
            "sql_hash": hashlib.sha256(self.load.sql.encode()).hexdigest(),
        }

    def _is_lock_timeout(self, error: SafeOpsError) -> bool:
        return error.facts.get("sqlstate") == "55P03"

    def _is_fenced(self, error: SafeOpsError) -> bool:
        return error.facts.get("sqlstate") == "40001" and error.facts.get("step") == CLAIM


def _changed(load: Load, facts: Facts, before: store.Recorded | None) -> bool:
    """A merge counts what it changed; a replacement is compared with what was last published."""
    if load.strategy == "merge" or not (facts["rows_deleted"] or facts["rows_inserted"]):
        counted = ("rows_deleted", "rows_inserted", "rows_updated", "rows_moved")
        return before is None or any(facts.get(name) for name in counted)
    now = (facts["rows_after"], facts["checksum"], facts["checksum_of"])
    same = before is not None and (before.row_count, before.checksum, before.checksum_of) == now
    return not (same and now[1] is not None and facts["rows_deleted"] == facts["rows_after"])


def _harmless(text: str) -> str:
    """Text that can stand in an SQL comment."""
    return "".join(c if c.isalnum() or c in "._-:+T" else "_" for c in text)


def _lost(error: ConnectionLostError) -> SafeOpsError:
    return StatementFailed(f"The connection was lost ({error}).")
