"""What a Python function of a task writes, as far as its own code says it in so many words."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from inspect import unwrap
from types import CodeType
from typing import Any

from airflow_safe_ops.sql.kinds import sql_effects

# Methods of hooks, of pandas and of drivers that write rows, and do nothing else.
_WRITERS = frozenset(
    {"bulk_insert_rows", "bulk_load", "bulk_load_custom", "copy_expert", "insert_rows", "to_sql", "write_pandas"}
)
_CO_HAS_DOCSTRING = 0x4000000
# A text that can only be a statement: a log line may begin with "Update" too.
_STATEMENT = re.compile(
    r"\s*(insert\s+(into|overwrite)\s|merge\s+into\s|delete\s+from\s|truncate\s+table\s|update\s+\S+\s+set\s"
    r"|copy\s+(into\s+)?\S+\s*(\([^)]*\)\s*)?from\s)",
    re.IGNORECASE,
)


def written_by(function: Any) -> str:
    """
    What a function writes: the methods it calls and the statements that stand in it; empty where none is seen.

    It looks at the compiled code of the function and of functions inside it, and at nothing that they call. The
    function is not run and no module is imported.

    :param function: a task's ``python_callable``, or anything else.
    """
    code = getattr(unwrap(function) if callable(function) else function, "__code__", None)
    return ", ".join(dict.fromkeys(_seen(code))) if isinstance(code, CodeType) else ""


def _has_docstring(code: CodeType) -> bool:
    """Whether the first constant is a docstring; before Python 3.14 it is one, or None, in every named function."""
    if sys.version_info >= (3, 14):
        return bool(code.co_flags & _CO_HAS_DOCSTRING)
    return not code.co_name.startswith("<")


def _seen(code: CodeType) -> Iterator[str]:
    yield from (f"{name}()" for name in code.co_names if name in _WRITERS)
    for constant in code.co_consts[_has_docstring(code) :]:
        if isinstance(constant, CodeType):
            yield from _seen(constant)
        elif isinstance(constant, str) and _STATEMENT.match(constant):
            yield from (str(effect) for effect in sql_effects(constant) if effect.writes)
