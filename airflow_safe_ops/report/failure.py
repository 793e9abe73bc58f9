"""What people read of a failure: its class, what that means, what follows, what to do."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from airflow_safe_ops.errors import FailureClass
from airflow_safe_ops.failures.classify import Verdict
from airflow_safe_ops.failures.retries import DEFAULTS, TOTAL, told

WIDTH = 100


def failure_line(verdict: Verdict) -> dict[str, Any]:
    """A verdict as plain data; delays in seconds, None where the task's own delay counts."""
    return {
        "class": str(verdict.failure),
        "means": verdict.failure.means,
        "reason": verdict.reason,
        "code": verdict.code or None,
        "error": verdict.error or None,
        "retried": not verdict.failure.is_terminal,
        "delays": delays(verdict.failure),
        "what_happens": what_happens(verdict.failure),
        "what_to_do": verdict.advice,
    }


def delays(failure: FailureClass) -> list[float | None] | None:
    """The default policy's delays, jitter left out; None where the task alone says what follows."""
    how = DEFAULTS.get(failure)
    if how is None:
        return None
    spans = [how.before(failed, 0.5) for failed in range(1, how.tries)]
    return [None if span is None else span.total_seconds() for span in spans]


def what_happens(failure: FailureClass) -> str:
    """What the default policy does, in words."""
    seconds, how = delays(failure), DEFAULTS.get(failure)
    if seconds is None or how is None:
        return "It is retried as the task says: retries, retry_delay."
    if not seconds:
        return "With SafeRetryPolicy the task fails at once; its retries are left unused."
    times = f"{len(seconds)} time{'' if len(seconds) == 1 else 's'}"
    if seconds[0] is None:
        return f"With SafeRetryPolicy it is tried again {times}, after the task's retry_delay, if it has retries."
    after = ", ".join(told(timedelta(seconds=s)) for s in seconds if s is not None)
    return (
        f"With SafeRetryPolicy it is tried again up to {times}, after {after} (each up to {how.jitter:.0%} more or "
        f"less), as far as the task's retries go, and not later than {told(TOTAL)} after the first try began."
    )


def failure_text(line: Mapping[str, Any], facts: Mapping[str, Any]) -> str:
    """The same for people, a paragraph each; with what the ledger says of the try, where it was asked."""
    code = f" ({line['code'].replace(':', ' ')})" if line["code"] and not line["code"].startswith("so:") else ""
    rows = {
        **facts,
        "class": f"{line['class']}. {line['means']}",
        "why": f"{line['reason']}{code}.",
        "then": line["what_happens"],
        "to do": line["what_to_do"],
    }
    indent = 2 + max(map(len, rows))
    return "\n".join(
        textwrap.fill(f"{name:{indent}}{text}", WIDTH, subsequent_indent=" " * indent, break_long_words=False)
        for name, text in rows.items()
    )
