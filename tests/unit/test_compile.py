"""From a statement to what the driver takes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_safe_ops.errors import UnsupportedConnection
from airflow_safe_ops.plan.model import Statement, bind
from airflow_safe_ops.sql.dialect import dialect_for
from airflow_safe_ops.sql.postgres import Postgres

COMMENT = "/* 100% */ "
compiled = Postgres().compile


def test_percent_signs_are_doubled_only_where_something_is_bound() -> None:
    assert compiled(Statement("SELECT 'a%', 5 % 2", {"p": 1}), COMMENT) == ("/* 100% */ SELECT 'a%', 5 % 2", None)
    text, values = compiled(Statement(f"SELECT 'a%' || {bind('p')}", {"p": 1}), COMMENT)
    assert (text, values) == ("/* 100%% */ SELECT 'a%%' || %(p)s", {"p": 1})


def test_what_is_used_is_passed_and_nothing_else() -> None:
    binds = {"p": 1, "q": None, "unused": 3}
    text, values = compiled(Statement(f"SELECT {bind('p')}, {bind('q')}, {bind('p')}", binds), "")
    assert (text, values) == ("SELECT %(p)s, %(q)s, %(p)s", {"p": 1, "q": None})


@given(st.lists(st.one_of(st.sampled_from(["p", "q"]), st.text("%s(p):'\n", max_size=6).map(lambda t: f" {t}"))))
def test_formatting_gives_the_text_back(pieces: list[str]) -> None:
    """A driver that formats the text puts exactly the values where they belong."""
    values = {"p": "«p»", "q": "«q»"}
    statement = Statement("".join(bind(p) if p in values else p for p in pieces), values)
    text, used = compiled(statement, COMMENT)
    expected = COMMENT + "".join(values.get(piece, piece) for piece in pieces)
    assert (text % used if used is not None else text) == expected
    assert (used or {}).keys() == values.keys() & set(pieces)


def test_a_connection_without_a_dialect_is_refused() -> None:
    assert isinstance(dialect_for("postgresql"), Postgres)
    with pytest.raises(UnsupportedConnection, match=r"^SO-307 There is no dialect for 'sqlite' connections") as refused:
        dialect_for("sqlite")
    assert "postgresql" in refused.value.fix
