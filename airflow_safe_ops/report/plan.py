"""A plan in words and SQL: what the dry run prints is what the run executes."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Mapping, Sequence
from datetime import date
from typing import Any

from airflow_safe_ops.errors import SafeOpsError
from airflow_safe_ops.plan.model import Plan, Statement, Step

WIDTH = 100
_INDENT = " " * 6
_CLAIM = ("claim", "wait for loads that overlap, then hold the partition")

_CLAUSES = re.compile(
    r"(?:LEFT |RIGHT |FULL |CROSS |INNER )?JOIN\b|FROM\b|WHERE\b|GROUP BY\b|HAVING\b|ORDER BY\b|LIMIT\b|USING\b|SET\b"
    r"|SELECT\b|AND\b|VALUES\b|ON CONFLICT\b",
    re.IGNORECASE,
)
# Where a line may not be broken: literals, quoted names, dollar quotes.
_WORDS = re.compile(r"""(?:[^\s'"$]|'(?:''|[^'])*'|"(?:""|[^"])*"|\$(\w*)\$.*?\$\1\$|['"$])+|\s+""", re.DOTALL)


def plan_text(plans: Sequence[Plan]) -> str:
    """The plans of one load, a section a partition, for a window of 100 columns."""
    places = [f"  ({n} of {len(plans)})" if len(plans) > 1 else "" for n in range(1, len(plans) + 1)]
    return "\n\n".join(_one(plan, place) for plan, place in zip(plans, places, strict=True))


def plan_data(plans: Sequence[Plan]) -> list[dict[str, Any]]:
    """The plans as plain data."""
    return [
        {
            "target": plan.task.table.identity,
            "partition": plan.task.key,
            "strategy": plan.task.load.strategy,
            "notes": list(plan.notes),
            "steps": [{"name": _CLAIM[0], "what": _CLAIM[1]}, *(_step_data(step) for step in plan.steps)],
        }
        for plan in plans
    ]


def error_data(error: SafeOpsError) -> dict[str, Any]:
    """A refusal as plain data."""
    facts = {name: _plain(value) for name, value in error.facts.items()}
    return {"code": error.code, "what": error.what, "why": error.why, "fix": error.fix, "facts": facts}


def refusals(step: Step) -> list[type[SafeOpsError]]:
    """What a step can refuse the load for."""
    return list(step.refuses)


def wrapped_sql(sql: str, width: int) -> list[str]:
    """
    SQL in lines of at most ``width`` where that is possible.

    Lines of the author's own stay as they are while they fit. A longer one is broken before a clause of its
    outermost level, else between words; never inside a literal, a quoted name or a comment.
    """
    lines: list[str] = []
    for line in _logical_lines(sql.expandtabs(4)):
        short = all(len(part) <= width for part in line.split("\n"))
        lines += line.split("\n") if short or "--" in line or "/*" in line else _broken(line, width)
    return [line.rstrip() for line in lines]


def _one(plan: Plan, place: str) -> str:
    task = plan.task
    lines = [
        f"partition  {task.key}{place}",
        f"target     {task.table.identity}",
        f"strategy   {task.load.strategy}",
    ]
    for note in plan.notes:
        lines += textwrap.wrap(note, WIDTH, initial_indent="note       ", subsequent_indent=" " * 11)
    lines += ["", f"  1  {_CLAIM[0]}: {_CLAIM[1]}"]
    for number, step in enumerate(plan.steps, 2):
        lines += _step_lines(number, step)
    return "\n".join(lines)


def _step_lines(number: int, step: Step) -> list[str]:
    lines = textwrap.wrap(
        f"{step.name}: {step.what}", WIDTH, initial_indent=f"{number:3d}  ", subsequent_indent=_INDENT
    )
    if step.statement is not None:
        lines += [_INDENT + line for line in wrapped_sql(str(step.statement), WIDTH - len(_INDENT))]
        lines += _bound_lines(step.statement)
    for refusal in refusals(step):
        lines.append(f"{_INDENT}refuses if: {_says(refusal).rstrip('.')} ({refusal.code})")
    return lines


def _bound_lines(statement: Statement) -> list[str]:
    used = statement.used
    wide = max((len(name) for name in used), default=0)
    return [f"{_INDENT}  :{name:<{wide}} = {_shown(value)}  ({type(value).__name__})" for name, value in used.items()]


def _step_data(step: Step) -> dict[str, Any]:
    data: dict[str, Any] = {"name": step.name, "what": step.what}
    if step.statement is not None:
        used = step.statement.used.items()
        data["sql"] = str(step.statement)
        data["binds"] = {n: {"type": type(value).__name__, "value": _plain(value)} for n, value in used}
    if found := refusals(step):
        data["refuses"] = [{"code": refusal.code, "what": _says(refusal)} for refusal in found]
    return data


def _says(refusal: type[SafeOpsError]) -> str:
    return (refusal.__doc__ or "").strip().partition("\n")[0]


def _shown(value: Any) -> str:
    """As a person reads it: text in quotes, so that a date and its text can be told apart."""
    if value is None:
        return "NULL"
    if isinstance(value, str):
        return "'" + value.replace("'", "''") + "'"
    return str(_plain(value))


def _plain(value: Any) -> Any:
    """A value as JSON has it; what JSON has no type for, as text."""
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, Mapping):
        return {str(name): _plain(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value if value is None or isinstance(value, bool | int | float | str) else str(value)


def _logical_lines(sql: str) -> list[str]:
    """Lines; one that ends inside a literal is kept together with the next."""
    lines = [""]
    for word in _words(sql):
        if word.isspace() and "\n" in word:
            lines += ["" for _ in range(word.count("\n"))]
            lines[-1] = word.rpartition("\n")[2]
        else:
            lines[-1] += word
    return lines


def _words(sql: str) -> list[str]:
    return [match.group() for match in _WORDS.finditer(sql)]


def _broken(line: str, width: int) -> list[str]:
    indent = re.match(r"\s*", line)
    margin = indent.group() if indent else ""
    broken: list[str] = []
    for clause in _clauses(line.strip()):
        broken += _filled(clause, width, margin if not broken else margin + "  ")
    return broken


def _clauses(line: str) -> list[str]:
    """The line in parts that begin with a clause of its outermost level."""
    parts, depth, words = [""], 0, _words(line)
    for at, word in enumerate(words):
        starts = depth == 0 and not word.isspace() and _CLAUSES.match("".join(words[at : at + 3]))
        if starts and parts[-1].strip() and not _CLAUSES.fullmatch(parts[-1].strip()):
            parts.append("")
        parts[-1] += word
        depth += _opened(word)
    return [part.strip() for part in parts]


def _opened(word: str) -> int:
    bare = re.sub(r"""'(?:''|[^'])*'|"(?:""|[^"])*\"""", "", word)
    return bare.count("(") - bare.count(")")


def _filled(text: str, width: int, margin: str) -> list[str]:
    lines = [margin]
    for word in _words(text):
        is_full = len(lines[-1]) + len(word) > width and lines[-1].strip()
        if is_full and not word.isspace():
            lines.append(margin + "  ")
        elif word.isspace() and not lines[-1].strip():
            continue
        lines[-1] += word
    return lines
