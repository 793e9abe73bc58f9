"""The author's SQL: one SELECT, with ``:names`` that somebody declared."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from functools import cache

from sqlparse import keywords, tokens
from sqlparse.engine.statement_splitter import StatementSplitter
from sqlparse.lexer import Lexer
from sqlparse.sql import Statement as Parsed
from sqlparse.sql import Token

from airflow_safe_ops.errors import NotOneSelect, UnknownBind
from airflow_safe_ops.plan.model import bind

_READERS = ("SELECT", "WITH", "VALUES", "TABLE", "(")

# sqlparse reads many dialects at once. In standard SQL a backslash escapes nothing outside E'…', "#" is an
# operator and no comment, and a bracket opens a subscript or an ARRAY: these come before its own rules.
_STANDARD = [
    (r"[eE]'(''|\\.|[^'\\])*'", tokens.String.Single),
    (r"'(''|[^'])*'", tokens.String.Single),
    (r'"(""|[^"])*"', tokens.String.Symbol),
    (r"#(>>?|-|=)?", tokens.Operator),
    (r"[\[\]]", tokens.Punctuation),
]


def one_select(sql: str, declared: Collection[str]) -> tuple[str, set[str]]:
    """
    The author's SELECT ready to stand inside a statement, and the declared names that it uses.

    This gives the friendly error; the proof is the server's, which runs the query read-only. Names are found
    among sqlparse's tokens, so literals, quoted names, comments, casts (``::``) and array slices are not taken
    for names.

    :param sql: the SQL; a trailing semicolon or comment does no harm.
    :param declared: the names that have a value.
    :raises NotOneSelect: it is no SELECT, or more than one statement.
    :raises UnknownBind: it uses a name that is not declared.
    """
    statement = _only_statement(sql)
    used: set[str] = set()
    pieces = []
    for token, in_subscript in _with_depth(statement):
        if token.ttype is tokens.Punctuation and token.value == ";":
            continue
        name = token.value[1:] if token.ttype is tokens.Name.Placeholder and token.value.startswith(":") else ""
        if not name or in_subscript:
            pieces.append(token.value)
        elif name in declared:
            used.add(name)
            pieces.append(bind(name))
        else:
            raise UnknownBind(
                f"The SQL uses :{name}, which has no value.",
                why=f"Declared here: {', '.join(':' + n for n in sorted(declared)) or 'none'}.",
                name=name,
            )
    return "".join(pieces).strip(), used


@cache
def _lexer() -> Lexer:
    lexer = Lexer()
    lexer.default_initialization()
    lexer.set_SQL_REGEX([*_STANDARD, *keywords.SQL_REGEX])
    return lexer


def _only_statement(sql: str) -> Parsed:
    if "\x00" in sql:
        raise NotOneSelect("The SQL holds a NUL character.")
    statements = StatementSplitter().process(_lexer().get_tokens(sql))
    meaningful = [s for s in statements if any(_meaning(t) for t in s.flatten())]
    if len(meaningful) != 1:
        raise NotOneSelect(f"The SQL holds {len(meaningful)} statements.", statements=len(meaningful))
    statement: Parsed = meaningful[0]
    words = [t for t in statement.flatten() if _meaning(t)]
    first = words[0].value.upper()
    kind = statement.get_type()
    if first not in _READERS or kind not in ("SELECT", "UNKNOWN"):
        raise NotOneSelect(f"The SQL is {first if kind == 'UNKNOWN' else kind}, not a SELECT.", kind=kind)
    if _selects_into(words):
        raise NotOneSelect("The SQL is SELECT … INTO, which makes a table.")
    return statement


def _meaning(token: Token) -> bool:
    is_space = token.is_whitespace or token.ttype in tokens.Comment
    return not is_space and token.value.strip() not in ("", ";")


def _selects_into(words: list[Token]) -> bool:
    depth = 0
    for token in words:
        depth += {"(": 1, ")": -1}.get(token.value, 0)
        if depth == 0 and token.is_keyword and token.normalized == "INTO":
            return True
    return False


def _with_depth(statement: Parsed) -> Iterator[tuple[Token, bool]]:
    """Each token, with whether it stands in a subscript, where ``[:n]`` is a slice up to a column n."""
    opened: list[str] = []
    before = ""
    for token in statement.flatten():
        if token.ttype is tokens.Punctuation and token.value in "([":
            is_array = token.value == "[" and (before == "ARRAY" or opened[-1:] == ["ARRAY"])
            opened.append("ARRAY" if is_array else token.value)
        elif token.ttype is tokens.Punctuation and token.value in ")]" and opened:
            opened.pop()
        yield token, opened[-1:] == ["["]
        if _meaning(token):
            before = token.value.upper()
