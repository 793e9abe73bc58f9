"""Statements that fill the stage and look at it, and at the target, before anything is written there."""

from __future__ import annotations

from collections.abc import Sequence

from airflow_safe_ops.definition.scope import Scope, TimeScope
from airflow_safe_ops.plan.model import LoadTask, Statement
from airflow_safe_ops.sql.text import (
    any_null,
    as_text,
    columns,
    in_place,
    in_scope,
    must_not_be_null,
    owned_binds,
    owned_rows,
    quoted,
    same_key,
    scope_binds,
    stage_name,
    texts,
)

SAMPLES = 5
PARTS = 1000
# Names that PostgreSQL takes for abbreviations of a fixed offset.
_ZONES = {"CET": "Europe/Brussels", "MET": "Europe/Brussels", "WET": "Europe/Lisbon", "EET": "Europe/Athens"}
_PLACE = "safe_ops_place"


def create(task: LoadTask) -> Statement:
    """An empty stage; taken from the target, so a value is cast once, as a plain INSERT would cast it."""
    return Statement(
        f"CREATE TEMP TABLE {stage_name(task)} ON COMMIT DROP AS "
        f"SELECT {columns(task.names)} FROM {task.table.name} WITH NO DATA"
    )


def fill(task: LoadTask) -> Statement:
    """The query's rows, into the stage."""
    into = f"INSERT INTO {stage_name(task)} ({columns(task.names)})"
    if task.drops_columns:
        return Statement(f"{into}\nSELECT {columns(task.names)} FROM (\n{task.query}\n) AS q", task.binds)
    return Statement(f"{into} (\n{task.query}\n)", task.binds)


def _ranked(task: LoadTask, function: str) -> str:
    key, by = columns(task.load.key), quoted(task.load.sequence_by or "")
    return f"{function}() OVER (PARTITION BY {key} ORDER BY {by} DESC NULLS LAST)"


def tied_keys(task: LoadTask) -> Statement:
    """Keys with two latest rows."""
    return Statement(f"SELECT count(*) AS duplicate_keys FROM ({_ties(task)}) AS ties")


def tied_sample(task: LoadTask) -> Statement:
    """Some keys with two latest rows."""
    return Statement(f"{_ties(task)} LIMIT {SAMPLES}")


def _ties(task: LoadTask) -> str:
    key = columns(task.load.key)
    return (
        f"SELECT {texts(task.load.key)}, count(*) AS rows FROM (SELECT {key}, {_ranked(task, 'rank')} AS {_PLACE} "
        f"FROM {stage_name(task)}) AS ranked WHERE {_PLACE} = 1 GROUP BY {key} HAVING count(*) > 1"
    )


def keep_latest(task: LoadTask) -> Statement:
    """Delete every staged row that is not its key's latest."""
    stage = stage_name(task)
    return Statement(
        f"DELETE FROM {stage} WHERE ctid IN (SELECT ctid FROM (SELECT ctid, {_ranked(task, 'row_number')} AS {_PLACE} "
        f"FROM {stage}) AS ranked WHERE {_PLACE} > 1)"
    )


def look(task: LoadTask) -> Statement:
    """One pass over the stage: rows, rows outside, NULLs."""
    scope = task.scope
    counts = [
        "count(*) AS rows_staged",
        f"count(*) FILTER (WHERE {any_null(must_not_be_null(scope))}) AS null_in_partition",
        f"count(*) FILTER (WHERE NOT {in_scope(task.table, scope)}) AS rows_outside",
        *(f"count(*) FILTER (WHERE {quoted(name)} IS NULL) AS null_key_{n}" for n, name in enumerate(task.load.key)),
    ]
    return Statement(f"SELECT {', '.join(counts)} FROM {stage_name(task)}", scope_binds(scope))


def odd_rows(task: LoadTask) -> Statement:
    """Some staged rows that are outside, or NULL where they must not be."""
    scope = task.scope
    shown = dict.fromkeys((*scope.columns, *task.load.key)) or task.names
    nulls = any_null((*must_not_be_null(scope), *task.load.key))
    return Statement(
        f"SELECT {texts(shown)} FROM {stage_name(task)} WHERE NOT {in_scope(task.table, scope)} OR {nulls} "
        f"LIMIT {SAMPLES}",
        scope_binds(scope),
    )


