"""What can happen to a source, and the loads that may come: drawn by Hypothesis, understood without a database."""

from __future__ import annotations

from typing import Any, TypeAlias

from hypothesis import strategies as st

from tests.crash.days import DAYS, Period, day, month, week
from tests.crash.oracle import COLUMNS, Ask, Row, values

# A change, the row that it is about, and its value.
Change: TypeAlias = tuple[str, int, str | None]

IDS = tuple(str(number) for number in range(1, 8))
AMOUNTS = ("1.0", "1.00", "2.5", "-3", None)
NOTES = ("", "a", "NULL", "é, 'b'", None)
SEQUENCE = ("1", "2", "3", None)

BEGINNING: tuple[Row, ...] = tuple(
    (DAYS[n % len(DAYS)], number, AMOUNTS[n % 4], NOTES[n % 5], "1") for n, number in enumerate(IDS)
)
PERIODS = (
    *(day(number) for number in range(len(DAYS))),
    *(wide(number) for wide in (week, month) for number in (0, 1)),
    *(wide(number) for wide in (week, month) for number in (0, 1)),
    *[Period()] * 3,
)


def changed(source: tuple[Row, ...], change: Change) -> tuple[Row, ...]:
    """The source afterwards; a change of a row that is not there is none."""
    what, number, value = change
    if what in ("heal", "day"):  # rows that move do so in a source that is whole
        source = _healed(source)
    if what == "empty":
        return tuple(row for row in source if row[0] != value)
    if what == "new":
        newest = max(float(row[1]) for row in (*BEGINNING, *source) if row[1] is not None)
        return (*source, (value, str(int(newest) + 1), "4", None, "2"))
    if not source:
        return source
    at = number % len(source)
    row = source[at]
    if what == "copy":
        return (*source, _with(row, "seq", value))
    if what == "null":
        what, value = str(value), None
    elif what == "spell" and row[1] is not None:
        what, value = "id", str(int(float(row[1]))) + str(value)
    return (*source[:at], _with(row, what, value), *source[at + 1 :]) if what in COLUMNS else source


def _with(row: Row, column: str, value: str | None) -> Row:
    return tuple(value if name == column else old for name, old in zip(COLUMNS, row, strict=True))


def _healed(source: tuple[Row, ...]) -> tuple[Row, ...]:
    """Each key once, none of them and no day missing: what a source usually is."""
    whole = {values(row, ("id",)): row for row in BEGINNING}
    return tuple((whole | {values(row, ("id",)): row for row in source if None not in row[:2]}).values())


def _about(what: str, *found: str | None) -> st.SearchStrategy[Change]:
    return st.tuples(st.just(what), st.integers(0, len(IDS)), st.sampled_from(found))


MOVES = _about("day", *DAYS)
KINDS = {
    MOVES: 10,
    _about("heal", None): 6,
    _about("amount", *AMOUNTS): 1,
    _about("note", *NOTES): 1,
    _about("seq", *SEQUENCE): 1,
    _about("spell", "", ".0"): 1,
    _about("null", "day", "id"): 1,
    _about("copy", *SEQUENCE): 1,
    _about("empty", *DAYS): 1,
    _about("new", *DAYS): 1,
}
CHANGES = st.lists(st.one_of([kind for kind, times in KINDS.items() for _ in range(times)]), max_size=3)


def _ask(period: Period, key: tuple[str, ...], **given: Any) -> Ask:
    """What is possible with the strategy, and with or without a key."""
    strategy = given["strategy"]
    if strategy == "merge" and not key:
        key = ("id",)
    if not key:
        given |= {"on_key_moved": "fail", "on_duplicates": "fail"}
    if strategy == "append_once":
        adopts = "fail" if given["on_unledgered"] == "fail" else "adopt"
        given |= {"others": "keep", "on_key_moved": "fail", "on_empty": "fail", "on_unledgered": adopts}
    else:
        given["on_changed"] = "fail"
    return Ask(period, key=key, **given)


ASKS = st.builds(
    _ask,
    period=st.sampled_from(PERIODS),
    key=st.sampled_from(((), ("id",), ("id",), ("id",), ("day", "id"))),
    strategy=st.sampled_from(("delete_insert", "delete_insert", "merge", "merge", "append_once")),
    others=st.sampled_from(("keep", "delete")),
    on_key_moved=st.sampled_from(("fail", "move")),
    on_empty=st.sampled_from(("fail", "replace")),
    on_duplicates=st.sampled_from(("fail", "keep_latest")),
    on_unledgered=st.sampled_from(("replace", "replace", "fail")),
    on_changed=st.sampled_from(("fail", "skip")),
    window=st.sampled_from((*["exact"] * 8, "nulls", "closed")),
)
# Rows that somebody writes by hand.
ROWS = st.lists(
    st.tuples(
        st.sampled_from((*DAYS, None)),
        st.sampled_from((*IDS, None)),
        st.sampled_from(AMOUNTS),
        st.just("by hand"),
        st.just("1"),
    ),
    min_size=1,
    max_size=3,
)
