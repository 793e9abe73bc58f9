"""What people read of the ledger: a line a partition, a line an attempt."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

WIDTH = 100
COUNTS = ("rows_read", "rows_deleted", "rows_inserted", "rows_updated", "rows_unchanged", "rows_moved", "rows_after")
WHO = ("instance", "dag_id", "task_id", "map_index", "run_id", "run_type", "try_number", "clear_number")


def partition_line(row: Mapping[str, Any]) -> dict[str, Any]:
    """
    One partition as plain data.

    ``rows`` is None where a load of an overlapping partition wrote a part of it since.
    """
    return {
        "table": row["identity"],
        "partition": row["partition_key"],
        "state": row["state"],
        "rows": row["row_count"],
        **{name: row[name] for name in ("attempts", "published", "failed", "lost", "running")},
        "published_at": iso(row["published_at"]),
        "tried_at": iso(row["tried_at"]),
        "attempt_id": row["attempt_id"],
    }


def partition_row(line: Mapping[str, Any]) -> dict[str, Any]:
    """One partition for a table that people read."""
    counts = {name: line[name] or "" for name in ("published", "failed", "lost", "running")}
    never = line["published_at"] is None
    return {
        "partition": line["partition"],
        "state": line["state"],
        "rows": "" if never else "not counted" if line["rows"] is None else f"{line['rows']:,}",
        "attempts": line["attempts"],
        **counts,
        "recorded (UTC)": when(line["published_at"]),
    }


def attempt_line(row: Mapping[str, Any]) -> dict[str, Any]:
    """One attempt as plain data; ``state`` is what holds now: ``published, failed, running, lost``."""
    seconds = row["seconds"]
    if seconds is None and row["finished_at"] is not None:
        seconds = (row["finished_at"] - row["started_at"]).total_seconds()
    return {
        "table": row["identity"],
        "partition": row["partition_key"],
        "attempt_id": str(row["attempt_id"]),
        "state": row["outcome"],
        "started_at": iso(row["started_at"]),
        "finished_at": iso(row["finished_at"]),
        "seconds": None if seconds is None else round(float(seconds), 3),
        **{name: row[name] for name in WHO},
        "logical_date": iso(row["logical_date"]),
        "user": row["user_name"],
        "code_version": row["code_version"],
        "strategy": row["strategy"],
        **{name: row[name] for name in COUNTS},
        "changed": row["changed"],
        "checksum": row["checksum"],
        "source_slice": row["source_slice"],
        "reason": row["reason"],
        **{name: row[name] for name in ("error_code", "error_class", "error_message")},
        **{name: row[name] for name in ("failure_class", "failure_reason")},
    }


def attempt_row(line: Mapping[str, Any]) -> dict[str, Any]:
    """One attempt for a table that people read."""
    counts = {name: line[f"rows_{name}"] for name in ("read", "deleted", "inserted", "updated", "after")}
    return {
        "started (UTC)": when(line["started_at"]),
        "state": line["state"],
        "task": task_of(line),
        "run": _run(line),
        "try": _try(line),
        **{name: "" if count is None else f"{count:,}" for name, count in counts.items()},
        "seconds": "" if line["seconds"] is None else f"{line['seconds']:.2f}",
        "error": line["error_code"] or line["error_class"] or "",
        "class": line["failure_class"] or "",
    }


def told(lines: Iterable[Mapping[str, Any]]) -> list[str]:
    """The errors of failed attempts and the reasons of people in full, a paragraph each."""
    paragraphs = []
    for line in lines:
        if said := line["error_message"] or line["reason"]:
            text = f"{when(line['started_at'])}  {' '.join(said.split())}"
            paragraphs.append(textwrap.fill(text, WIDTH, subsequent_indent="  ", break_long_words=False))
    return paragraphs


def age(keep: timedelta) -> str:
    """An age in words."""
    hours = round(keep.total_seconds() / 3600)
    number, unit = (hours // 24, "day") if hours % 24 == 0 else (hours, "hour")
    return f"{number:,} {unit}{'' if number == 1 else 's'}"


def task_of(line: Mapping[str, Any]) -> str:
    """``dag.task[map index] @instance``."""
    index = line["map_index"]
    mapped = f"[{index}]" if index is not None and index >= 0 else ""
    at = f" @{line['instance']}" if line["instance"] else ""
    return f"{line['dag_id']}.{line['task_id']}{mapped}{at}"


def _run(line: Mapping[str, Any]) -> str:
    """The run's id; with its type where the id does not say it: a reprocessed run became a backfill."""
    name, kind = line["run_id"] or "", line["run_type"] or ""
    return name if name.startswith(kind) else f"{name} ({kind})"


def _try(line: Mapping[str, Any]) -> str:
    clear = line["clear_number"]
    return f"{line['try_number']}" + (f", clear {clear}" if clear else "")


def iso(moment: datetime | None) -> str | None:
    """A moment in UTC, for plain data."""
    return None if moment is None else moment.astimezone(UTC).isoformat()


def when(iso: str | None) -> str:
    """To the second: people compare such moments with Airflow's."""
    return "" if iso is None else iso[:19].replace("T", " ")
