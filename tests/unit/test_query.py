"""The author's SQL: which names are bound, what is left alone, and what is not one SELECT."""

from __future__ import annotations

import re
from typing import Any

import pytest
import sqlalchemy
from hypothesis import given
from hypothesis import strategies as st

from airflow_safe_ops.errors import NotOneSelect, UnknownBind
from airflow_safe_ops.plan.model import Statement, bind
from airflow_safe_ops.sql.query import one_select

NAMES = {"p", "q", "n", "partition_start"}

# What stands where a name is bound. A name behind « » is one that is bound; every :x must be left alone.
BOUND = [
    "SELECT «p», -«p», («p»), a=«p», a<>«q», «p»||«q», «p»::int[], CAST(«p» AS date)",
    "SELECT * FROM t WHERE d >= «partition_start» AND d<«p» AND e BETWEEN «p» AND «q»",
    "SELECT f(a := «p»), f(a=>«q»), f(a :=«p»)",
    "SELECT ARRAY[«p», 2], array [[1, 2], [«p», «q»]], x = ANY(«p»)",
    "SELECT a[(«p»)], a[(«p»):n], a[lower(«p»):n], a[1 + («q»)]",
    "SELECT j ? 'a', j ?| ARRAY[«p»], j ?& «q», j->«p», j->>«q», j#>«p», j #>> «q», j #- «p», j @> «q», j @? '$.a'",
    "SELECT a % «p», a%(«p»), a LIKE '100%' || «q», %s, %(p)s, $1, a$1",
    "SELECT 1 -- :x ; it's\n, «p»",
    "SELECT 1 /* :x ; it's */, «p»",
    "SELECT 1+--:x\n«p»",
    "SELECT 1-/* :x */«p»",
    "SELECT 1 /* a /* :x */ ; it's :x */, «p» /* /*/ :x */ */, «q»",
    "WITH a AS (SELECT «p» AS x), delete AS (SELECT 1) SELECT count(*) delete FROM a, delete",
    "WITH RECURSIVE a(x) AS NOT MATERIALIZED (VALUES («p»)) TABLE a",
    "(SELECT «p») UNION ALL ((SELECT «q»))",
    "VALUES («p»), («q»)",
    "SELECT replace (a, 'x', «p»), extract(epoch FROM b), (SELECT 1 LIMIT «n») FROM t",
    "SELECT a`«p»",
    "SELECT a AS begin, b AS go, CASE WHEN c THEN «p» END FROM t",
    "SELECT INTERVAL '1 day' * «n», TIME '10:30', a AT TIME ZONE 'Europe/Berlin:x', b AT TIME ZONE «p»",
    "select «p» from t tablesample system(«q»)",
]
LEFT_ALONE = [
    "':x'",
    "'it''s :x'",
    "'back\\'",
    r"E'it\'s :x'",
    r"e'\\'",
    "E'a\\\n:x\\''",
    "U&'\\0041:x'",
    "N':x'",
    "x'1F'",
    "date':x'",
    '"a:x"',
    '"a"":x"',
    '"back\\"',
    'U&"d\\0061t:x"',
    "$$ :x ; it's $$",
    "$a$ :x $$ ; $A$ $a$",
    "'$$'",
    "'/*'",
    "'--'",
    "$$/*$$",
    "a[1:n]",
    "a[:n]",
    "a[ :n ]",
    "a[1 :n]",
    "a[b[1]:n]",
    "ARRAY[a[:n]]",
    "(ARRAY[1, 2])[:n]",
    't."array"[:n]',
    "t.array[:n]",
    "a[x::int:n]",
    "'{1}'::int[]",
    "a::numeric(10, 2)::text",
    "10:p",
    "a?b",
    "j ? 'x'",
    "-- :x\n",
    "/* :x */",
    "/*+ hint(:x) */",
]


def marked(text: str) -> str:
    return re.sub("\x00(\\w+)\x00", r"«\1»", text)


def written(text: str) -> str:
    return re.sub(r"«(\w+)»", r":\1", text)


@pytest.mark.parametrize("expected", BOUND)
def test_names_that_are_bound(expected: str) -> None:
    text, used = one_select(written(expected), NAMES)
    assert marked(text) == expected
    assert used == set(re.findall(r"«(\w+)»", expected))


@pytest.mark.parametrize("piece", LEFT_ALONE)
def test_what_is_left_alone(piece: str) -> None:
    text, used = one_select(f"SELECT :p, {piece}, :q", NAMES)
    assert marked(text) == f"SELECT «p», {piece}, «q»"
    assert used == {"p", "q"}


@given(st.lists(st.sampled_from([*LEFT_ALONE, ":p", ":q", "(:n)", "a", "1", "ARRAY[:p]"]), min_size=1, max_size=12))
def test_the_text_comes_out_as_it_went_in(pieces: list[str]) -> None:
    """Whatever stands beside it, a piece means the same; and nothing is lost, added or changed."""
    sql = "SELECT " + " , ".join(pieces)
    text, used = one_select(sql, NAMES)
    assert str(Statement(text, dict.fromkeys(NAMES))) == sql.strip()
    assert used == {n for n, piece in (("p", ":p"), ("q", ":q"), ("n", "(:n)"), ("p", "ARRAY[:p]")) if piece in pieces}


