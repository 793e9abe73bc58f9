"""
Checks: an aggregate and a rule, as data.

One set of classes serves audits before publication, post-checks after it, sensors and reconciliation. Each is
rendered to SQL by the dialect and judged here. ``table=None`` means the relation the check is used on.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from decimal import Decimal
from typing import Any, TypeAlias

from airflow_safe_ops.errors import InvalidArgument

Number: TypeAlias = int | float | Decimal


@dataclass(frozen=True)
class CheckResult:
    """
    What one check saw.

    :param observed: the value as the database gave it; None is NULL or no row.
    :param required: the rule in words.
    """

    name: str
    passed: bool
    observed: Any
    required: str
    phase: str = ""

    def __str__(self) -> str:
        return f"{self.name}: observed {self.observed!r}, required {self.required}"


class Check(ABC):
    """
    The base of every check: which columns it reads, and when its one value passes.

    A check in SQL of your own is a :class:`SqlCheck`; all others are an :class:`Aggregate`.
    """

    @property
    @abstractmethod
    def name(self) -> str:
        """How logs and ledger call it."""

    @property
    @abstractmethod
    def required(self) -> str:
        """The rule in words."""

    @abstractmethod
    def passes(self, observed: Any) -> bool:
        """Whether the value satisfies the rule; None is NULL or no row and passes nothing by itself."""

    def judge(self, observed: Any, phase: str = "") -> CheckResult:
        """The result for one observed value."""
        return CheckResult(self.name, self.passes(observed), observed, self.required, phase)

    def rendered(self, render: Callable[[Any], Any]) -> Check:
        """A copy with its templates rendered."""
        texts = {f.name: getattr(self, f.name) for f in fields(self)}  # type: ignore[arg-type]
        return replace(self, **{n: render(v) for n, v in texts.items() if isinstance(v, str)})  # type: ignore[type-var]

    def serialize(self) -> dict[str, Any]:
        """Plain data, the same at each parse, as Airflow keeps it."""
        data = {f.name: getattr(self, f.name) for f in fields(self)}  # type: ignore[arg-type]
        plain = {n: str(v) if isinstance(v, Decimal) else v for n, v in data.items() if v is not None}
        return {"check": type(self).__name__, **plain}


class Aggregate(Check):
    """A check on one aggregate over the rows of a relation, all of them or those that meet ``where``."""

    table: str | None
    where: str | None

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns the check reads."""
        return ()

    @property
    def name(self) -> str:
        """How logs and ledger call it."""
        relation = f" of {self.table}" if self.table else ""
        filtered = f" where {self.where}" if self.where else ""
        return f"{type(self).__name__}({', '.join(self.columns)}){relation}{filtered}"


@dataclass(frozen=True)
class RowCount(Aggregate):
    """
    The number of rows.

    :param min: smallest number that passes; default 1 when neither bound is given.
    :param max: largest number that passes; default none.
    :param table: another relation than the one the check is used on.
    :param where: an SQL condition that rows must meet to be counted.
    """

    min: int | None = None
    max: int | None = None
    table: str | None = None
    where: str | None = None

    def __post_init__(self) -> None:
        _check_bounds(self, "min", "max")

    @property
    def required(self) -> str:
        """The rule in words."""
        return _range(self._least, self.max)

    @property
    def _least(self) -> int | None:
        return 1 if self.min is None and self.max is None else self.min

    def passes(self, observed: Any) -> bool:
        """Whether the count lies within the bounds."""
        return observed is not None and _within(observed, self._least, self.max)


@dataclass(frozen=True)
class Sum(Aggregate):
    """
    The sum of a numeric column; NULL (no rows, or no value at all) does not pass.

    :param column: the column.
    :param min: smallest sum that passes; default none.
    :param max: largest sum that passes; default none.
    :param abs_tolerance: largest absolute difference of two relations' sums, in the column's unit; used by
        reconciliation.
    :param table: another relation than the one the check is used on.
    :param where: an SQL condition that rows must meet.
    """

    column: str
    min: Number | None = None
    max: Number | None = None
    abs_tolerance: Number | None = None
    table: str | None = None
    where: str | None = None

    def __post_init__(self) -> None:
        _check_bounds(self, "min", "max", "abs_tolerance")

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns the check reads."""
        return (self.column,)

    @property
    def required(self) -> str:
        """The rule in words."""
        return _range(self.min, self.max)

    def passes(self, observed: Any) -> bool:
        """Whether the sum lies within the bounds."""
        return observed is not None and _within(observed, self.min, self.max)


@dataclass(frozen=True, init=False)
class NoDuplicates(Aggregate):
    """
    No two rows have the same key, compared as a tuple; NULL equals NULL here.

    :param key: the key's columns.
    :param table: another relation than the one the check is used on.
    :param where: an SQL condition that rows must meet.
    """

    key: tuple[str, ...]
    table: str | None
    where: str | None

    def __init__(self, *key: str, table: str | None = None, where: str | None = None) -> None:
        if not key:
            raise InvalidArgument("NoDuplicates() names no column.", fix="Name the key's columns.")
        names: tuple[Any, ...] = key
        if not all(isinstance(name, str) and name for name in names):
            raise InvalidArgument(
                f"NoDuplicates{key!r} is no list of column names.",
                fix='Write NoDuplicates("order_id", "line_no").',
            )
        object.__setattr__(self, "key", tuple(key))
        object.__setattr__(self, "table", table)
        object.__setattr__(self, "where", where)

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns the check reads."""
        return self.key

    @property
    def required(self) -> str:
        """The rule in words."""
        return "0 keys that stand more than once"

    def passes(self, observed: Any) -> bool:
        """Whether no key stands twice."""
        return bool(observed == 0)

    def rendered(self, render: Callable[[Any], Any]) -> NoDuplicates:
        """A copy with its templates rendered."""
        table, where = (render(v) if isinstance(v, str) else v for v in (self.table, self.where))
        return NoDuplicates(*(render(c) for c in self.key), table=table, where=where)


