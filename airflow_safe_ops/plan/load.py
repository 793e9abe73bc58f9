"""
Which steps one load of one partition takes, in which order, and what refuses it.

Every strategy stages what the query returns, looks at the stage before it touches the target, writes, counts
what the target then holds, and publishes data and ledger in one transaction. The SQL comes from a dialect
through :class:`~airflow_safe_ops.plan.load_sql.LoadSql`; nothing here knows which.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from airflow_safe_ops.definition.checks import Check
from airflow_safe_ops.definition.scope import Scope, TableScope, TimeScope, covers, gaps
from airflow_safe_ops.definition.target import Table
from airflow_safe_ops.errors import CascadeForeignKey
from airflow_safe_ops.plan import append, refusals
from airflow_safe_ops.plan.load_sql import LoadSql
from airflow_safe_ops.plan.model import LoadTask, Plan, Recorded, Step

Write = Callable[[LoadTask, LoadSql, Sequence[Recorded]], list[Step]]

CLAIM, HOLD, PUBLISH, COMMIT = "claim", "claim.hold", "ledger.publish", "commit"


def load_plan(task: LoadTask, sql: LoadSql, known: Sequence[Recorded]) -> Plan:
    """
    The plan of one load.

    :param task: what is loaded.
    :param sql: the dialect's statements.
    :param known: the partitions of this target that the ledger knows, as far as they overlap.
    :raises CascadeForeignKey: the strategy would take other tables' rows with it.
    """
    if task.load.deletes:
        refuse_cascade(task.table)
    deferrable = any(fk.deferrable for fk in task.table.referenced_by)
    defer = Step("target.defer", "defer constraints to the end of the load", sql.defer_constraints())
    settle = Step("target.constraints", "check deferred constraints now", sql.settle_constraints())
    steps = [
        Step(HOLD, "hold the claim until the end of this transaction"),
        *(_lock(task, sql) if task.load.exclusive else []),
        *([defer] if deferrable else []),
        *_stage(task, sql),
        *_look(task, sql, known),
        *check_steps(task, sql, task.load.audits, staged=True),
        *_WRITES[task.load.strategy](task, sql, known),
        # Before the count: a deferred trigger may still change rows.
        *([settle] if deferrable or task.table.notes else []),
        Step(
            "target.count",
            "count the partition as it stands now, with its checksum",
            sql.look_after(task),
            refusals=(refusals.rows_as_written(task.key, task.table.name, keeps=_keeps(task, known)),),
        ),
        *check_steps(task, sql, task.load.post_checks, staged=False),
    ]
    steps.append(Step(PUBLISH, "record the load as published, give the claim back"))
    steps.append(Step(COMMIT, "commit data and ledger together"))
    return Plan(task, tuple(steps), _notes(task))


def refuse_cascade(table: Table) -> None:
    """Refuse a load that deletes where deleting a row would delete or change rows of another table."""
    for fk in table.referenced_by:
        if fk.on_delete in ("CASCADE", "SET NULL", "SET DEFAULT"):
            raise CascadeForeignKey(
                f"{fk.child} points at {table.name} with ON DELETE {fk.on_delete} ({fk.name}).",
                child=fk.child,
                constraint=fk.name,
            )


def _keeps(task: LoadTask, known: Sequence[Recorded]) -> bool:
    """Whether rows that were there before stay, so that what must be there afterwards is not just what was staged."""
    return task.load.keeps_rows or (task.load.appends and append.appended(task, known) is not None)


def unknown_parts(scope: Scope, known: Sequence[Scope]) -> list[Scope]:
    """The parts of a scope that no known scope covers; empty when the ledger knows all of it."""
    if any(covers(other, scope) for other in known):
        return []
    if isinstance(scope, TimeScope):
        return list(gaps(scope, [other for other in known if isinstance(other, TimeScope)]))
    return [scope]


def _stage(task: LoadTask, sql: LoadSql) -> list[Step]:
    key = task.load.key
    steps = [
        Step("target.add_column", f"add column {column.name}", sql.add_column(task, column.name, column.type))
        for column in task.new_columns
    ]
    steps += [
        Step("stage.create", "make an empty stage with the target's types", sql.create_stage(task)),
        Step(
            "stage.fill",
            "run the query into the stage",
            sql.fill_stage(task),
            fact="rows_read",
            reads_only=True,
        ),
    ]
    if key and task.load.on_duplicates == "keep_latest":
        tie = refusals.no_duplicates(key, f"Two rows are latest by {task.load.sequence_by} for one")
        steps += [
            Step(
                "stage.ties",
                "look for ties",
                sql.tied_keys(task),
                refusals=(tie,),
                sample=sql.tied_sample(task),
            ),
            Step("stage.keep_latest", "keep the latest row of each key", sql.keep_latest(task)),
        ]
    return steps


def _look(task: LoadTask, sql: LoadSql, known: Sequence[Recorded]) -> list[Step]:
    load, scope = task.load, task.scope
    on_stage = [
        refusals.no_null_in_partition(scope),
        refusals.no_rows_outside(scope),
        *([refusals.no_null_in_key(load.key)] if load.key else []),
    ]
    steps = [
        Step(
            "stage.look",
            "count the staged rows, those outside the partition, and NULLs where they must not be",
            sql.look_at_stage(task),
            refusals=tuple(on_stage),
            sample=sql.odd_rows(task),
        )
    ]
    if not load.appends:
        steps.append(_look_at_target(task, sql, known))
    if load.key:
        steps += _look_at_keys(task, sql)
    if load.appends:
        steps.append(append.look(task, sql, known))
    return steps


def _look_at_target(task: LoadTask, sql: LoadSql, known: Sequence[Recorded]) -> Step:
    load, scope, name = task.load, task.scope, task.table.name
    on_target = []
    if load.on_empty == "fail":
        on_target.append(refusals.no_accidental_empty(scope.key, name))
    if load.on_unledgered == "fail":
        on_target.append(refusals.only_ledgered_rows(scope, name))
    whole = [record.scope for record in known if record.source_slice is None]  # a slice is not all of its partition
    unknown = unknown_parts(scope, whole) if load.on_unledgered == "fail" else []
    return Step(
        "target.look",
        "look at what the partition holds now",
        sql.look_at_target(task, unknown),
        refusals=tuple(on_target),
    )


def index_refuses(task: LoadTask) -> bool:
    """
    Whether the insert itself fails where a key is staged twice or stands in another partition.

    Then nobody has to look before: what broke the index is asked afterwards. Triggers and rules might let the key
    through in another form, or not at all.
    """
    return not task.load.appends and task.load.on_key_moved == "fail" and has_index(task) and not task.table.notes


def _look_at_keys(task: LoadTask, sql: LoadSql) -> list[Step]:
    if not index_refuses(task):
        return [*_look_in_stage(task, sql), *_look_elsewhere(task, sql)]
    # An update would take any of two rows with one key: it has to know before.
    return _look_in_stage(task, sql) if task.load.keeps_rows else []


def _asks(task: LoadTask, sql: LoadSql) -> tuple[Step, ...]:
    """Why the index refused the insert: asked of its own columns, which may be fewer than the load's key has."""
    if not task.load.key or not index_refuses(task):
        return ()
    columns = min((names for _, names in task.table.unique_keys if set(names) <= set(task.load.key)), key=len)
    by_index = replace(task, load=replace(task.load, unique_key=columns))
    is_looked_at = task.load.keeps_rows and len(columns) == len(task.load.key)
    return (*([] if is_looked_at else _look_in_stage(by_index, sql)), *_look_elsewhere(by_index, sql))


