"""
What a load should do, in plain Python, from the guide and the README alone.

It shares nothing with the package: it says for each load which refusal is due, or which rows the table holds
afterwards, what was counted, and what the ledger then records. Values are text, as PostgreSQL writes them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field, fields, replace
from decimal import Decimal
from typing import TypeAlias

from tests.crash.days import Period

COLUMNS = ("day", "id", "amount", "note", "seq")
NUMBERS = ("id", "amount", "seq")
Row: TypeAlias = tuple[str | None, ...]
Key: TypeAlias = tuple[object, ...]


@dataclass(frozen=True, repr=False)
class Ask:
    """
    A load as its author declares it.

    :param others: ``not_matched_by_source``.
    :param window: how well its query keeps to the period: ``exact``, or also rows without a day (``nulls``), or
        also those of the day after it (``closed``).
    """

    period: Period
    strategy: str = "delete_insert"
    key: tuple[str, ...] = ()
    others: str = "keep"
    on_key_moved: str = "fail"
    on_empty: str = "fail"
    on_duplicates: str = "fail"
    on_unledgered: str = "fail"
    on_changed: str = "fail"
    window: str = "exact"

    def __repr__(self) -> str:
        said = {f.name: value for f in fields(self)[1:] if (value := getattr(self, f.name)) != f.default}
        return f"Ask({', '.join([repr(self.period), *(f'{name}={value!r}' for name, value in said.items())])})"

    def reads(self, day: str | None) -> bool:
        """Whether its query returns rows of that day."""
        if self.period.holds(day):
            return True
        return day is None if self.window == "nulls" else self.window == "closed" and day == self.period.end

    def key_of(self, row: Row) -> Key:
        """A row's key, as the database compares keys."""
        return values(row, self.key)


@dataclass(frozen=True)
class Record:
    """
    A partition as the ledger has it.

    :param content: the rows as they were counted; None after a load of an overlapping partition.
    :param sure: False where the ledger may as well know no count.
    """

    period: Period
    content: Counter[Key] | None
    state: str = "published"
    sure: bool = True

    @property
    def count(self) -> int | None:
        """How many rows were counted."""
        return None if self.content is None else self.content.total()


@dataclass(frozen=True)
class Table:
    """
    A target and what the ledger knows of it.

    :param index: the columns of its unique index; empty without one.
    """

    index: tuple[str, ...] = ()
    rows: tuple[Row, ...] = ()
    records: dict[str, Record] = field(default_factory=dict)

    def inside(self, period: Period) -> list[Row]:
        """The rows of a period."""
        return [row for row in self.rows if period.holds(row[0])]

    def knows(self, row: Row, period: Period) -> bool:
        """Whether a record answers for a row; for the whole table only a record of all of it does."""
        if period.is_all:
            return "*" in self.records
        return any(record.period.holds(row[0]) for record in self.records.values())


@dataclass(frozen=True)
class Verdict:
    """
    What is due: a refusal, or a table with counts.

    :param changed: None where the guide leaves it open.
    :param met: what the load met on its way, whichever the decision.
    """

    table: Table
    code: str = ""
    counts: dict[str, int] = field(default_factory=dict)
    changed: bool | None = None
    met: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Written:
    """
    The partition after a load.

    :param state: what its record says then; empty where it stays as it is.
    """

    rows: list[Row]
    counts: dict[str, int]
    state: str = "published"


class Refusal(Exception):
    """A load is refused."""


def values(row: Row, columns: Iterable[str] = COLUMNS) -> Key:
    """Some columns as the database compares them: 1.0 is 1.00."""
    return tuple(
        Decimal(value) if value is not None and name in NUMBERS else value
        for name in columns
        for value in (row[COLUMNS.index(name)],)
    )


