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
_JINJA = re.compile(r"\{[{%#]")
_JINJA_ENDS = {"{{": "}}", "{%": "%}", "{#": "#}"}
# What may hold a semicolon that ends nothing, and the semicolon that ends a statement.
_NO_WORDS = re.compile(
    r"""'(?:''|\\.|[^'\\])*' | "[^"]*" | `[^`]*` | (?:--|\#\ )[^\r\n]* | /\*.*?(?:\*/|\Z)
    | (?<!\w)\$((?:[^\W\d]\w*)?)\$.*?(?:\$\1\$|\Z) | ;""",
    re.DOTALL | re.VERBOSE,
)
# A script beyond this is data: each parse of the DAG would pay a second or more for reading it.
_MOST_CHARACTERS = 200_000

_ROWS = ("INSERT", "UPDATE", "DELETE", "MERGE", "COPY", "REPLACE", "UPSERT", "LOAD", "TRUNCATE")
_DDL = ("CREATE", "ALTER", "DROP", "RENAME")
_PROCEDURES = ("CALL", "EXEC", "EXECUTE", "DO", "BEGIN", "DECLARE")
# Words that another statement may follow without a semicolon: SET NOCOUNT ON, IF EXISTS (…), Hive's FROM x.
_LEADS = ("SET", "IF", "FROM", "PREPARE", "USE", "PRINT", "WHILE")
# Of these the first words tell all, and the lexer is slow: it reads no more of them.
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
_BEHIND_NAME = frozenset({"(", ".", "AS", "VALUES", "SELECT", "WHERE", "SET", "USING"})
# What is made again from nothing: replacing it loses no row.
_CODE = frozenset({"VIEW", "FUNCTION", "PROCEDURE", "MACRO"})
_OFF = ("FALSE", "OFF")


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


@lru_cache(maxsize=2048)
def sql_effects(sql: str) -> tuple[SqlEffect, ...]:
    """
    What the statements of a text do, in their order; any dialect, Jinja templates as they stand.

    It reads words, not meaning: it never fails, and what it cannot read counts as no write. Not a write: a read,
    an EXPLAIN, a COPY to a file, a table that is temporary, and what ends the same however often it runs
    (``CREATE … IF NOT EXISTS``, ``DROP … IF EXISTS``, ``CREATE OR REPLACE VIEW`` or a function). Of a script beyond
    200,000 characters the rest is unknown.

    :param sql: one or more statements. A Jinja expression counts as a name, a Jinja tag ends a statement: what
        follows ``{% else %}`` is another one.
    """
    if not (_MAYBE.search(sql) or sql.lstrip().startswith("{{")):
        return ()
    temporary: set[str] = set()
    effects = []
    for words in _statements(_without_jinja(sql[:_MOST_CHARACTERS])):
        effect = _effect(words)
        if effect.verb == "CREATE" and _is_temporary([word.upper() for word in words]):
            temporary.add(effect.table)
        if effect.writes and effect.table and (effect.table in temporary or effect.table.startswith("#")):
            effect = SqlEffect(effect.verb, effect.table)
        effects.append(effect)
    if len(sql) > _MOST_CHARACTERS:
        effects.append(SqlEffect(f"SQL beyond {_MOST_CHARACTERS:,} characters", is_unknown=True))
    return tuple(effects)


def _without_jinja(sql: str) -> str:
    """
    An expression becomes a name, always the same for the same words; a tag ends a statement.

    What is never closed stands as it is: Jinja would refuse it.
    """
    parts: list[str] = []
    at = 0
    while found := _JINJA.search(sql, at):
        end = sql.find(_JINJA_ENDS[found[0]], found.end())
        if end < 0:
            break
        name = f"jinja_{crc32(' '.join(sql[found.end() : end].split()).encode()):08x}"
        parts += [sql[at : found.start()], {"{{": name, "{%": ";", "{#": " "}[found[0]]]
        at = end + 2
    return "".join([*parts, sql[at:]])


def _statements(sql: str) -> Iterator[list[str]]:
    """The words of each statement; no comments, no space."""
    begin = 0
    for found in _NO_WORDS.finditer(sql):
        if found[0] == ";":
            yield from _words(sql[begin : found.start()])
            begin = found.end()
    yield from _words(sql[begin:])


def _words(statement: str) -> Iterator[list[str]]:
    """The words of a statement as one list; nothing where it has none. Of rows by the thousand the head is enough."""
    from sqlparse import tokens
    from sqlparse.lexer import tokenize

    words: list[str] = []
    for ttype, value in tokenize(statement):
        if ttype in tokens.Whitespace or ttype in tokens.Comment:
            continue
        # A literal is no word, whatever it says.
        is_literal = ttype in tokens.Literal and ttype not in tokens.String.Symbol
        # Which words sqlparse takes together, IF NOT EXISTS for one, differs between its versions.
        words += ["?"] if is_literal else value.split() if ttype in tokens.Keyword else [value]
        if len(words) >= _ENOUGH and words[0].upper() in _TOLD_BY_HEAD:
            break
    if words:
        yield words


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
    is_transaction = verb == "BEGIN" and (not following or following[0] in _TRANSACTIONS)
    is_block = verb in _PROCEDURES and bool(following) and not is_transaction
    return is_block or verb.startswith("JINJA_")


