"""The author's SQL: one SELECT, with ``:names`` that somebody declared."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from functools import cache
from itertools import pairwise

from sqlparse import keywords, tokens
from sqlparse.lexer import Lexer
from sqlparse.sql import Token

from airflow_safe_ops.errors import NotOneSelect, UnknownBind
from airflow_safe_ops.plan.model import bind

_READERS = ("SELECT", "WITH", "VALUES", "TABLE")

# sqlparse reads many dialects at once. In standard SQL a backslash escapes nothing outside E'…', "#" is an operator
# and no comment, a backtick quotes nothing, an operator ends where a comment begins, and a bracket opens a subscript
# or an ARRAY: these come before its own rules.
_STANDARD = [
    (r"(?-i:\$((?:[^\W\d]\w*)?)\$[\s\S]*?\$\1\$)", tokens.Literal),
    (r"[eE]'(''|\\[\s\S]|[^'\\])*'", tokens.String.Single),
    (r"'(''|[^'])*'", tokens.String.Single),
    (r'"(""|[^"])*"', tokens.String.Symbol),
    (r"-(?!-)|/(?!\*)|[+@#%^&|<>=~!`\u00b4]", tokens.Operator),
    (r"[\[\]]", tokens.Punctuation),
]
_COMMENT_ENDS = re.compile(r"/\*|\*/")


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
    words = _only_statement(sql)
    used: set[str] = set()
    pieces = []
    for token, in_subscript in _with_depth(words):
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


def _only_statement(sql: str) -> list[Token]:
    """The tokens of the only statement, without the semicolons around it."""
    if "\x00" in sql:
        raise NotOneSelect("The SQL holds a NUL character.")
    statements: list[list[Token]] = [[]]
    for token in _tokens(sql.lstrip("\ufeff")):  # a file may begin with a byte order mark
        if token.ttype is tokens.Punctuation and token.value == ";":
            statements.append([])
        else:
            statements[-1].append(token)
    meaningful = [s for s in statements if any(_meaning(t) for t in s)]
    if len(meaningful) != 1:
        raise NotOneSelect(f"The SQL holds {len(meaningful)} statements.", statements=len(meaningful))
    words = [t for t in meaningful[0] if _meaning(t)]
    verb = _verb(words)
    if verb not in _READERS:
        raise NotOneSelect(f"The SQL is {verb}, not a SELECT.", kind=verb)
    if _selects_into(words):
        raise NotOneSelect("The SQL is SELECT … INTO, which makes a table.")
    # Comments may stand behind the semicolon.
    return [t for s in statements if s is meaningful[0] or not any(map(_meaning, s)) for t in s]


def _tokens(sql: str) -> Iterator[Token]:
    """The tokens of all statements; comments nest, as in standard SQL."""
    at = 0
    for ttype, value in _lexer().get_tokens(sql):
        if ttype in tokens.Comment.Multiline and value.count("/*") > 1:
            end = _end_of_comment(sql, at)
            yield Token(ttype, sql[at:end])
            yield from _tokens(sql[end:])
            return
        at += len(value)
        yield Token(ttype, value)


def _end_of_comment(sql: str, start: int) -> int:
    depth = 0
    for found in _COMMENT_ENDS.finditer(sql, start):
        depth += 1 if found.group() == "/*" else -1
        if depth == 0:
            return found.end()
    return len(sql)


def _meaning(token: Token) -> bool:
    return not token.is_whitespace and token.ttype not in tokens.Comment


def _verb(words: list[Token]) -> str:
    """What the statement does: its first word, or what follows its WITH clause."""
    first = next((t.value.upper() for t in words if t.value != "("), "(")
    depth = 0
    for before, token in pairwise(words if first == "WITH" else ()):
        depth += {"(": 1, ")": -1}.get(before.value, 0)
        if depth == 0 and before.value == ")" and token.ttype is tokens.DML:
            return str(token.value.upper())
    return first


def _selects_into(words: list[Token]) -> bool:
    depth = 0
    for token in words:
        depth += {"(": 1, ")": -1}.get(token.value, 0)
        if depth == 0 and token.is_keyword and token.normalized == "INTO":
            return True
    return False


def _with_depth(words: list[Token]) -> Iterator[tuple[Token, bool]]:
    """Each token, with whether it stands in a subscript, where ``[:n]`` is a slice up to a column n."""
    opened: list[str] = []
    before = ""
    for token in words:
        if token.ttype is tokens.Punctuation and token.value in "([":
            is_nested = opened[-1:] == ["ARRAY"] and before in ("[", ",")
            is_array = token.value == "[" and (before == "ARRAY" or is_nested)
            opened.append("ARRAY" if is_array else token.value)
        elif token.ttype is tokens.Punctuation and token.value in ")]" and opened:
            opened.pop()
        yield token, opened[-1:] == ["["]
        if _meaning(token):
            before = "" if token.ttype is tokens.Name else token.value.upper()
