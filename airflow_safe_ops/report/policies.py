"""What people read of the cluster policy: a paragraph a DAG."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Mapping
from typing import Any

WIDTH = 110


def policies_text(lines: Iterable[Mapping[str, Any]]) -> str:
    """
    What the rules say of each DAG, in the order in which they were parsed.

    :param lines: a line a remark: ``dag_id, rule, mode, what, tasks, done, fix``.
    """
    by_dag: dict[str, list[Mapping[str, Any]]] = {}
    for line in lines:
        by_dag.setdefault(line["dag_id"], []).append(line)
    return "\n\n".join("\n".join([dag_id, *map(_remark, of_it)]) for dag_id, of_it in sorted(by_dag.items()))


def _remark(line: Mapping[str, Any]) -> str:
    head = f"  {line['rule']} ({line['mode']})"
    told = [f"it {line['what']}", f"tasks: {line['tasks']}" if line["tasks"] else ""]
    told += [f"enforced: {line['done']}" if line["done"] else "", line["fix"]]
    wrapped = (textwrap.fill(text, WIDTH, initial_indent="    ", subsequent_indent="      ") for text in told if text)
    return "\n".join([head, *wrapped])