def _verb_at(upper: Sequence[str], start: int = 0) -> int:
    """
    Where the verb that counts stands.

    Behind WITH it is the first verb that writes, in a bracket (PostgreSQL) or after them, else the SELECT. An
    EXPLAIN counts by itself, unless ANALYZE has the statement executed; a COPY by the query in its bracket, where
    that writes.
    """
    first = next((n for n in range(start, len(upper)) if upper[n] != "("), start)
    verb = upper[first] if first < len(upper) else ""
    if verb == "EXPLAIN":
        return _executed_by_explain(upper, first)
    if verb == "WITH":
        return _verb_behind_with(upper, first)
    if verb == "COPY" and upper[first + 1 : first + 2] == ["("]:
        query = next((n for n in range(first + 1, len(upper)) if upper[n] != "("), first)
        query = _verb_behind_with(upper, query) if upper[query] == "WITH" else query
        return query if upper[query] in _ROWS else first
    if verb in _LEADS or (verb == "BEGIN" and not _stands_elsewhere(verb, upper[first + 1 : first + 2])):
        return _verb_behind_lead(upper, first)
    return first


def _executed_by_explain(upper: Sequence[str], first: int) -> int:
    """The verb of what an EXPLAIN ANALYZE executes; the EXPLAIN where it executes nothing."""
    wanted = (*_ROWS, *_DDL, *_PROCEDURES, "SELECT", "WITH")
    statement = next((n for n in range(first, len(upper)) if upper[n] in wanted), first)
    options = [*upper[first:statement], ""]
    executes = any(option in ("ANALYZE", "ANALYSE") and value not in _OFF for option, value in pairwise(options))
    return _verb_at(upper, statement) if executes and statement > first else first


def _verb_behind_with(upper: Sequence[str], first: int) -> int:
    depth = 0
    for n in range(first + 1, len(upper)):
        before, word = upper[n - 1], upper[n]
        depth += {"(": 1, ")": -1}.get(before, 0)
        # REPLACE in a bracket of its own is a function or a column, not the statement that AS ( begins.
        is_query = before == "(" and upper[n - 2] in ("AS", "MATERIALIZED")
        if word in _ROWS and (is_query or (depth == 0 and _is_statement(upper, n))):
            return n
        if word == "SELECT" and depth == 0:
            return n
    return first


def _verb_behind_lead(upper: Sequence[str], first: int) -> int:
    """The first writing verb outside of brackets, else a procedure, else the first word."""
    depth = 0
    procedure = first
    for n in range(first + 1, len(upper)):
        depth += {"(": 1, ")": -1}.get(upper[n], 0)
        if depth == 0 and _is_statement(upper, n):
            if upper[n] in _ROWS or upper[n] in _DDL:
                return n
            if upper[n] in _PROCEDURES and procedure == first:
                procedure = n
    return procedure


def _is_statement(upper: Sequence[str], at: int) -> bool:
    """Whether a verb begins a statement here: it is no function, no value and no part of a name."""
    before, behind = upper[at - 1], upper[at + 1] if at + 1 < len(upper) else ")"
    return before not in (".", ",", "=", "@") and behind not in (".", ",", "=", "(", ")")


def _is_temporary(upper: Sequence[str]) -> bool:
    """Whether a CREATE makes a temporary table; ``temp`` may be a table's own name."""
    before = ("(", "CREATE", "OR", "REPLACE", "GLOBAL", "LOCAL")
    return next((word for word in upper if word not in before), "") in _TEMPORARY


def _lasts(verb: str, upper: Sequence[str], at: int) -> bool:
    """Whether the statement changes something that a repeat would change again."""
    if verb == "ALTER":
        return not all(_is_conditional(action) for action in _actions(upper, at))
    if verb in _DDL:
        head = upper[at : at + _ENOUGH]
        made = next((word for word in head if word == "TABLE" or word in _CODE), "")
        is_code = head[1:3] == ["OR", "REPLACE"] and made in _CODE
        return not (is_code or _is_conditional(head) or (verb == "CREATE" and _is_temporary(head)))
    if verb == "COPY":
        target = upper[at + 1 : at + 3]
        is_unload = any(word.startswith("@") for word in target) or target == ["INTO", "?"]
        towards = _top_level(upper, at, ("FROM", "TO"))
        return not is_unload and (not towards or upper[towards] != "TO")
    return True


def _is_conditional(words: Sequence[str]) -> bool:
    return any(one == "IF" and then in ("NOT", "EXISTS") for one, then in pairwise(words))


def _actions(upper: Sequence[str], at: int) -> Iterator[Sequence[str]]:
    """What an ALTER does, action by action; without the ``IF EXISTS`` that is said of its table."""
    begin = at + 1
    while begin < len(upper) and upper[begin] in _BEFORE_NAME:
        begin += 1
    depth = 0
    for n in range(begin, len(upper)):
        depth += {"(": 1, ")": -1}.get(upper[n], 0)
        if depth == 0 and upper[n] == ",":
            yield upper[begin:n]
            begin = n + 1
    yield upper[begin:]


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
        if at + 1 < len(words) and words[at + 1].upper() in _BEHIND_NAME:
            break  # a table called temp or view
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
