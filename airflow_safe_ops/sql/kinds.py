"""What the statements of a foreign SQL text do: whether they write, and which table."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from zlib import crc32

# A word that any writing or unknown statement holds: text without one is not read any further.
_MAYBE = re.compile(
    r"\b(insert|update|delete|merge|copy|create|alter|drop|truncate|rename|replace|upsert|load|into"
    r"|call|exec|execute|do|begin|declare)\b",
    re.IGNORECASE,
)
_JINJA = re.compile(r"\{\{(.*?)\}\}|\{%.*?%\}|\{#.*?#\}", re.DOTALL)

_ROWS = ("INSERT", "UPDATE", "DELETE", "MERGE", "COPY", "REPLACE", "UPSERT", "LOAD", "TRUNCATE")
_DDL = ("CREATE", "ALTER", "DROP", "RENAME")
_PROCEDURES = ("CALL", "EXEC", "EXECUTE", "DO", "BEGIN", "DECLARE")
# Of these the first words tell all, and the lexer is slow: the rest is read only for a further statement in it.
_TOLD_BY_HEAD = frozenset({"INSERT", "UPDATE", "DELETE", "MERGE", "CREATE"})
_ENOUGH = 12
_TRANSACTIONS = ("TRANSACTION", "TRAN", "WORK", "ISOLATION", "READ", "DEFERRED", "IMMEDIATE", "EXCLUSIVE")
_DELETERS = ("DELETE", "TRUNCATE")
_INSERTERS = ("INSERT", "COPY", "LOAD", "MERGE", "REPLACE", "UPSERT")
# Words between the verb and the table's name.
_TEMPORARY = frozenset({"TEMP", "TEMPORARY"})
_BEFORE_NAME = {
    *("INTO", "FROM", "TABLE", "ONLY", "OVERWRITE", "IGNORE", "GLOBAL", "LOCAL", "UNLOGGED", "EXTERNAL", "TRANSIENT"),
    *("VIEW", "MATERIALIZED", "OR", "REPLACE", "IF", "NOT", "EXISTS", *_TEMPORARY),
}
# What is made again from nothing: replacing it loses no row.
_CODE = frozenset({"VIEW", "FUNCTION", "PROCEDURE", "MACRO"})


@dataclass(frozen=True)
class SqlEffect:
    """
    What one statement does.

    :param verb: its first word, or the verb behind its WITH or EXPLAIN ANALYZE, in capitals.
    :param table: the table that it writes, in lower case without quotes; empty where none can be read.
    :param writes: it changes rows or definitions.
    :param is_unknown: what it does stands elsewhere: a procedure, a block.
    """

    verb: str
    table: str = ""
    writes: bool = False
    is_unknown: bool = False

    @property
    def deletes(self) -> bool:
        """It takes rows away, and no more."""
        return self.writes and self.verb in _DELETERS

    @property
    def inserts(self) -> bool:
        """It brings rows."""
        return self.writes and self.verb in _INSERTERS

    def __str__(self) -> str:
        return f"{self.verb} {self.table}".strip()


def same_table(one: str, other: str) -> bool:
    """Two names may be of one table: equal, or equal as far as the shorter goes (``t`` and ``mart.t``)."""
    if not one or not other:
        return False
    short, long = sorted((one.split("."), other.split(".")), key=len)
    return long[-len(short) :] == short


@lru_cache(maxsize=2048)
def sql_effects(sql: str) -> tuple[SqlEffect, ...]:
    """
    What the statements of a text do, in their order; any dialect, Jinja templates as they stand.

    It reads words, not meaning: it never fails, and what it cannot read counts as no write. Not a write: a read,
    an EXPLAIN, a COPY to a file, a table that is temporary, and what ends the same however often it runs
    (``CREATE … IF NOT EXISTS``, ``DROP … IF EXISTS``, ``CREATE OR REPLACE VIEW`` or a function).

    :param sql: one or more statements. A Jinja expression counts as a name, a Jinja tag ends a statement: what
        follows ``{% else %}`` is another one.
    """
    if not (_MAYBE.search(sql) or sql.lstrip().startswith("{{")):
        return ()
    temporary: set[str] = set()
    effects = []
    for words in _statements(_JINJA.sub(_without_jinja, sql)):
        effect = _effect(words)
        if effect.verb == "CREATE" and _TEMPORARY & {w.upper() for w in words[:5]}:
            temporary.add(effect.table)
        if effect.writes and effect.table and (effect.table in temporary or effect.table.startswith("#")):
            effect = SqlEffect(effect.verb, effect.table)
        effects.append(effect)
    return tuple(effects)


def _without_jinja(found: re.Match[str]) -> str:
    """An expression becomes a name, always the same for the same words; a tag ends a statement."""
    if found[1] is None:
        return ";" if found[0].startswith("{%") else " "
    return f"jinja_{crc32(' '.join(found[1].split()).encode()):08x}"


def _statements(sql: str) -> Iterator[list[str]]:
    """The words of each statement; no comments, no space."""
    from sqlparse import tokens
    from sqlparse.lexer import tokenize

    words: list[str] = []
    at = 0
    for ttype, value in tokenize(sql):
        at += len(value)
        if ttype in tokens.Whitespace or ttype in tokens.Comment:
            continue
        if ttype is tokens.Punctuation and value == ";":
            yield from [words] if words else []
            words = []
        else:
            # A literal is no word, whatever it says.
            is_literal = ttype in tokens.Literal and ttype not in tokens.String.Symbol
            # Which words sqlparse takes together, IF NOT EXISTS for one, differs between its versions.
            words += ["?"] if is_literal else value.split() if ttype in tokens.Keyword else [value]
            if len(words) >= _ENOUGH and words[0].upper() in _TOLD_BY_HEAD and ";" not in sql[at:].rstrip("; \n"):
                break
    yield from [words] if words else []


def _effect(words: Sequence[str]) -> SqlEffect:
    upper = [word.upper() for word in words]
    at = _verb_at(upper)
    verb = upper[at] if at < len(upper) else ""
    if _stands_elsewhere(verb, upper[at + 1 : at + 2]):
        return SqlEffect("a template" if verb.startswith("JINJA_") else verb, is_unknown=True)
    if verb == "SELECT":
        into = _top_level(upper, at, ("INTO",))
        return SqlEffect(verb, _name(words, into + 1), writes=into > 0) if into else SqlEffect(verb)
    if verb in _ROWS or verb in _DDL:
        return SqlEffect(verb, _name(words, at + 1), writes=_lasts(verb, upper, at))
    return SqlEffect(verb)


def _stands_elsewhere(verb: str, following: Sequence[str]) -> bool:
    """A procedure, a block of a procedural language, or a template that brings the whole statement."""
    is_block = verb in _PROCEDURES and bool(following) and following[0] not in _TRANSACTIONS
    return is_block or verb.startswith("JINJA_")


def _verb_at(upper: Sequence[str]) -> int:
    """
    Where the verb that counts stands.

    Behind WITH it is the first verb that writes, in a bracket (PostgreSQL) or after them, else the SELECT. An
    EXPLAIN counts by itself, unless ANALYZE has the statement executed.
    """
    first = next((n for n, word in enumerate(upper) if word != "("), 0)
    if upper[first] == "EXPLAIN":
        options = upper[first + 1 : first + 12]
        if "ANALYZE" not in options and "ANALYSE" not in options:
            return first
        return next((n for n in range(first, len(upper)) if upper[n] in (*_ROWS, *_DDL, "SELECT", "WITH")), first)
    if upper[first] != "WITH":
        return first
    depth = 0
    select = first
    for n, (before, word) in enumerate(pairwise(upper), start=1):
        depth += {"(": 1, ")": -1}.get(before, 0)
        if word in _ROWS and (before == "(" or (depth == 0 and before == ")")):
            return n
        if word == "SELECT" and depth == 0 and select == first:
            select = n
    return select


def _lasts(verb: str, upper: Sequence[str], at: int) -> bool:
    """Whether the statement changes something that a repeat would change again."""
    if verb in _DDL:
        head = upper[at : at + _ENOUGH]
        is_code = head[1:3] == ["OR", "REPLACE"] and _CODE & set(head[:6])
        is_conditional = any(one == "IF" and then in ("NOT", "EXISTS") for one, then in pairwise(head))
        return not (is_code or is_conditional or (verb == "CREATE" and _TEMPORARY & set(head[:5])))
    if verb == "COPY":
        is_into_stage = any(word.startswith("@") for word in upper[at + 1 : at + 3])
        towards = _top_level(upper, at, ("FROM", "TO"))
        return not is_into_stage and (not towards or upper[towards] != "TO")
    return True


def _top_level(upper: Sequence[str], start: int, wanted: Iterable[str]) -> int:
    """Where one of the words stands outside of brackets; 0: nowhere."""
    depth = 0
    for n in range(start, len(upper)):
        depth += {"(": 1, ")": -1}.get(upper[n], 0)
        if depth == 0 and upper[n] in wanted:
            return n
    return 0


def _name(words: Sequence[str], at: int) -> str:
    """The dotted name that begins here, behind words such as INTO and TABLE."""
    while at < len(words) and words[at].upper() in _BEFORE_NAME:
        at += 1
    parts: list[str] = []
    while at < len(words) and (words[at] not in ("(", ")", ",", "?", "*") or not parts):
        parts.append(words[at].strip('`"[]'))
        if at + 1 >= len(words) or words[at + 1] not in (".", "-"):
            break
        parts.append(words[at + 1])
        at += 2
    name = "".join(parts).lower()
    return name if re.search(r"\w", name) else ""
