"""The oracle of the random histories, by examples that a person can check."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from tests.crash.days import DAYS, Period, day, month, week
from tests.crash.oracle import Ask, Record, Table, adopt, invalidate, judge

if TYPE_CHECKING:
    from tests.crash.oracle import Row, Verdict

ID: dict[str, Any] = {"key": ("id",)}
MERGE: dict[str, Any] = {**ID, "strategy": "merge"}
ONCE: dict[str, Any] = {"strategy": "append_once"}
FIRST = day(0)
WRITES = ("deleted", "inserted", "updated", "moved")


def row(number: int | None, id_: str | None, amount: str | None = "1", *, seq: str | None = "1") -> Row:
    """A row of one of the six days, or of none."""
    return (None if number is None else DAYS[number], id_, amount, None, seq)


def loaded(*rows: Row, period: Period = FIRST, index: tuple[str, ...] = ()) -> Table:
    """A table after a load of a period."""
    return judge(Table(index), rows, Ask(period)).table


def wrote(verdict: Verdict) -> tuple[int, ...]:
    """Rows deleted, inserted, updated and moved."""
    assert not verdict.code
    return tuple(verdict.counts[f"rows_{what}"] for what in WRITES)


def test_periods() -> None:
    assert [p.key for p in (FIRST, week(0), month(1), Period())] == [
        "day=2025-01-30..2025-01-31",
        "day=2025-01-27..2025-02-03",
        "day=2025-02-01..2025-03-01",
        "*",
    ]
    assert week(0).overlaps(month(1))
    assert not week(1).overlaps(month(0))
    assert not day(0).overlaps(day(1))
    assert month(1).covers(week(1))
    assert not month(1).covers(week(0))
    assert Period().covers(month(0))
    assert day(2).before(2) == day(0)
    assert not day(0).holds(None)
    assert Period().holds(None)


def test_a_replacement() -> None:
    table = loaded(row(0, "1"), row(0, "2"))
    again = judge(table, [row(0, "1"), row(0, "2")], Ask(FIRST))
    assert (wrote(again), again.changed) == ((2, 2, 0, 0), False)
    other = judge(table, [row(0, "1", "2")], Ask(FIRST))
    assert (wrote(other), other.changed, other.table.rows) == ((2, 1, 0, 0), True, (row(0, "1", "2"),))


def test_what_a_replacement_takes_for_equal_a_merge_does_not() -> None:
    table, source = loaded(row(0, "1", "1.0")), [row(0, "1", "1.00")]
    assert judge(table, source, Ask(FIRST)).changed is False
    merged = judge(table, source, Ask(FIRST, **MERGE))
    assert (wrote(merged), merged.changed) == ((0, 0, 1, 0), True)


@pytest.mark.parametrize("others", ["keep", "delete"])
def test_a_merge(others: str) -> None:
    table = loaded(row(0, "1"), row(0, "2"), row(0, "3"))
    verdict = judge(table, [row(0, "1"), row(0, "2", "5"), row(0, "4")], Ask(FIRST, **MERGE, others=others))
    assert wrote(verdict) == (int(others == "delete"), 1, 1, 0)
    assert verdict.counts["rows_unchanged"] == 1
    assert len(verdict.table.rows) == (4 if others == "keep" else 3)


def test_a_merge_over_a_key_that_stands_twice() -> None:
    table = loaded(row(0, "1"), row(0, "1.0"))
    assert judge(table, [row(0, "1")], Ask(FIRST, **MERGE)).code == "SO-112"
    assert wrote(judge(table, [row(0, "2")], Ask(FIRST, **MERGE, others="delete"))) == (2, 1, 0, 0)


@pytest.mark.parametrize("strategy", ["delete_insert", "merge"])
def test_a_key_that_moved(strategy: str) -> None:
    table = judge(loaded(row(1, "1"), period=month(0)), [row(1, "1")], Ask(day(1))).table
    source, ask = [row(0, "1.0")], Ask(FIRST, strategy, ("id",))
    refused = judge(table, source, ask)
    assert (refused.code, refused.table) == ("SO-107", table)
    assert "moved" in refused.met
    verdict = judge(table, source, replace(ask, on_key_moved="move"))
    assert (wrote(verdict), verdict.table.rows) == ((0, 1, 0, 1), (row(0, "1.0"),))
    assert {key: record.count for key, record in verdict.table.records.items()} == {
        month(0).key: None,
        day(1).key: None,
        FIRST.key: 1,
    }
    assert judge(table, source, Ask(FIRST, strategy=strategy, key=("day", "id"))).code == ""


@pytest.mark.parametrize(
    ("source", "options", "code"),
    [
        ([row(None, "1")], {"window": "nulls"}, "SO-103"),
        ([row(1, "1")], {"window": "closed"}, "SO-104"),
        ([row(0, None)], ID, "SO-105"),
        ([row(0, "1"), row(0, "1.0")], ID, "SO-106"),
        ([row(0, "1", "1"), row(0, "1", "2")], {**ID, "on_duplicates": "keep_latest"}, "SO-106"),
        ([], {}, "SO-101"),
        ([row(1, "1")], {}, "SO-101"),
        ([row(0, "1"), row(0, "1")], {}, ""),
        ([], {"on_empty": "replace"}, ""),
        ([row(0, "1", seq=None), row(0, "1", seq="2")], {**ID, "on_duplicates": "keep_latest"}, ""),
    ],
)
def test_refusals(source: list[Row], options: dict[str, Any], code: str) -> None:
    assert judge(loaded(row(0, "9")), source, Ask(FIRST, **options)).code == code


def test_the_latest_row_is_kept() -> None:
    source = [row(0, "1", "7", seq="2"), row(0, "1", "8", seq="10"), row(0, "1", "9", seq=None)]
    verdict = judge(Table(), source, Ask(FIRST, **ID, on_duplicates="keep_latest"))
    assert (verdict.counts["rows_read"], verdict.table.rows) == (3, (source[1],))


def test_rows_that_no_record_knows() -> None:
    table = Table(rows=(row(1, "1"), row(2, "2")))
    assert judge(table, [row(1, "1")], Ask(day(1))).code == "SO-102"
    table = judge(table, [row(1, "1")], Ask(day(1), on_unledgered="replace")).table
    assert judge(table, [row(1, "1")], Ask(month(0))).code == ""
    assert judge(table, [row(1, "1")], Ask(week(0))).code == "SO-102"
    assert judge(table, [row(1, "1")], Ask(Period())).code == "SO-102"


def test_the_index_forbids_what_nobody_looked_for() -> None:
    table = loaded(row(1, "1"), period=day(1), index=("id",))
    assert judge(table, [row(0, "1")], Ask(FIRST)).code == "SO-602"
    assert judge(table, [row(0, None), row(0, None)], Ask(FIRST)).code == ""


def test_an_index_on_less_than_the_key() -> None:
    table, both = loaded(row(1, "1"), period=day(1), index=("id",)), ("day", "id")
    assert judge(table, [row(0, "1")], Ask(FIRST, key=both)).code == "SO-107"
    assert judge(table, [row(0, "1")], Ask(FIRST, key=both, on_key_moved="move")).code == "SO-602"
    assert judge(table, [row(0, "1")], Ask(FIRST, **ONCE, key=both)).code == "SO-602"
    source = [row(0, "2"), row(1, "2"), row(1, "1")]
    assert judge(table, source, Ask(month(0), key=both)).code == "SO-106"
    assert judge(table, source[2:], Ask(month(0), key=both)).code == ""
    assert judge(table, [row(0, "1")], Ask(month(0), "merge", both)).code == "SO-602"
    assert judge(table, [row(0, "1")], Ask(month(0), "merge", both, others="delete")).code == ""


def test_loads_that_overlap_forget_counts() -> None:
    table = judge(loaded(row(0, "1")), [row(0, "1")], Ask(month(0))).table
    assert {key: record.count for key, record in table.records.items()} == {FIRST.key: None, month(0).key: 1}
    again = judge(table, [row(0, "1")], Ask(FIRST))
    assert again.changed is True
    assert judge(again.table, [row(0, "1")], Ask(FIRST)).changed is False


@pytest.mark.parametrize(
    ("rows", "source", "options", "code"),
    [
        ([row(0, "1")], [row(0, "1.0")], {}, ""),
        ([row(0, "1")], [row(0, "2")], {}, "SO-113"),
        ([row(0, "1")], [row(0, "2")], {"on_changed": "skip"}, ""),
        ([row(0, "1")], [], {}, "SO-101"),
        ([], [row(0, "1")], {}, "SO-114"),
        ([], [row(0, "1")], {"on_changed": "skip"}, "SO-114"),
    ],
)
def test_appended_once(rows: list[Row], source: list[Row], options: dict[str, Any], code: str) -> None:
    known = loaded(row(0, "1"))
    table = Table(rows=tuple(rows), records=known.records)
    verdict = judge(table, source, Ask(FIRST, **ONCE, **options))
    assert (verdict.code, verdict.table) == (code, table)
    assert code or verdict.changed is False


def test_appended_without_a_record() -> None:
    there, source = Table(rows=(row(0, "1"),)), [row(0, "1")]
    assert wrote(judge(Table(), source, Ask(FIRST, **ONCE))) == (0, 1, 0, 0)
    assert judge(there, source, Ask(FIRST, **ONCE)).code == "SO-102"
    assert judge(there, [row(0, "2")], Ask(FIRST, **ONCE, on_unledgered="adopt")).code == "SO-113"
    adopted = judge(there, source, Ask(FIRST, **ONCE, on_unledgered="adopt"))
    assert (wrote(adopted), adopted.table.records[FIRST.key].state) == ((0, 0, 0, 0), "adopted")


def test_what_a_person_tells_the_ledger() -> None:
    table = Table(rows=(row(0, "1"), row(1, "2")))
    table, said = adopt(table, FIRST)
    assert (said, adopt(table, day(2))[1]) == ("adopted", "empty")
    assert judge(table, [row(0, "1")], Ask(FIRST)).table.records[FIRST.key].state == "published"
    table = judge(table, [row(1, "2")], Ask(day(1), on_unledgered="replace")).table
    assert adopt(table, day(1)) == (table, "published")
    table, of_each = invalidate(table, month(0))
    assert of_each == {FIRST.key: "invalidated", day(1).key: "invalidated"}
    assert set(table.records.values()) == {Record(p, None, "missing") for p in (FIRST, day(1))}
    assert invalidate(table, FIRST)[1] == {FIRST.key: "missing"}
    assert judge(table, [row(0, "1")], Ask(FIRST)).code == ""
    assert judge(table, [row(0, "1")], Ask(FIRST, **ONCE)).code == "SO-102"