@given(st.text(alphabet="ab:pq'\"$/*-[](),;%?\\ \nE", max_size=40))
def test_any_text_is_understood_or_refused(noise: str) -> None:
    try:
        text, used = one_select("SELECT " + noise, NAMES)
    except (NotOneSelect, UnknownBind):
        return
    back = str(Statement(text, dict.fromkeys(NAMES)))
    if ";" not in noise:
        assert back == f"SELECT {noise}".strip()
    assert used <= NAMES
    assert "\x00" not in back


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("SELECT 1;", "SELECT 1"),
        (" \n;SELECT 1 ; ;\n", "SELECT 1"),
        ("SELECT 1; -- done", "SELECT 1 -- done"),
        ("SELECT 1 -- done;", "SELECT 1 -- done;"),
        ("SELECT 1 /* ; */ ;", "SELECT 1 /* ; */"),
        ("SELECT ';' AS a, $$;$$ AS b;", "SELECT ';' AS a, $$;$$ AS b"),
        ("-- first\nSELECT 1", "-- first\nSELECT 1"),
    ],
)
def test_a_semicolon_or_a_comment_around_it_does_no_harm(sql: str, expected: str) -> None:
    """apache/airflow#25713: the text is never split where a literal holds a semicolon."""
    assert one_select(sql, ())[0] == expected


@pytest.mark.parametrize(
    "sql",
    [
        "",
        " ",
        ";",
        "-- nothing",
        "SELECT 1; SELECT 2",
        "SELECT 1 AS begin; DELETE FROM t",
        "SELECT begin FROM t; WHERE x",
        "SELECT CASE WHEN a THEN 1 END; DROP TABLE t",
        "BEGIN; INSERT INTO t SELECT 1; COMMIT",
        "INSERT INTO t SELECT 1",
        "insert into t values (1)",
        "UPDATE t SET a = 1",
        "DELETE FROM t",
        "/* SELECT */ DELETE FROM t",
        "MERGE INTO t USING s ON true WHEN MATCHED THEN DELETE",
        "TRUNCATE t",
        "CREATE TABLE t AS SELECT 1",
        "COPY t TO STDOUT",
        "CALL f()",
        "DO $$ BEGIN END $$",
        "EXPLAIN SELECT 1",
        "EXPLAIN ANALYZE DELETE FROM t",
        "SET search_path = x",
        "SELECT 1 INTO t",
        "SELECT * INTO TEMP t FROM s",
        "WITH a AS (SELECT 1) SELECT * INTO t FROM a",
        "WITH a AS (SELECT 1) DELETE FROM t",
        "WITH RECURSIVE a(x) AS MATERIALIZED (SELECT 1), b AS (SELECT 2) INSERT INTO t SELECT 1",
        "(DELETE FROM t RETURNING *)",
        "SELECT 'a\x00b'",
    ],
)
def test_what_is_not_one_select(sql: str) -> None:
    """apache/airflow#65040: the operator owns the transaction, so no text may begin or end one."""
    with pytest.raises(NotOneSelect, match=r"^SO-209 The SQL ") as refused:
        one_select(sql, ())
    assert refused.value.fix


def test_an_unknown_name_is_answered_with_the_known_ones() -> None:
    with pytest.raises(UnknownBind, match=r"^SO-210 The SQL uses :day, which has no value\.") as refused:
        one_select("SELECT :p, :day", {"q", "p"})
    assert "Declared here: :p, :q." in str(refused.value)
    assert refused.value.facts == {"name": "day"}
    with pytest.raises(UnknownBind, match="Declared here: none"):
        one_select("SELECT :P", ())


def test_a_name_is_found_by_its_case() -> None:
    assert one_select("SELECT :Größe_1", {"Größe_1"}) == (f"SELECT {bind('Größe_1')}", {"Größe_1"})
    with pytest.raises(UnknownBind):
        one_select("SELECT :größe_1", {"Größe_1"})


@pytest.mark.parametrize(
    ("sql", "theirs"),
    [
        ("SELECT ':p', :q", {"p", "q"}),
        ('SELECT "a :p", :q', {"p", "q"}),
        ("SELECT :q -- :p", {"p", "q"}),
        ("SELECT :q /* :p */", {"p", "q"}),
        ("SELECT $$ :p $$, :q", {"p", "q"}),
        ("SELECT a[:p], :q", {"p", "q"}),
        ("SELECT a::text, :q", {"q"}),
    ],
)
def test_where_sqlalchemy_takes_more_for_names(sql: str, theirs: set[str]) -> None:
    """Why `text()` is not used: it looks at characters, so a colon in a literal becomes a value that nobody gave."""
    found: Any = sqlalchemy.text(sql)
    assert set(found.compile().params) == theirs
    assert one_select(sql, {"p", "q"})[1] == {"q"}
