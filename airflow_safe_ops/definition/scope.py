"""
A resolved partition: exactly which rows of one target a run owns, typed as the column is.

A scope is what is bound in the DELETE, the guards, the counts and the ledger alike. Scopes of one target can
be compared, whatever their size: two loads whose scopes overlap never write at the same time.
"""

from __future__ import annotations

import json
import unicodedata
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any, Literal, TypeAlias

from airflow_safe_ops.definition.grain import midnight, zone

ColumnKind = Literal["date", "timestamp", "timestamptz"]


@dataclass(frozen=True)
class TimeScope:
    """
    A half-open range ``[start, end)`` on one column.

    :param kind: what the column holds: days (``date``), wall clock (``timestamp``) or instants (``timestamptz``).
    :param start: first moment that belongs to it: a date, a naive datetime or a datetime in UTC, as ``kind`` says.
    :param end: first moment after it.
    :param timezone: the zone in which it was drawn; shown in the key of instants.
    """

    column: str
    kind: ColumnKind
    start: date | datetime
    end: date | datetime
    timezone: str = "UTC"

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that decide whether a row belongs to it."""
        return (self.column,)

    @property
    def lo(self) -> datetime:
        """The start as a naive timestamp, comparable among scopes of one column."""
        return _naive(self.start)

    @property
    def hi(self) -> datetime:
        """The end as a naive timestamp, comparable among scopes of one column."""
        return _naive(self.end)

    @property
    def key(self) -> str:
        """How people, the command line and the ledger write it."""
        at = f"@{self.timezone}" if self.kind == "timestamptz" else ""
        return f"{_quoted(self.column)}={self._text(self.start)}..{self._text(self.end)}{at}"

    @property
    def binds(self) -> dict[str, Any]:
        """The names that the author's SQL may use, with their values."""
        return {"partition_start": self.start, "partition_end": self.end}

    def _text(self, bound: date | datetime) -> str:
        if not isinstance(bound, datetime):
            return bound.isoformat()
        if self.kind == "timestamptz":
            local = bound.astimezone(zone(self.timezone))
            begins_a_day = bound == midnight(local.date(), zone(self.timezone))
            return local.date().isoformat() if begins_a_day else local.isoformat()
        is_midnight = (bound.hour, bound.minute, bound.second, bound.microsecond) == (0, 0, 0, 0)
        return bound.date().isoformat() if is_midnight else bound.isoformat()


@dataclass(frozen=True)
class ValueScope:
    """
    The rows in which some columns have fixed values.

    :param values: pairs of column and value; the value as the database writes it (text), None for NULL.
    """

    values: tuple[tuple[str, str | None], ...]

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that decide whether a row belongs to it."""
        return tuple(column for column, _ in self.values)

    @property
    def key(self) -> str:
        """How people, the command line and the ledger write it."""
        return ",".join(
            f"{_quoted(column)}={'NULL' if value is None else _quoted(value)}" for column, value in self.values
        )

    @property
    def binds(self) -> dict[str, Any]:
        """The names that the author's SQL may use, with their values."""
        return dict(self.values)


@dataclass(frozen=True)
class TableScope:
    """Every row of the target."""

    columns: tuple[str, ...] = ()
    key: str = "*"

    @property
    def binds(self) -> dict[str, Any]:
        """The names that the author's SQL may use: none."""
        return {}


Scope: TypeAlias = TimeScope | ValueScope | TableScope


def overlaps(one: Scope, other: Scope) -> bool:
    """
    Whether a row could belong to both scopes of one target.

    Never wrong in the dangerous direction: what cannot be told apart overlaps.
    """
    if isinstance(one, TimeScope) and isinstance(other, TimeScope):
        if one.column != other.column or one.kind != other.kind:
            return True
        return one.lo < other.hi and other.lo < one.hi
    if isinstance(one, ValueScope) and isinstance(other, ValueScope):
        theirs = dict(other.values)
        return not any(column in theirs and _surely_different(value, theirs[column]) for column, value in one.values)
    return True


def covers(outer: Scope, inner: Scope) -> bool:
    """Whether every row of the inner scope surely belongs to the outer one."""
    if isinstance(outer, TableScope):
        return True
    if isinstance(outer, TimeScope) and isinstance(inner, TimeScope):
        same_column = outer.column == inner.column and outer.kind == inner.kind
        return same_column and outer.lo <= inner.lo and inner.hi <= outer.hi
    if isinstance(outer, ValueScope) and isinstance(inner, ValueScope):
        return set(outer.values) <= set(inner.values)
    return False


def gaps(scope: TimeScope, known: list[TimeScope]) -> list[TimeScope]:
    """The parts of a time scope that none of the known ones covers, in order."""
    same = [k for k in known if k.column == scope.column and k.kind == scope.kind]
    missing, at = [], scope.start
    for piece in sorted(same, key=lambda k: k.lo):
        if _naive(at) >= scope.hi:
            break
        if piece.lo > _naive(at):
            end = piece.start if piece.lo < scope.hi else scope.end
            missing.append(TimeScope(scope.column, scope.kind, at, end, scope.timezone))
        if piece.hi > _naive(at):
            at = piece.end
    if _naive(at) < scope.hi:
        missing.append(TimeScope(scope.column, scope.kind, at, scope.end, scope.timezone))
    return missing


def to_json(scope: Scope) -> str:
    """The scope as the ledger keeps it."""
    if isinstance(scope, TimeScope):
        data: dict[str, Any] = {
            "scope": "time",
            "column": scope.column,
            "kind": scope.kind,
            "start": scope.start.isoformat(),
            "end": scope.end.isoformat(),
            "timezone": scope.timezone,
        }
    elif isinstance(scope, ValueScope):
        data = {"scope": "values", "values": [list(pair) for pair in scope.values]}
    else:
        data = {"scope": "table"}
    return json.dumps(data, ensure_ascii=False, sort_keys=True)


def from_json(text: str) -> Scope:
    """The scope that the ledger kept."""
    data = json.loads(text)
    if data["scope"] == "time":
        read = date.fromisoformat if data["kind"] == "date" else datetime.fromisoformat
        return TimeScope(
            data["column"], data["kind"], read(data["start"]), read(data["end"]), data.get("timezone", "UTC")
        )
    if data["scope"] == "values":
        return ValueScope(tuple((column, value) for column, value in data["values"]))
    return TableScope()


def _naive(bound: date | datetime) -> datetime:
    if not isinstance(bound, datetime):
        return datetime(bound.year, bound.month, bound.day)
    return bound.astimezone(UTC).replace(tzinfo=None) if bound.tzinfo else bound


def _quoted(word: str) -> str:
    """As it stands, or as JSON where the command line would read it otherwise."""
    is_plain = word not in ("", "NULL") and word == word.strip() and word.isprintable() and ".." not in word
    return word if is_plain and not set(word) & set(',="[]') else json.dumps(word, ensure_ascii=False)


def _surely_different(one: str | None, other: str | None) -> bool:
    """Different under any collation or numeric scale; NULL differs from every value."""
    if one is None or other is None:
        return (one is None) != (other is None)
    if _folded(one) == _folded(other):
        return False
    try:
        return Decimal(one).normalize() != Decimal(other).normalize()
    except ArithmeticError:  # they are no numbers
        return True


def _folded(value: str) -> str:
    """Letters and digits, without case and accents: what every collation takes for different differs in these."""
    return "".join(c for c in unicodedata.normalize("NFKD", value) if c.isalnum()).casefold()
