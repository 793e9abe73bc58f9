"""
What the ledger is told of rows that no load of ours wrote: taken as they stand, or not to be relied on any more.

Each partition is recorded under its claim, so no load of it runs meanwhile; the target's rows are read, never written.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from airflow_safe_ops.definition.identity import RunIdentity
from airflow_safe_ops.definition.partition import Partition
from airflow_safe_ops.definition.scope import Scope, covers
from airflow_safe_ops.definition.target import Table
from airflow_safe_ops.execution.prepare import all_columns, target_scopes
from airflow_safe_ops.execution.session import Session
from airflow_safe_ops.ledger import claims, store
from airflow_safe_ops.ledger.claims import Claim, FencedError, Patience
from airflow_safe_ops.ledger.migrations import is_ledger_there
from airflow_safe_ops.plan.load import CLAIM, PUBLISH
from airflow_safe_ops.plan.model import Executor, Facts, Recorded
from airflow_safe_ops.plan.outcome import checksum_of


@dataclass(frozen=True)
class Noted:
    """
    What became of one partition.

    :param outcome: ``adopted``, ``invalidated``; ``empty``, it holds no rows and was left out; or the state in which
        the ledger has it already, and it was left as it is.
    """

    partition: str
    outcome: str
    rows: int | None = None


@dataclass(frozen=True)
class Recorder:
    """
    Records partitions of one table.

    :param session: an open session.
    :param run: who does it.
    :param table: the table as the user writes it.
    :param reason: why; kept with the attempt.
    :param dry_run: say what would be recorded, and record nothing.
    """

    session: Session
    run: RunIdentity
    table: str
    patience: Patience
    reason: str | None = None
    dry_run: bool = False

    def adopt(self, partitions: Sequence[Partition]) -> list[Noted]:
        """
        Record partitions as they stand: rows counted, checksum taken, state ``adopted``.

        What makes a re-run safe: a partition that the ledger has as published stays as it is, an adopted one is
        counted again.

        :raises ClaimTimeout: a load that overlaps does not end in time; what was recorded before it stays.
        """
        table, scopes = self._targets(partitions)
        return [self._adopt(table, scope) for scope in scopes]

    def invalidate(self, partitions: Sequence[Partition], source_slice: str | None = None) -> list[Noted]:
        """
        Say that what the ledger knows of partitions holds no longer: state ``missing``, counts forgotten.

        :param partitions: every recorded partition that lies in one of them.
        :param source_slice: only what was appended of this slice.
        :return: nothing where none is recorded.
        """
        table, scopes = self._targets(partitions)
        found: dict[str, Recorded] = {}
        for scope in scopes:
            inside = [record for record in self._recorded(table, scope) if covers(scope, record.scope)]
            found |= {r.key: r for r in inside if source_slice is None or r.source_slice == source_slice}
        return [self._invalidate(table, record) for _, record in sorted(found.items())]

    def _targets(self, partitions: Sequence[Partition]) -> tuple[Table, list[Scope]]:
        dialect = self.session.dialect
        with self.session.transaction() as tx:
            server = dialect.server(tx)
            table = replace(dialect.describe(tx, self.table), server_version=server.version)
            named = [target_scopes(self.session, p, table, self.run, server.now) for p in partitions]
        return table, list(dict.fromkeys(scope for scopes in named for scope in scopes))

    def _recorded(self, table: Table, scope: Scope) -> list[Recorded]:
        sql = self.session.dialect.ledger
        with self.session.transaction() as tx:
            return store.recorded_of(tx, sql, table.identity, scope) if is_ledger_there(tx, sql) else []

    def _adopt(self, table: Table, scope: Scope) -> Noted:
        task, load = all_columns(table, scope), self.session.dialect.load

        def look(tx: Executor, known: Sequence[Recorded]) -> tuple[Noted, Facts]:
            before = next((record for record in known if record.key == scope.key), None)
            if before is not None and before.state not in ("adopted", "missing", "unconfirmed"):
                return Noted(scope.key, before.state, before.row_count), {}
            facts = tx.run(load.look_after(task)).named[0]
            rows = int(facts["rows_after"])
            return Noted(scope.key, "adopted" if rows else "empty", rows), facts

        known = self._recorded(table, scope)
        with self.session.transaction() as tx:
            noted, _ = look(tx, known)
        if noted.outcome != "adopted" or self.dry_run:
            return noted

        def record(tx: Executor, claim: Claim) -> Noted:
            """Look again: a load that was waited for has recorded it, or left it empty."""
            sql = self.session.dialect.ledger
            noted, facts = look(tx, store.recorded(tx, sql, claim.target_id, scope))
            if noted.outcome == "adopted":
                facts["checksum_of"] = checksum_of(task, self.session.dialect.name)
                store.end(tx, sql, claim, "adopted", {**facts, "reason": self.reason})
                store.put_partition(tx, sql, claim, scope, "adopted", facts)
            else:
                store.forget(tx, sql, claim)
            return noted

        return self._under_claim(table, Recorded(scope.key, scope), "adopt", record)

    def _invalidate(self, table: Table, known: Recorded) -> Noted:
        if known.state == "missing" or self.dry_run:
            return Noted(known.key, "missing" if known.state == "missing" else "invalidated", known.row_count)

        def record(tx: Executor, claim: Claim) -> Noted:
            store.end(tx, self.session.dialect.ledger, claim, "invalidated", {"reason": self.reason})
            store.invalidate(tx, self.session.dialect.ledger, claim)
            return Noted(known.key, "invalidated", known.row_count)

        return self._under_claim(table, known, "invalidate", record)

    def _under_claim(
        self, table: Table, what: Recorded, doing: str, record: Callable[[Executor, Claim], Noted]
    ) -> Noted:
        """Wait for the partition, then record in one transaction that gives the claim back."""
        attempt = store.attempt_of(self.run, str(uuid.uuid4()), what.key, what.scope, what.source_slice, doing)
        claim = Claim(table.identity, attempt, (what.scope,), self.run.label)
        try:
            return self._until_held(claim, record)
        except BaseException as error:
            self.session.allow_last_words()
            with suppress(Exception):
                store.fail(self.session, self.session.dialect.ledger, claim, error)
            raise

    def _until_held(self, claim: Claim, record: Callable[[Executor, Claim], Noted]) -> Noted:
        dialect = self.session.dialect
        self.session.doing(CLAIM)
        for _ in claims.taken(self.session, dialect, claim, self.patience):
            self.session.doing(PUBLISH)
            with suppress(FencedError), self.session.transaction(lock=self.patience.statement) as tx:
                claims.hold(tx, dialect.ledger, claim)
                noted = record(tx, claim)
                claims.release(tx, dialect.ledger, claim)
                return noted
            self.session.doing(CLAIM)
        raise claims.too_contended(claim)
