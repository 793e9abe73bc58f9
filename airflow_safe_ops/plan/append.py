"""
``append_once``: rows are only ever added, those of one load once.

A load is known by its partition and, where one is declared, the slice of the source. What the ledger has as appended
is never appended again; what the target holds of it without a record is a decision. So a lost, restored or never
written ledger cannot double a row.
"""

from __future__ import annotations

from collections.abc import Sequence

from airflow_safe_ops.errors import AppendedRowsDiffer, AppendedRowsGone, SafeOpsError, UnledgeredRows
from airflow_safe_ops.plan import refusals
from airflow_safe_ops.plan.load_sql import LoadSql
from airflow_safe_ops.plan.model import Facts, LoadTask, Recorded, Refusal, Samples, Step


def appended(task: LoadTask, known: Sequence[Recorded]) -> Recorded | None:
    """The record of this very load, if it says that rows were appended and nothing has made it invalid."""
    for record in known:
        if record.key == task.key and record.state not in ("missing", "unconfirmed") and record.row_count != 0:
            return record
    return None


def look(task: LoadTask, sql: LoadSql, known: Sequence[Recorded]) -> Step:
    """What the target holds of this load already, and what that refuses."""
    record = appended(task, known)
    if record is not None:
        refuses = [_still_there(task, record)]
        if task.load.on_changed == "fail":
            refuses += [refusals.no_accidental_empty(task.key, task.table.name), _same_rows(task, record)]
    elif task.load.on_unledgered == "adopt":
        refuses = [_same_rows(task, None)]
    else:
        refuses = [_nothing_unrecorded(task)]
    what = "look whether the rows are there already, and the same"
    return Step("target.look", what, sql.look_for_appended(task), refusals=tuple(refuses))


def write(task: LoadTask, sql: LoadSql, known: Sequence[Recorded]) -> list[Step]:
    """Insert the staged rows; nothing where the ledger has them as appended."""
    if appended(task, known) is not None:
        return []
    what = "insert the staged rows, if none of them is there"
    return [Step("target.insert", what, sql.append_stage(task), fact="rows_inserted")]


def _nothing_unrecorded(task: LoadTask) -> Refusal:
    """The target holds none of the load's rows: no record says that they were appended."""

    def decide(facts: Facts, _samples: Samples) -> SafeOpsError | None:
        if not facts["rows_before"]:
            return None
        return UnledgeredRows(
            f"{task.table.name} has {facts['rows_before']:,} rows of {task.key} that no load in the ledger appended.",
            why="Appending them again would double them. Nothing was published.",
            fix='Declare on_unledgered="adopt": they are recorded if they are the rows that the query returns. Or '
            "record a partition as it stands: airflow safe-ops adopt.",
            partition=task.key,
        )

    return Refusal(UnledgeredRows, decide)


def _same_rows(task: LoadTask, record: Recorded | None) -> Refusal:
    """The target's rows of this load, if there are any, are the staged ones; and as many as were recorded."""

    def decide(facts: Facts, _samples: Samples) -> SafeOpsError | None:
        there, staged = facts["rows_before"], facts["rows_staged"]
        once = None if record is None else record.row_count
        if record is None and not there:
            return None
        if there == staged and facts["content_there"] == facts["content_staged"] and once in (None, staged):
            return None
        recorded = "" if once is None else f", {once:,} were appended"
        return AppendedRowsDiffer(
            f"The query returns {staged:,} rows for {task.key}; {task.table.name} holds {there:,} of it{recorded}, and "
            "they are not the same.",
            partition=task.key,
            staged=staged,
            found=there,
            recorded=once,
        )

    return Refusal(AppendedRowsDiffer, decide)


def _still_there(task: LoadTask, record: Recorded) -> Refusal:
    """What was appended is there."""

    def decide(facts: Facts, _samples: Samples) -> SafeOpsError | None:
        if facts["rows_before"] or not facts["rows_staged"]:
            return None
        rows = "Rows" if record.row_count is None else f"{record.row_count:,} rows"
        return AppendedRowsGone(
            f"{rows} of {task.key} were appended to {task.table.name}, and it holds none of them.",
            partition=task.key,
            recorded=record.row_count,
        )

    return Refusal(AppendedRowsGone, decide)
