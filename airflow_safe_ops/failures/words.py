"""
Codes that stand in words: the last resort for errors that carry none, and what a person pastes.

Words quote rows and names of other people, which may look like a code. So an error's words count only where a driver
or a wrapper wrote them, in the form that it writes; what it quotes, and the statement behind it, is passed over.
"""

from __future__ import annotations

import errno
import re
import socket
from collections.abc import Collection, Iterator
from functools import cache

MYSQL = frozenset({"MySQLdb", "aiomysql", "asyncmy", "mysql", "pymysql"})
DATABRICKS = frozenset({"databricks", "pyspark"})
_WRITERS = (
    *("aiohttp", "airflow", "asyncpg", "botocore", "google", "httpx", "ibm_db", "ibm_db_dbi", "jaydebeapi"),
    *(
        "kubernetes",
        "oracledb",
        "psycopg",
        "psycopg2",
        "psycopg_pool",
        "py4j",
        "pymssql",
        "pyodbc",
        "requests",
        "snowflake",
    ),
    *("sqlalchemy", "sqlite3", "tenacity", "trino", "urllib", "urllib3", *MYSQL, *DATABRICKS),
)
_ERRNO = r"\[Errno (-?\d+)\]"
_LEADS = r"\A(?:[\w.$ ]+: )*"
_CONDITION = _LEADS + r"\[([A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+)(?:\.[A-Z0-9_]+)*\]"
_BARE_CONDITION = _LEADS + r"(PERMISSION_DENIED): "
_SQLSTATE = r"SQLSTATE[\s:=\[(]{0,3}([0-9A-Z]{5})\b"
# On words whose quoted values are blank.
_FORMS: tuple[tuple[str, str], ...] = (
    ("mysql", r"(?:^|INFO - )ERROR (\d{4}) \([0-9A-Z]{5}\)"),
    ("http", r"\b([45]\d\d) (?:Client|Server) Error\b"),
    ("http", r"\A([45]\d\d):[A-Z]"),
    ("http", r"(?i)\bstatus[ _]code ?[:=] ?([45]\d\d)\b"),
    ("http", r"\bHTTP(?:/[\d.]{1,3})?(?: [Ee]rror)? ([45]\d\d)\b"),
)
_QUOTED_FORMS: tuple[tuple[str, str], ...] = (
    ("http", r"(?:Client|Server) error '([45]\d\d) [A-Z]"),
    ("run", r"\b(?:result_state|life_cycle_state|termination_code)['\"]? ?[:=] ?['\"]?([A-Z]+(?:_[A-Z]+)*)\b"),
)
_SNOWFLAKE_FORMS: tuple[tuple[str, str], ...] = (("sqlstate", r"\A\d{6} \(([0-9A-Z]{5})\): "),)
_SQLITE_FORMS: tuple[tuple[str, str], ...] = (("sqlite", r"\b(SQLITE_[A-Z_]{1,40})\b"),)
_MYSQL_FORMS: tuple[tuple[str, str], ...] = (("mysql", r"\A\((\d{4}), "), ("mysql", r"\A(\d{4}) \([0-9A-Z]{5}\): "))
# What only a person pastes, and only where nothing better is known.
_LOOSE_FORMS: tuple[tuple[str, str], ...] = (
    *_SQLITE_FORMS,
    ("databricks", r"\[([A-Z][A-Z0-9]{0,40}_[A-Z0-9_]{1,80})(?:\.[A-Z0-9_]{1,80})?\]"),
    ("databricks", r"(?<![\w.])(DELTA_[A-Z0-9_]{1,80})\b(?!\.\w)"),
    ("http", r"(?i)\bstatus[\s:=]{1,3}([45]\d\d)\b"),
    ("tls", r"\b(CERTIFICATE_VERIFY_FAILED)\b"),
    ("dns", r"\b(EAI_[A-Z]{1,20})\b"),
    ("errno", r"\b(E[A-Z2]{3,14})\b"),
)
# What PostgreSQL writes behind ERROR, FATAL or PANIC, in its logs, in psql and in dbt, without a SQLSTATE.
_SERVER_LINE = r"\b(?:ERROR|FATAL|PANIC): +(.{1,300})"
_SERVER_WORDS: tuple[tuple[str, str], ...] = (
    ("40P01", r"deadlock detected"),
    ("40001", r"could not serialize access"),
    ("55P03", r"canceling statement due to lock timeout|could not obtain lock"),
    ("57014", r"canceling statement due to (?:statement timeout|user request)"),
    ("57P01", r"terminating connection due to administrator command"),
    ("57P03", r"the database system is (?:starting up|shutting down|in recovery mode|not yet accepting connections)"),
    ("25P03", r"terminating connection due to idle-in-transaction timeout"),
    ("53300", r"sorry, too many clients already|remaining connection slots are reserved|too many connections"),
    ("53100", r".*No space left on device"),
    ("53200", r"out of memory"),
    ("28P01", r"password authentication failed"),
    ("28000", r"no pg_hba\.conf entry|role +does not exist|role +is not permitted to log in"),
    ("42501", r"permission denied|must be owner of"),
    ("25006", r"cannot execute \S+.* in a read-only transaction"),
    ("42P01", r"relation +does not exist"),
    ("42703", r"column +.*does not exist"),
    ("42883", r"function .*does not exist"),
    ("3D000", r"database +does not exist"),
    ("42601", r"syntax error at"),
    ("23505", r"duplicate key value violates unique constraint"),
    ("23503", r".*violates foreign key constraint"),
    ("23502", r"null value in column"),
    ("23514", r".*violates check constraint"),
    ("22P02", r"invalid input syntax"),
    ("22012", r"division by zero"),
    ("22003", r".*out of range"),
    ("22001", r"value too long for type"),
)
_EAI = {value: name for name, value in vars(socket).items() if name.startswith("EAI_")}
_KNOWN_ERRNOS = frozenset(errno.errorcode.values())