def _look_in_stage(task: LoadTask, sql: LoadSql) -> list[Step]:
    key = task.load.key
    return [
        Step(
            "stage.unique",
            "look for keys that are staged twice",
            sql.unique_stage(task),
            refusals=(refusals.no_duplicates(key, "The query returns more than one row for one"),),
            sample=sql.duplicate_sample(task),
            violation="duplicate_keys",
        ),
        Step("stage.analyze", "tell the planner the stage's size", sql.analyze_stage(task)),
    ]


def _look_elsewhere(task: LoadTask, sql: LoadSql) -> list[Step]:
    key = task.load.key
    steps = []
    if can_move(task):
        if (task.load.on_key_moved == "move" or not has_index(task)) and not task.load.exclusive:
            # Two loads of disjoint partitions could bring one key at once, and neither would see the other's.
            steps += _lock(task, sql)
        moved = refusals.no_moved_keys(key, appends=task.load.appends)
        steps.append(
            Step(
                "target.moved",
                "look for staged keys that stand in another partition",
                sql.moved_keys(task),
                refusals=() if task.load.on_key_moved == "move" else (moved,),
                sample=sql.moved_sample(task),
            )
        )
    return steps


def _look_for_copies(task: LoadTask, sql: LoadSql) -> Step:
    """Why an index on other columns refused the update: two rows of one key would have become the same row."""
    once = refusals.no_copies(task.scope, task.table.name)
    return Step("target.copies", "look for staged keys that stand twice", sql.count_copies(task), refusals=(once,))


