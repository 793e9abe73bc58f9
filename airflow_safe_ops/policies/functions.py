"""What a Python function of a task writes, as far as its own code says it in so many words."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator
from functools import partial
from inspect import unwrap
from types import CodeType
from typing import Any

from airflow_safe_ops.sql.kinds import sql_effects

# Methods of hooks, of pandas and of drivers that write rows, and do nothing else.
_WRITERS = frozenset(
    {"bulk_insert_rows", "bulk_load", "bulk_load_custom", "copy_expert", "insert_rows", "to_sql", "write_pandas"}
)
_CO_HAS_DOCSTRING = 0x4000000
_NAME = r"""(?:"[^"]*"|`[^`]*`|\[[^\]]*\]|[^\s(;"`\[])+"""
# A text that is a statement and no log line: what stands behind the table's name is SQL, or nothing stands there,
# since code puts the rest together.
_STATEMENT = re.compile(
    rf"""\s*(?P<verb>insert|merge|delete|truncate|update|copy)\s+(?:
        (?:into|from|table|overwrite(?:\s+(?:table|into))?)\s+(?:only\s+)?{_NAME}(?P<rest>
            \s*[(;] | \s+(?:(?:as\s+)?\w+\s+)?(?:values|select|where|using|set|output)\b
            | \s+(?:with\s+\S+\s*(?:\([^)]*\)\s*)?as|default\s+values|partition\s*\(|limit\s+[\d%?:{{$]|by\s+name)
            | \s+(?:overriding|returning|cascade|restart|continue|restrict)\b | \s+from\s+['"@]
        )
        | {_NAME}\s+set\s+(?P<set>[^=]*=)
        | {_NAME}\s*(?:\([^)]*\)\s*)?from\s+(?P<source>['"@]|stdin\b|program\b)
        | (?:(?:into|from|table|overwrite)(?:\s+(?:{_NAME}|["`\[]))? | {_NAME}\s+(?:set|(?:\([^)]*\)\s*)?from))\s*$
    )""",
    re.IGNORECASE | re.VERBOSE,
)


def written_by(function: Any) -> str:
    """
    What a function writes: the methods it calls and the statements that stand in it; empty where none is seen.

    It looks at the compiled code of the function and of functions inside it, and at nothing that they call. The
    function is not run and no module is imported.

    :param function: a task's ``python_callable``, or anything else.
    """
    code = getattr(unwrap(called_by(unwrap(function))), "__code__", None)
    return ", ".join(dict.fromkeys(_seen(code))) if isinstance(code, CodeType) else ""


def called_by(function: Any) -> Any:
    """
    The function that a call of this ends in: what a partial holds, the ``__call__`` of an object; else itself.

    :param function: anything, also what cannot be called.
    """
    while isinstance(function, partial):
        function = function.func
    if hasattr(function, "__code__") or isinstance(function, type) or not callable(function):
        return function
    return type(function).__call__


def _has_docstring(code: CodeType) -> bool:
    """Whether the first constant is a docstring; before Python 3.14 it is one, or None, in every named function."""
    if sys.version_info >= (3, 14):
        return bool(code.co_flags & _CO_HAS_DOCSTRING)
    return not code.co_name.startswith("<")


def _is_statement(text: str) -> bool:
    """Whether a text is SQL. One of which code makes the rest is told from "Delete from" by its capitals, or none."""
    found = _STATEMENT.match(text)
    return bool(found and (any(found.group("rest", "set", "source")) or not found["verb"].istitle()))


def _seen(code: CodeType) -> Iterator[str]:
    yield from (f"{name}()" for name in code.co_names if name in _WRITERS)
    for constant in _flat(code.co_consts[_has_docstring(code) :]):
        if isinstance(constant, CodeType):
            yield from _seen(constant)
        elif isinstance(constant, str) and _is_statement(constant):
            yield from (str(effect) for effect in sql_effects(constant) if effect.writes)


def _flat(constants: Iterable[Any]) -> Iterator[Any]:
    """Constants one by one; Python keeps a list of three or more as one tuple."""
    for constant in constants:
        if isinstance(constant, tuple | frozenset):
            yield from _flat(constant)
        else:
            yield constant