@cache
def _compiled(form: str) -> re.Pattern[str]:
    """At the first failure, not when a DAG file is parsed."""
    return re.compile(form, re.MULTILINE)


def codes_said(text: str, names: Collection[str]) -> tuple[str, ...]:
    """
    Every code that an error's words name, ``kind:code``, the most exact first.

    :param names: ``module.Class`` of its class and all bases; they say who wrote the words.
    """
    told = _own_words(text)
    plain = without_values(told)
    found: list[str] = []
    if is_writer(names):
        roots = {name.partition(".")[0] for name in names}
        found += _found(_MYSQL_FORMS, told) if roots & MYSQL else ()
        found += _found(_SNOWFLAKE_FORMS, told) if "snowflake" in roots else ()
        found += _found(_SQLITE_FORMS, plain) if "sqlite3" in roots else ()
        found += _conditions(told, is_surely=bool(roots & DATABRICKS))
        found += [f"sqlstate:{state}" for state in _compiled(_SQLSTATE).findall(plain)[-1:]]
        found += [*_found(_QUOTED_FORMS, told), *_found(_FORMS, plain)]
    if is_writer(names) or "builtins.OSError" in names:
        found += _system(plain)
    return tuple(dict.fromkeys(found))


def codes_pasted(text: str) -> tuple[str, ...]:
    """Every code that a text names of which nobody knows who wrote it."""
    plain = without_values(text)
    found = [*codes_said(text, ("airflow.AirflowException",)), *_server(plain), *_found(_LOOSE_FORMS, plain)]
    return tuple(dict.fromkeys(found))


def _server(plain: str) -> Iterator[str]:
    for said in _compiled(_SERVER_LINE).findall(plain):
        yield from (f"sqlstate:{state}" for state, words in _SERVER_WORDS if _compiled(words).match(said))


def own_code(text: str) -> str:
    """The code of an error of ours at the head of a line, or behind a name or a log's prefix; "" where none is."""
    said = _compiled(r"(?:^|: |[\])] | - )(SO-\d{3})(?=[\s:]|$)").search(without_values(text))
    return said[1] if said else ""


def is_writer(names: Collection[str]) -> bool:
    """Whether a driver or a wrapper wrote the words: a library that is known for it, or any driver after PEP 249."""
    return any(
        name.partition(".")[0] in _WRITERS or name.startswith("Airflow") or name.endswith(".DatabaseError")
        for name in names
    )


def without_values(text: str) -> str:
    """The text with blanks for what it quotes, each as long as what was there."""
    quoted = _compiled(r"(?<!\w)(['\"`])[^\n]{0,500}?\1(?!\w)")
    return quoted.sub(lambda found: " " * len(found[0]), text)


def without_statements(text: str) -> str:
    """A pasted text without the statements, parameters and rows that stand in it, up to the next empty line."""
    return _compiled(r"(?s)(?:\[SQL:|\[parameters:|== SQL ==|\bDETAIL:).*?(?:\n[ \t]*\n|\Z)").sub("\n", text)


def _own_words(text: str) -> str:
    return _compiled(r"\[SQL:|\[parameters:|== SQL ==|\bDETAIL:").split(text, maxsplit=1)[0]


def _conditions(text: str, *, is_surely: bool) -> Iterator[str]:
    """What Databricks puts first; a wrapper's brackets are that only with a SQLSTATE, or by a name that says so."""
    found = _compiled(_CONDITION).match(text)
    if found and (is_surely or found[1].startswith("DELTA_") or "SQLSTATE" in text):
        yield f"databricks:{found[1]}"
    elif bare := _compiled(_BARE_CONDITION).match(text):
        yield f"databricks:{bare[1]}"


def _found(forms: tuple[tuple[str, str], ...], text: str) -> Iterator[str]:
    for kind, form in forms:
        for code in _compiled(form).findall(text):
            if kind != "errno" or code in _KNOWN_ERRNOS:
                yield f"{kind}:{code}"


def _system(text: str) -> Iterator[str]:
    """As the operating system, the resolver and TLS write it."""
    yield from (f"tls:{reason}" for reason in _compiled(r"\[SSL: ([A-Z_]{1,60})\]").findall(text))
    for said in _compiled(_ERRNO).findall(text):
        number = int(said[:6])
        name = _EAI.get(number) if number < 0 else errno.errorcode.get(number)
        if name:
            yield f"{'dns' if number < 0 else 'errno'}:{name}"