def _lock(task: LoadTask, sql: LoadSql) -> list[Step]:
    return [Step("target.lock", "lock the table against other writers until the commit", sql.lock_table(task))]


def has_index(task: LoadTask) -> bool:
    """Whether the database itself keeps the load's key unique."""
    return any(set(columns) <= set(task.load.key) for _, columns in task.table.unique_keys)


def can_move(task: LoadTask) -> bool:
    """Whether one key could stand in two partitions or slices: not if the key holds the partition's columns."""
    if task.load.source_slice_column is not None:
        return True
    return not isinstance(task.scope, TableScope) and not set(task.scope.columns) <= set(task.load.key)


def check_steps(task: LoadTask, sql: LoadSql, checks: Sequence[Check], *, staged: bool) -> list[Step]:
    """
    Ask the checks' values and judge them together.

    :param staged: of the staged rows, before publication; else of the partition as it stands.
    """
    if not checks:
        return []
    phase = "audit" if staged else "post_check"
    named = [(f"{phase}_{n}", check) for n, check in enumerate(checks)]
    statements = sql.aggregates(task, named, staged)
    steps = [
        Step(f"{phase}.{n}", "ask the checks' values", statement, reads_only=True)
        for n, statement in enumerate(statements)
    ]
    verdict = Step(
        f"{phase}.judge",
        "judge " + ", ".join(c.name for c in checks),
        None,
        refusals=(refusals.checks_pass(dict(named), phase),),
    )
    return [*steps, verdict]


def _moved(task: LoadTask, sql: LoadSql) -> list[Step]:
    if not (task.load.key and task.load.on_key_moved == "move" and can_move(task)):
        return []
    return [
        Step(
            "target.delete_moved",
            "take moved keys out of their old partitions",
            sql.delete_moved(task),
            fact="rows_moved",
        )
    ]


def _replace(task: LoadTask, sql: LoadSql, _known: Sequence[Recorded]) -> list[Step]:
    return [
        *_moved(task, sql),
        Step("target.delete", "delete the partition's rows", sql.delete_partition(task), fact="rows_deleted"),
        Step(
            "target.insert",
            "insert the staged rows",
            sql.insert_stage(task),
            fact="rows_inserted",
            asks=_asks(task, sql),
        ),
    ]


def _merge(task: LoadTask, sql: LoadSql, _known: Sequence[Recorded]) -> list[Step]:
    steps = _moved(task, sql)
    if task.load.not_matched_by_source == "delete":
        steps.append(
            Step(
                "target.delete",
                "delete the partition's rows whose key is not staged",
                sql.delete_unmatched(task),
                fact="rows_deleted",
            )
        )
    if set(task.names) > set(task.load.key):
        update, twice = sql.update_changed(task), () if has_index(task) else (_look_for_copies(task, sql),)
        steps.append(Step("target.update", "update rows that differ", update, fact="rows_updated", asks=twice))
    insert, asks = sql.insert_missing(task), _asks(task, sql)
    steps.append(Step("target.insert", "insert rows whose key is new", insert, fact="rows_inserted", asks=asks))
    if task.table.notes or not has_index(task):
        # Triggers may drop an insert, and where no index forbids it a key may stand twice already.
        one_each = refusals.one_row_a_key(task.scope, task.table.name)
        steps.append(
            Step("target.arrived", "count the rows of the staged keys", sql.arrived(task), refusals=(one_each,))
        )
    return steps


_WRITES: Mapping[str, Write] = {"delete_insert": _replace, "merge": _merge, "append_once": append.write}


def _notes(task: LoadTask) -> tuple[str, ...]:
    notes = list(task.table.notes)
    key = task.load.key
    if key and can_move(task) and not has_index(task):
        notes.append(
            f"no unique index on ({', '.join(key)}): the look for moved keys reads the whole table and then locks it "
            "against other writers until the commit"
        )
    skipped = [c.name for c in task.columns if not c.hashable]
    if skipped and task.load.checksum != "off":
        notes.append(f"not in the checksum, their types have no hash: {', '.join(skipped)}")
    return tuple(notes)
