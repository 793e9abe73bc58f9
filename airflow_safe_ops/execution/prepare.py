"""From a declaration and a run to load tasks: catalog asked, partition resolved, query understood; nothing written."""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from airflow_safe_ops.definition.identity import RunIdentity
from airflow_safe_ops.definition.load import Load
from airflow_safe_ops.definition.partition import Partition, TimePartition, ValuePartition, WholeTable
from airflow_safe_ops.definition.scope import Scope, TableScope
from airflow_safe_ops.definition.target import Column, Table
from airflow_safe_ops.errors import (
    ColumnContract,
    DuplicateOutput,
    InvalidArgument,
    ReadOnlyServer,
    UnsupportedPartitionColumn,
)
from airflow_safe_ops.execution.session import Session
from airflow_safe_ops.plan.load import refuse_cascade
from airflow_safe_ops.plan.model import LoadTask, Statement
from airflow_safe_ops.sql.query import one_select
from airflow_safe_ops.sql.text import typed_values


def prepare(session: Session, load: Load, run: RunIdentity) -> list[LoadTask]:
    """
    One load task a partition, oldest first.

    :raises SafeOpsError: whatever can be refused before anything is written.
    """
    dialect = session.dialect
    session.doing("describe")
    with session.transaction() as tx:
        server = dialect.server(tx)
        if server.read_only:
            raise ReadOnlyServer("The server only reads.")
        table = replace(dialect.describe(tx, load.table), server_version=server.version)
        if load.deletes:
            refuse_cascade(table)
        _check_names(load, table)
        scopes = target_scopes(session, load.partition, table, run, server.now)
        return [_task(session, load, table, scope) for scope in scopes]


def target_scopes(
    session: Session, partition: Partition, table: Table, run: RunIdentity, now: datetime
) -> Sequence[Scope]:
    """
    A partition as typed scopes of the target, oldest first; in an open transaction.

    :param now: the server's time.
    """
    if isinstance(partition, TimePartition):
        column = table.column(partition.column, "partition")
        if column.kind is None:
            raise UnsupportedPartitionColumn(
                f"Column {column.name!r} of {table.name} is {column.type}; a time partition needs date, timestamp or "
                "timestamp with time zone.",
                fix=f'Use ValuePartition({column.name}="{{{{ ds }}}}"), with the value as that type writes it.',
            )
        return partition.scopes(run, column.kind, now)
    if isinstance(partition, ValuePartition):
        return [session.dialect.value_scope(session, table, partition.values)]
    return [TableScope()]


def all_columns(table: Table, scope: Scope, attempt_id: str = "") -> LoadTask:
    """A load of all columns without a query: what it owns is what stands there."""
    columns = tuple(column for column in table.columns if column.generated == "")
    load = Load(table=table.name, sql="", partition=WholeTable())
    return LoadTask(load, table, scope, columns, query="", binds={}, attempt_id=attempt_id)


def _check_names(load: Load, table: Table) -> None:
    named = {
        "partition": load.partition.columns,
        "unique_key": load.key,
        "sequence_by": (load.sequence_by,) if load.sequence_by else (),
        "columns": load.columns or (),
        "source_slice_column": (load.source_slice_column,) if load.source_slice_column else (),
    }
    for what, names in named.items():
        for name in names:
            table.column(name, what)


def _task(session: Session, load: Load, table: Table, scope: Scope) -> LoadTask:
    binds = _binds(load, scope)
    text, used = one_select(load.sql, binds)
    query = Statement(typed_values(text, table, scope), {name: binds[name] for name in used})
    session.doing("query")
    with session.part(reads_only=True):
        returned = session.dialect.query_columns(session, query)
    columns, new, drops = _contract(load, table, returned)
    return LoadTask(
        load=load,
        table=table,
        scope=scope,
        columns=columns,
        query=query.text,
        binds=binds,
        attempt_id=str(uuid.uuid4()),
        new_columns=new,
        drops_columns=drops,
    )


def _binds(load: Load, scope: Scope) -> dict[str, Any]:
    own = scope.binds if load.source_slice is None else {**scope.binds, "source_slice": load.source_slice}
    both = set(own) & set(load.parameters)
    if both:
        raise InvalidArgument(
            f"parameters name {', '.join(sorted(both))}, which the load binds already.",
            fix="Rename the parameter.",
        )
    return {**own, **load.parameters}


def _contract(
    load: Load, table: Table, returned: Sequence[Column]
) -> tuple[tuple[Column, ...], tuple[Column, ...], bool]:
    """The target's columns in the query's order, those to be added to it, and whether the query has more."""
    names = [column.name for column in returned]
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise DuplicateOutput(f"The query returns {', '.join(map(repr, twice))} more than once.", columns=twice)
    writable = {c.name: c for c in table.columns if c.writable and c.name != load.source_slice_column}
    wanted = (
        set(load.columns)
        if load.columns
        else {n for n, c in writable.items() if c.generated == ""} | (set(names) & set(writable))
    )
    extra = [column for column in returned if column.name not in wanted]
    missing = sorted(wanted - set(names))
    must = {*load.partition.columns, *load.key, *((load.sequence_by,) if load.sequence_by else ())}
    needed = [name for name in missing if name in must]
    if ((extra or missing) and load.on_schema_change == "fail") or needed:
        raise ColumnContract(
            _difference(table, missing, extra, writable), missing=missing, extra=[c.name for c in extra]
        )
    new: tuple[Column, ...] = ()
    if load.on_schema_change == "append_new_columns" and not load.columns:
        new = tuple(column for column in extra if column.name not in {c.name for c in table.columns})
    by_name = {**writable, **{column.name: column for column in new}}
    kept = tuple(by_name[name] for name in names if name in wanted or name in {c.name for c in new})
    unstaged = sorted(must - {column.name for column in kept})
    if unstaged:
        raise ColumnContract(
            f"{table.name}: {', '.join(unstaged)} is named by partition, unique_key or sequence_by and not loaded.",
            fix="Let the query return it and columns=[…] name it; what the database fills by itself will not do.",
            missing=unstaged,
        )
    if not kept:
        raise ColumnContract(f"The query returns no column of {table.name}.")
    return kept, new, len(kept) < len(names)


def _difference(table: Table, missing: Sequence[str], extra: Sequence[Column], writable: dict[str, Column]) -> str:
    parts = []
    if missing:
        parts.append(f"the query lacks {', '.join(missing)}")
    if extra:
        parts.append(f"the query also returns {', '.join(c.name for c in extra)}")
    folded = {name.casefold(): name for name in missing}
    hints = [f'AS "{folded[c.name.casefold()]}"' for c in extra if c.name.casefold() in folded]
    filled = [c.name for c in extra if c.name in {k.name for k in table.columns} and c.name not in writable]
    if hints:
        parts.append(f"case counts: write {', '.join(hints)}")
    if filled:
        parts.append(f"the database fills {', '.join(filled)} by itself")
    return f"{table.name} and the query differ: {'; '.join(parts)}."