def judge(table: Table, source: Iterable[Row], ask: Ask) -> Verdict:
    """What one load of the source into the table does."""
    met: set[str] = set()
    read = [row for row in source if ask.reads(row[0])]
    try:
        staged = _latest(read, ask) if ask.on_duplicates == "keep_latest" else read
        met |= _oddities(staged, read, ask)
        _refuse_odd(table, staged, ask, met)
        keys = {ask.key_of(row) for row in staged}
        outside = [row for row in table.rows if not ask.period.holds(row[0])]
        moved = [row for row in outside if ask.key and ask.key_of(row) in keys]
        if moved:
            met.add("moved")
            if ask.on_key_moved == "fail":
                raise Refusal("SO-107")  # noqa: TRY301
        written = STRATEGIES[ask.strategy](table, staged, ask, met)
        outside = [row for row in outside if row not in moved]
        rows = (*outside, *written.rows)
        if _is_broken(rows, table.index):
            raise Refusal(_why(staged, outside, table.index, ask))  # noqa: TRY301
    except Refusal as refusal:
        return Verdict(table, str(refusal), met=frozenset(met))
    counts = {
        "rows_read": len(read),
        "rows_deleted": 0,
        "rows_inserted": 0,
        "rows_updated": 0,
        "rows_moved": len(moved),
        "rows_after": len(written.rows),
        **written.counts,
    }
    content = Counter(map(values, written.rows))
    changed = _changed(table.records.get(ask.period.key), content, counts, ask)
    records = _recorded(table, ask.period, content, written.state, {row[0] for row in moved})
    return Verdict(replace(table, rows=rows, records=records), "", counts, changed, frozenset(met))


def adopt(table: Table, period: Period) -> tuple[Table, str]:
    """Record a partition as it stands; what is said of it."""
    before, rows = table.records.get(period.key), table.inside(period)
    if before is not None and before.state == "published":
        return table, "published"
    if not rows:
        return table, "empty"
    record = Record(period, Counter(map(values, rows)), "adopted")
    return replace(table, records={**table.records, period.key: record}), "adopted"


def invalidate(table: Table, period: Period) -> tuple[Table, dict[str, str]]:
    """Every record that lies in the period holds no longer; what is said of each."""
    records = dict(table.records)
    said = {}
    for key, record in table.records.items():
        if period.covers(record.period):
            said[key] = "missing" if record.state == "missing" else "invalidated"
    for key, outcome in said.items():
        if outcome == "invalidated":
            gone = records[key].period
            records = {k: replace(r, content=None) if r.period.overlaps(gone) else r for k, r in records.items()}
            records[key] = replace(records[key], state="missing")
    return replace(table, records=records), said


def _latest(read: list[Row], ask: Ask) -> list[Row]:
    """Of each key the row with the largest ``seq``; NULL is before every number."""
    groups: dict[Key, list[Row]] = {}
    for row in read:
        groups.setdefault(ask.key_of(row), []).append(row)
    kept = []
    for group in groups.values():
        group.sort(key=_sequence)
        if len(group) > 1 and _sequence(group[-2]) == _sequence(group[-1]):
            raise Refusal("SO-106")
        kept.append(group[-1])
    return kept


def _sequence(row: Row) -> Decimal:
    seq = row[COLUMNS.index("seq")]
    return Decimal("-Infinity") if seq is None else Decimal(seq)


def _oddities(staged: list[Row], read: list[Row], ask: Ask) -> set[str]:
    found = {"empty"} if not staged else set()
    if any(None in row for row in staged):
        found.add("nulls")
    if ask.key and len({ask.key_of(row) for row in read}) < len(read):
        found.add("duplicates")
    return found


def _refuse_odd(table: Table, staged: list[Row], ask: Ask, met: set[str]) -> None:
    """What is refused of the query's rows, and of the partition that is replaced, in the order of the steps."""
    inside = table.inside(ask.period) if ask.strategy != "append_once" else []
    unknown = [row for row in inside if not table.knows(row, ask.period)]
    if unknown:
        met.add("adopted")
    refusals = {
        "SO-103": not ask.period.is_all and any(row[0] is None for row in staged),
        "SO-104": any(row[0] is not None and not ask.period.holds(row[0]) for row in staged),
        "SO-105": any(None in ask.key_of(row) for row in staged),
        "SO-101": ask.on_empty == "fail" and not staged and inside,
        "SO-102": ask.on_unledgered == "fail" and unknown,
        "SO-106": ask.key and len({ask.key_of(row) for row in staged}) < len(staged),
    }
    for code, due in refusals.items():
        if due:
            raise Refusal(code)


