"""How a plan and the ledger read."""

from __future__ import annotations

import re
from datetime import timedelta

import pytest

from airflow_safe_ops.report import ledger, plan

LONG = (
    'SELECT "order date", region, SUM(amount) AS revenue FROM raw.orders AS o LEFT JOIN raw.regions AS r '
    "ON r.id = o.region WHERE note <> 'from where  it''s   kept' AND (a IN (SELECT b FROM c WHERE d)) "
    "AND body <> $x$ from  where $x$ GROUP BY 1, 2 ORDER BY 1"
)


def words(sql: str) -> str:
    """The SQL with every stretch of white space outside of literals as one blank."""
    kept = re.findall(r"""'(?:''|[^'])*'|"(?:""|[^"])*"|\$x\$.*?\$x\$|\s+|[^\s'"$]+""", sql)
    return "".join(" " if part.isspace() else part for part in kept).strip()


def test_long_sql_is_broken_between_words_alone() -> None:
    lines = plan.wrapped_sql(LONG, 60)
    assert max(map(len, lines)) <= 60
    assert words("\n".join(lines)) == words(LONG)
    assert [line.split()[0] for line in lines if line.split()[0] in ("FROM", "WHERE", "GROUP", "ORDER")] == [
        "FROM",
        "WHERE",
        "GROUP",
        "ORDER",
    ]


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT a,\n       b  -- the author's own lay-out\nFROM t",
        "SELECT 'a\n  text over two lines'\nFROM t",
        "SELECT 1 -- " + "a comment that is too long to fit " * 4,
        "SELECT '" + "one long literal " * 9 + "'",
    ],
)
def test_what_may_not_be_broken_stays(sql: str) -> None:
    assert "\n".join(plan.wrapped_sql(sql, 60)).split() == sql.split()
    assert len(plan.wrapped_sql(sql, 60)) - sql.count("\n") <= 2


@pytest.mark.parametrize(
    ("keep", "said"),
    [
        (timedelta(days=90), "90 days"),
        (timedelta(weeks=1), "7 days"),
        (timedelta(hours=36), "36 hours"),
        (timedelta(days=1), "1 day"),
        (timedelta(0), "0 days"),
    ],
)
def test_an_age_in_words(keep: timedelta, said: str) -> None:
    assert ledger.age(keep) == said
