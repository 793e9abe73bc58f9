"""What a finished load amounts to: its counts, its checksum's meaning, whether it changed anything."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence

from airflow_safe_ops.plan.append import appended
from airflow_safe_ops.plan.model import Facts, LoadTask, Recorded


def checksum_of(task: LoadTask, dialect: str) -> str | None:
    """What two checksums must share to be comparable: algorithm, dialect, server's major version, columns."""
    if not task.hashed:
        return None
    major = task.table.server_version.partition(".")[0]
    columns = json.dumps([[column.name, column.type] for column in task.hashed])
    return f"1:{dialect}-{major}:{hashlib.sha256(columns.encode()).hexdigest()[:16]}"


def rows_unchanged(facts: Facts) -> int:
    """Staged rows that the target already held."""
    return int(facts["rows_staged"] - facts["rows_inserted"] - facts.get("rows_updated", 0))


def new_state(task: LoadTask, facts: Facts, known: Sequence[Recorded]) -> str | None:
    """What the partition's record says after the load; None where it stays as it is: nothing was appended again."""
    if not task.load.appends:
        return "published"
    if appended(task, known) is not None:
        return None
    return "adopted" if facts["rows_before"] else "published"


def is_changed(task: LoadTask, facts: Facts, before: Facts | None) -> bool:
    """
    Whether the partition differs from what was last published; True where that cannot be told.

    A merge counts what it changed, an append what it added. A replacement is compared by rows and checksum, where
    the checksum covers every column that is written.

    :param before: ``row_count, checksum, checksum_of`` as last recorded; None for a first load.
    """
    if task.load.appends:
        return bool(facts["rows_inserted"])
    if before is None:
        return True
    if task.load.keeps_rows:
        return any(facts.get(name) for name in ("rows_deleted", "rows_inserted", "rows_updated", "rows_moved"))
    if before["row_count"] != facts["rows_after"] or facts["rows_deleted"] != facts["rows_after"]:
        return True
    if not facts["rows_after"]:
        return bool(facts.get("rows_moved"))
    hashes_all = len(task.hashed) == len(task.columns)
    checksums = ("checksum", "checksum_of")
    return facts["checksum"] is None or not hashes_all or any(before[name] != facts[name] for name in checksums)
