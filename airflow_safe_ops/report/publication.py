"""What people read of side effects outside the database: a line a publication."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterable, Mapping
from typing import Any

from airflow_safe_ops.report.ledger import WHO, WIDTH, iso, task_of, when


def publication_line(row: Mapping[str, Any]) -> dict[str, Any]:
    """One publication as plain data; ``state`` is what holds now."""
    return {
        "key": row["business_key"],
        "receiver": row["receiver"],
        "state": row["stands"],
        "how": row["how"],
        "sends": row["sends"],
        "idempotency_key": str(row["idempotency_key"]),
        "intent": json.loads(row["intent"]),
        "intent_hash": row["intent_hash"],
        "outcome": None if row["outcome"] is None else json.loads(row["outcome"]),
        **{name: iso(row[name]) for name in ("intended_at", "sent_at", "answered_at")},
        **{name: row[name] for name in WHO},
        "logical_date": iso(row["logical_date"]),
        "user": row["user_name"],
        "code_version": row["code_version"],
        **{name: row[name] for name in ("error_code", "error_class", "error_message", "reason", "settled_by")},
        "settled_at": iso(row["settled_at"]),
    }


def publication_row(line: Mapping[str, Any]) -> dict[str, Any]:
    """One publication for a table that people read."""
    return {
        "key": line["key"],
        "receiver": line["receiver"],
        "state": line["state"],
        "how": line["how"] or "",
        "sends": line["sends"],
        "sent (UTC)": when(line["sent_at"]),
        "task": task_of(line),
        "run": line["run_id"] or "",
        "try": line["try_number"],
        "error": line["error_code"] or "",
    }


def told(lines: Iterable[Mapping[str, Any]]) -> list[str]:
    """Errors, and the reasons of people, in full, a paragraph each."""
    paragraphs = []
    for line in lines:
        if said := line["error_message"] or line["reason"]:
            by = f" ({line['settled_by']})" if not line["error_message"] and line["settled_by"] else ""
            text = f"{line['key']}  {' '.join(said.split())}{by}"
            paragraphs.append(textwrap.fill(text, WIDTH, subsequent_indent="  ", break_long_words=False))
    return paragraphs