@dataclass(frozen=True)
class NullShare(Aggregate):
    """
    The share of rows in which a column is NULL; a relation without rows does not pass.

    :param column: the column.
    :param max: largest share that passes, 0 to 1; default 0.
    :param table: another relation than the one the check is used on.
    :param where: an SQL condition that rows must meet.
    """

    column: str
    max: float = 0.0
    table: str | None = None
    where: str | None = None

    def __post_init__(self) -> None:
        _check_bounds(self, "max")
        if "{{" in str(self.max):
            return
        object.__setattr__(self, "max", float(self.max))
        if not 0 <= self.max <= 1:
            raise InvalidArgument(
                f"NullShare({self.column!r}, max={self.max!r}): a share lies between 0 and 1.",
                fix="Give 0.05 for five percent.",
            )

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns the check reads."""
        return (self.column,)

    @property
    def required(self) -> str:
        """The rule in words."""
        return f"at most {self.max:g}"

    def passes(self, observed: Any) -> bool:
        """Whether the share is small enough."""
        return observed is not None and float(observed) <= self.max


@dataclass(frozen=True)
class SqlCheck(Check):
    """
    One SELECT of your own that returns one value; true passes, everything else (false, NULL, no row) does not.

    :param sql: the SELECT; ``{relation}`` stands for the rows that are checked, and the load's :names may be
        used (templated).
    :param label: a short name for logs and ledger; default: the SQL.
    """

    sql: str
    label: str | None = None

    @property
    def name(self) -> str:
        """How logs and ledger call it."""
        return f"SqlCheck({self.label or ' '.join(self.sql.split())})"

    @property
    def required(self) -> str:
        """The rule in words."""
        return "true"

    def passes(self, observed: Any) -> bool:
        """Whether the value is true."""
        return observed is True


BUILT_IN: Mapping[str, type[Check]] = {cls.__name__: cls for cls in (RowCount, Sum, NoDuplicates, NullShare, SqlCheck)}


def check_from(given: Check | Mapping[str, Any]) -> Check:
    """A check from itself or from what its ``serialize()`` gave."""
    if isinstance(given, Check):
        return given
    anything: Any = given
    data = dict(given) if isinstance(anything, Mapping) else {}
    cls = BUILT_IN.get(data.pop("check", ""))
    if cls is None:
        raise InvalidArgument(f"{given!r} is not a check.", fix=f"Use one of {', '.join(BUILT_IN)}.")
    key = data.pop("key", ()) if cls is NoDuplicates else ()
    key = (key,) if isinstance(key, str) else key
    try:
        return cls(*key, **data)
    except TypeError as error:
        raise InvalidArgument(f"{given!r} is not a check: {error}.") from error


def _within(value: Any, least: Number | None, most: Number | None) -> bool:
    try:
        number = Decimal(int(value) if isinstance(value, bool) else str(value))
    except ArithmeticError:  # an interval, for example: no bound can be compared with it
        return least is None and most is None
    if number.is_nan() or (least is not None and number < Decimal(str(least))):
        return False
    return most is None or number <= Decimal(str(most))


def _check_bounds(check: Check, *names: str) -> None:
    """Refuse bounds that are no numbers, and those that nothing can meet; a template is looked at when rendered."""
    bounds: dict[str, Decimal] = {}
    for name in names:
        given = getattr(check, name)
        if given is None or "{{" in str(given):
            continue
        try:
            bounds[name] = Decimal(str(given))
        except ArithmeticError:
            bounds[name] = Decimal("NaN")
        if bounds[name].is_nan():
            raise InvalidArgument(f"{check.name}: {name}={given!r} is not a number.", fix="Give a number.")
    if {"min", "max"} <= bounds.keys() and bounds["min"] > bounds["max"]:
        raise InvalidArgument(
            f"{check.name}: min={bounds['min']} lies above max={bounds['max']}.",
            fix="No value can pass: swap them.",
        )


def _range(least: Number | None, most: Number | None) -> str:
    if least is not None and most is not None:
        return f"{least} to {most}"
    if least is not None:
        return f"at least {least}"
    return f"at most {most}" if most is not None else "a value"
