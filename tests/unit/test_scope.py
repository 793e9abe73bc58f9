"""Scopes that share a row always overlap: sampled rows are the judge."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from airflow_safe_ops.definition.scope import (
    Scope,
    TableScope,
    TimeScope,
    ValueScope,
    covers,
    from_json,
    gaps,
    overlaps,
    to_json,
)

FIRST = datetime(2026, 1, 1)
COLUMNS = ("day", "region", "source")
Row = dict[str, Any]


def moment(hour: int, kind: str) -> Any:
    """The hour since the first day, as a column of that kind holds it."""
    there = FIRST + timedelta(hours=hour)
    return {"date": there.date(), "timestamp": there, "timestamptz": there.replace(tzinfo=UTC)}[kind]


def time_scope(column: str, kind: Any, lo: int, hi: int) -> TimeScope:
    step = 24 if kind == "date" else 1
    return TimeScope(column, kind, moment(lo * step, kind), moment(hi * step, kind), "Europe/Berlin")


spans = st.tuples(st.integers(0, 12), st.integers(0, 12)).filter(lambda span: span[0] < span[1])
kinds = st.sampled_from(["date", "timestamp", "timestamptz"])
time_scopes = st.builds(
    lambda column, kind, span: time_scope(column, kind, *span), st.sampled_from(COLUMNS[:2]), kinds, spans
)
texts = st.sampled_from([None, "EU", "eu", "US", "", "1", "1.0", "01", "2"])
value_scopes = st.dictionaries(st.sampled_from(COLUMNS[1:]), texts, min_size=1).map(
    lambda d: ValueScope(tuple(d.items()))
)
scopes = st.one_of(time_scopes, value_scopes, st.just(TableScope()))
rows = st.fixed_dictionaries({"day": st.integers(-1, 30), "region": texts, "source": texts})


def belongs(row: Row, scope: Scope) -> bool:
    """Whether a row lies in a scope, where text is compared without case and numbers by value."""
    if isinstance(scope, TimeScope):
        hour = row["day"] * (24 if scope.kind == "date" else 1) if scope.column == "day" else None
        return hour is not None and bool(scope.start <= moment(hour, scope.kind) < scope.end)
    if isinstance(scope, ValueScope):
        return all(alike(row[column], value) for column, value in scope.values)
    return True


def alike(one: str | None, other: str | None) -> bool:
    if one is None or other is None:
        return one is other
    same_number = one.replace(".", "").isdigit() and other.replace(".", "").isdigit() and float(one) == float(other)
    return same_number or one.casefold() == other.casefold()


@given(scopes, scopes, rows)
def test_scopes_that_share_a_row_overlap(one: Scope, other: Scope, row: Row) -> None:
    assert overlaps(one, other) == overlaps(other, one)
    if belongs(row, one) and belongs(row, other):
        assert overlaps(one, other)


@given(kinds, spans, spans)
def test_time_scopes_of_one_column_overlap_only_where_they_share_time(kind: Any, one: Any, other: Any) -> None:
    shared = any(one[0] <= hour < one[1] and other[0] <= hour < other[1] for hour in range(12))
    assert overlaps(time_scope("day", kind, *one), time_scope("day", kind, *other)) == shared


@given(scopes, scopes, rows)
def test_what_covers_overlaps_and_holds_every_row(outer: Scope, inner: Scope, row: Row) -> None:
    assert covers(outer, outer)
    if covers(outer, inner):
        assert overlaps(outer, inner)
        assert belongs(row, outer) or not belongs(row, inner)
        if covers(inner, outer) and isinstance(outer, TimeScope) and isinstance(inner, TimeScope):
            assert (inner.lo, inner.hi) == (outer.lo, outer.hi)


@given(time_scopes, st.lists(time_scopes, max_size=6))
def test_gaps_and_what_is_known_make_the_scope(scope: TimeScope, known: list[TimeScope]) -> None:
    missing = gaps(scope, known)
    same = [k for k in known if (k.column, k.kind) == (scope.column, scope.kind)]
    for gap in missing:
        assert gap.lo < gap.hi
        assert covers(scope, gap)
        assert not any(overlaps(gap, k) for k in same)
        assert (gap.column, gap.kind, gap.timezone) == (scope.column, scope.kind, scope.timezone)
        assert type(gap.start) is type(scope.start)
    assert all(before.hi < after.lo for before, after in pairwise(missing))
    for step in range(12):
        at = moment(step * (24 if scope.kind == "date" else 1), "timestamp")
        if scope.lo <= at < scope.hi:
            assert any(piece.lo <= at < piece.hi for piece in (*missing, *same))


def test_gaps_of_a_scope_that_nothing_covers_is_the_scope() -> None:
    scope = time_scope("day", "date", 0, 3)
    assert gaps(scope, []) == [scope]
    assert gaps(scope, [time_scope("day", "timestamp", 0, 12), time_scope("region", "date", 0, 3)]) == [scope]
    assert gaps(scope, [time_scope("day", "date", 1, 2)]) == [
        time_scope("day", "date", 0, 1),
        time_scope("day", "date", 2, 3),
    ]


any_text = st.text(max_size=8)


@given(
    st.one_of(
        scopes, st.dictionaries(any_text, st.one_of(st.none(), any_text)).map(lambda d: ValueScope(tuple(d.items())))
    )
)
def test_json_goes_there_and_back(scope: Scope) -> None:
    text = to_json(scope)
    assert from_json(text) == scope
    assert to_json(from_json(text)) == text
    assert "\n" not in text


def test_the_json_of_a_ledger_that_is_older_than_the_zone() -> None:
    old = '{"scope":"time","column":"d","kind":"date","start":"2026-01-01","end":"2026-01-02"}'
    assert from_json(old) == TimeScope("d", "date", date(2026, 1, 1), date(2026, 1, 2))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("EU", "eu"),
        ("EU", "EU  "),
        ("Zürich", "Zurich"),
        ("Zu\u0308rich", "Zürich"),
        ("Straße", "STRASSE"),
        ("１２", "12"),  # noqa: RUF001
        ("1", "1.00"),
        ("100", "1e2"),
        ("0", "-0"),
        ("NaN", "nan"),
        ("inf", "Infinity"),
        ("a b", "ab"),
        ("a-b", "a\u200bb"),
        ("İ", "i"),
        (None, None),
        ("1" * 40, "1" * 39 + "2"),
        ("1e9999999", "1E9999999"),
    ],
)
def test_values_that_some_database_takes_for_equal_overlap(one: str | None, other: str | None) -> None:
    """pingcap/tidb#21519: trailing blanks, case, accents and scale decide nothing about who may write."""
    assert overlaps(ValueScope((("c", one),)), ValueScope((("c", other),)))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("EU", "US"),
        ("1", "2"),
        ("1.5", "1.25"),
        (None, "NULL"),
        (None, ""),
        ("2026-01-01", "2026-01-02"),
        ("1e9999999", "1e9999998"),
        ("sNaN", "x"),
        ("Москва", "Казань"),
    ],
)
def test_values_that_no_database_takes_for_equal_do_not(one: str | None, other: str | None) -> None:
    assert not overlaps(ValueScope((("c", one),)), ValueScope((("c", other),)))


@given(any_text, any_text)
@example("1e99999999", "x")
@example("sNaN", "NaN")
def test_any_two_texts_can_be_compared(one: str, other: str) -> None:
    found = overlaps(ValueScope((("c", one),)), ValueScope((("c", other),)))
    assert found == overlaps(ValueScope((("c", other),)), ValueScope((("c", one),)))
    assert found or one.strip().casefold() != other.strip().casefold()


def test_scopes_that_cannot_be_compared_overlap() -> None:
    day, region = time_scope("day", "date", 0, 1), ValueScope((("region", "EU"),))
    others: list[Scope] = [
        TableScope(),
        region,
        time_scope("region", "date", 5, 6),
        time_scope("day", "timestamp", 50, 51),
    ]
    assert all(overlaps(day, other) and overlaps(other, day) for other in others)
    assert overlaps(region, ValueScope((("source", "shop"),)))
    assert not any(covers(day, other) for other in others)
    assert covers(TableScope(), day)
    assert covers(region, ValueScope((("source", "shop"), ("region", "EU"))))
    assert not covers(region, ValueScope((("region", "eu"),)))