def look_at_target(task: LoadTask, unknown: Sequence[Scope], *, count: bool) -> Statement:
    """
    How many rows the partition has, and whether any lies in parts that no ledger row knows.

    A replacement asks only whether there are rows that an empty stage would take away: the planner expects to meet
    one soon in a plain scan of the table, which reads on and on where the partition's rows lie at its end.
    """
    name, scope = task.table.name, task.scope
    rows = f"SELECT count(*) FROM {name} WHERE {in_scope(task.table, scope)}"
    if not count:
        is_empty = f"NOT EXISTS (SELECT 1 FROM {stage_name(task)})"
        rows = f"SELECT ({is_empty} AND EXISTS (SELECT 1 FROM {name} WHERE {in_scope(task.table, scope)}))::int"
    binds = scope_binds(scope)
    parts = []
    for n, part in enumerate(unknown):
        parts.append(in_scope(task.table, part, prefix=f"part{n}"))
        binds |= scope_binds(part, f"part{n}")
    unledgered = f"EXISTS (SELECT 1 FROM {name} WHERE {' OR '.join(parts)})" if parts else "FALSE"
    return Statement(f"SELECT ({rows}) AS rows_before, {unledgered} AS unledgered", binds)


def unique(task: LoadTask) -> Statement:
    """A unique index: the fastest way to ask for duplicates, and it serves the joins that follow."""
    return Statement(f"CREATE UNIQUE INDEX ON {stage_name(task)} ({columns(task.load.key)})")


def duplicate_sample(task: LoadTask) -> Statement:
    """Some keys that stand twice in the stage."""
    key = columns(task.load.key)
    return Statement(
        f"SELECT {texts(task.load.key)}, count(*) AS rows FROM {stage_name(task)} GROUP BY {key} HAVING count(*) > 1 "
        f"ORDER BY count(*) DESC LIMIT {SAMPLES}"
    )


def analyze(task: LoadTask) -> Statement:
    """Without it the planner takes a temporary table for a small one."""
    return Statement(f"ANALYZE {stage_name(task)} ({columns(task.load.key)})")


def _elsewhere(task: LoadTask) -> str:
    return (
        f"FROM {task.table.name} AS t JOIN {stage_name(task)} AS s ON {same_key(task.load.key, 't', 's')} "
        f"WHERE {in_place(task, 't')} IS NOT TRUE"
    )


def moved_keys(task: LoadTask) -> Statement:
    """How many staged keys stand in another partition."""
    return Statement(f"SELECT count(*) AS keys_moved {_elsewhere(task)}", owned_binds(task))


def moved_sample(task: LoadTask) -> Statement:
    """Where they stand: the partitions to reload. Days for a time partition."""
    return Statement(
        f"SELECT {_place(task)}, count(*) AS keys {_elsewhere(task)} GROUP BY {_places(task)} "
        f"ORDER BY {_places(task)} LIMIT {PARTS}",
        owned_binds(task),
    )


def _places(task: LoadTask) -> str:
    return ", ".join(str(n + 1) for n in range(len(_place_columns(task))))


def _place_columns(task: LoadTask) -> tuple[str, ...]:
    """What tells one partition from another, and one slice."""
    slice_column = task.load.source_slice_column
    return task.scope.columns if slice_column is None else (*task.scope.columns, slice_column)


def _place(task: LoadTask) -> str:
    return ", ".join(f"{_place_of(task, name)} AS {quoted(name)}" for name in _place_columns(task))


def _place_of(task: LoadTask, name: str) -> str:
    scope, column = task.scope, f"t.{quoted(name)}"
    if not isinstance(scope, TimeScope) or name != scope.column:
        return as_text(task.table.column(name, "partition"), column)
    if scope.kind == "timestamptz":
        # A literal, not a bind: the same expression has to stand in GROUP BY. Zone names hold no quote.
        column = f"({column} AT TIME ZONE '{_ZONES.get(scope.timezone, scope.timezone)}')"
    return f"CAST(CAST({column} AS date) AS text)"


def delete_moved(task: LoadTask) -> Statement:
    """Take the rows of moved keys out of the other partitions."""
    return Statement(
        f"DELETE FROM {task.table.name} AS t USING {stage_name(task)} AS s "
        f"WHERE {same_key(task.load.key, 't', 's')} AND {in_scope(task.table, task.scope, 't')} IS NOT TRUE",
        scope_binds(task.scope),
    )


def look_after(task: LoadTask, checksum: str) -> Statement:
    """Rows and checksum of what the load owns, in one pass."""
    return Statement(
        f"SELECT count(*) AS rows_after, {checksum} AS checksum {owned_rows(task)}",
        owned_binds(task),
    )