def _replaced(table: Table, staged: list[Row], ask: Ask, _met: set[str]) -> Written:
    deleted = len(table.inside(ask.period))
    return Written(staged, {"rows_deleted": deleted, "rows_inserted": len(staged), "rows_unchanged": 0})


def _merged(table: Table, staged: list[Row], ask: Ask, met: set[str]) -> Written:
    there: dict[Key, list[Row]] = {}
    for row in table.inside(ask.period):
        there.setdefault(ask.key_of(row), []).append(row)
    new = {ask.key_of(row): row for row in staged}
    if any(len(there.get(key, ())) > 1 for key in new):
        met.add("duplicates")
        raise Refusal("SO-112")
    unmatched = [row for key, rows in there.items() if key not in new for row in rows]
    inserted = sum(key not in there for key in new)
    unchanged = sum(there.get(key) == [row] for key, row in new.items())
    counts = {
        "rows_deleted": len(unmatched) if ask.others == "delete" else 0,
        "rows_inserted": inserted,
        "rows_updated": len(staged) - inserted - unchanged,
        "rows_unchanged": unchanged,
    }
    return Written([*staged, *([] if ask.others == "delete" else unmatched)], counts)


def _appended(table: Table, staged: list[Row], ask: Ask, met: set[str]) -> Written:
    """Rows are only ever added, and those of one partition once."""
    inside, record = table.inside(ask.period), table.records.get(ask.period.key)
    same = Counter(map(values, inside)) == Counter(map(values, staged))
    if record is None or record.state == "missing" or record.count == 0:
        if not inside:
            return Written(staged, {"rows_inserted": len(staged), "rows_unchanged": 0})
        met.add("adopted")
        if ask.on_unledgered == "fail" or not same:
            raise Refusal("SO-102" if ask.on_unledgered == "fail" else "SO-113")
        return Written(inside, {"rows_unchanged": len(inside)}, "adopted")
    if staged and not inside:
        raise Refusal("SO-114")
    if same and record.count in (None, len(staged)):
        return Written(inside, {"rows_unchanged": len(inside)}, "")
    if ask.on_changed == "fail":
        raise Refusal("SO-113" if staged or not inside else "SO-101")
    return Written(inside, {}, "")


STRATEGIES = {"delete_insert": _replaced, "merge": _merged, "append_once": _appended}


def _is_broken(rows: Iterable[Row], index: tuple[str, ...]) -> bool:
    """A unique index forbids two rows of one key; NULL equals nothing there."""
    keys = [key for row in rows if None not in (key := values(row, index))]
    return bool(index) and len(set(keys)) < len(keys)


def _why(staged: list[Row], outside: list[Row], index: tuple[str, ...], ask: Ask) -> str:
    """What an index on fewer columns than the key has refused, where nothing may be taken out of other partitions."""
    if set(index) < set(ask.key) and ask.on_key_moved == "fail" and ask.strategy != "append_once":
        if _is_broken(staged, index):
            return "SO-106"
        if {values(row, index) for row in staged} & {values(row, index) for row in outside}:
            return "SO-107"
    return "SO-602"


def _recorded(
    table: Table, period: Period, content: Counter[Key], state: str, moved: set[str | None]
) -> dict[str, Record]:
    """
    The ledger's partitions after a load.

    :param moved: the days from which keys were taken.
    """

    def touched(record: Record) -> Record:
        """Another partition of which the load wrote a part: what was counted there is no longer known."""
        if record.period.overlaps(period) or any(record.period.holds(day) for day in moved):
            stays = record.state != "published" and not period.covers(record.period)
            return replace(record, content=None, state=record.state if stays else "published")
        return replace(record, sure=record.sure and None not in moved)

    if not state:
        return table.records
    others = {key: touched(record) for key, record in table.records.items()} if state == "published" else table.records
    return {**others, period.key: Record(period, content, state)}


def _changed(before: Record | None, content: Counter[Key], counts: dict[str, int], ask: Ask) -> bool | None:
    """Whether the partition differs from what was recorded of it."""
    if ask.strategy != "delete_insert":
        wrote = any(counts[name] for name in ("rows_deleted", "rows_inserted", "rows_updated", "rows_moved"))
        return wrote if wrote or before else None
    if before is None or before.content is None:
        return True
    if not before.sure:
        return None
    return before.content != content or counts["rows_deleted"] != content.total()
