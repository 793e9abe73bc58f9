"""The partitions an author can declare, and which one a run owns."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from datetime import date, datetime, tzinfo
from itertools import pairwise
from typing import Any, Literal, TypeAlias, get_args

from airflow_safe_ops.definition.grain import (
    GRAINS,
    Grain,
    floor,
    following,
    has_changing_offset,
    last_complete,
    midnight,
    preceding,
    utc,
    zone,
)
from airflow_safe_ops.definition.identity import RunIdentity
from airflow_safe_ops.definition.scope import ColumnKind, TimeScope
from airflow_safe_ops.errors import (
    InvalidPartition,
    MisalignedInterval,
    NoLogicalDate,
    OpenPartition,
    UnsupportedPartitionColumn,
    ZeroLengthInterval,
)

Period = Literal["auto", "data_interval", "ending_at_logical_date", "starting_at_logical_date", "partition_date"]
PERIODS: tuple[str, ...] = get_args(Period)
Moment: TypeAlias = str | date | datetime
Render: TypeAlias = Callable[[Any], Any]


@dataclass(frozen=True)
class TimePartition:
    """
    The part of a target that lies in one period of time on one column.

    Which period a run owns depends on the run's dates alone, never on the clock or on what the target holds, so
    a retry, a clear and a backfill of one run own the same rows.

    :param column: the target's column: DATE, timestamp with or without time zone.
    :param grain: ``hour``, ``day``, ``week`` (from Monday), ``month``, ``quarter`` or ``year``; default ``day``.
    :param timezone: IANA name of the zone whose days are meant; default ``UTC``. Days of a change to or from
        summer time have 23 or 25 hours.
    :param period: which period a run owns. ``auto`` (default): the whole grains of a data interval that is not
        empty, else the last complete grain that ends at or before the logical date (for partitioned runs without
        one: the grain of the partition date). Or one of ``data_interval`` (exactly that),
        ``ending_at_logical_date``, ``starting_at_logical_date``, ``partition_date``.
    :param lookback: how many earlier grains each run loads again, oldest first; default 0. Each is a
        partition of its own, with its own claim and its own record.
    :param allow_open: load a partition that has not ended yet; default False.
    :param start: an explicit start instead of ``period``: a date (midnight in ``timezone``) or a datetime with
        zone, as text or object; templates are rendered.
    :param end: the explicit end, exclusive; needed with ``start``.
    """

    column: str
    grain: Grain = "day"
    timezone: str = "UTC"
    period: Period = "auto"
    lookback: int = 0
    allow_open: bool = False
    start: Moment | None = None
    end: Moment | None = None

    def __post_init__(self) -> None:
        _check_time_partition(self)

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that decide whether a row belongs to it."""
        return (self.column,)

    def serialize(self) -> dict[str, Any]:
        """Plain data, the same at each parse, as Airflow keeps it."""
        data = asdict(self)
        data["start"], data["end"] = (_plain(bound) for bound in (self.start, self.end))
        return {"type": "time", **data}

    def rendered(self, render: Render) -> TimePartition:
        """A copy with its templates rendered; the declared object, which tasks may share, stays as it is."""
        texts = ("column", "grain", "timezone", "period", "start", "end")
        return replace(self, **{n: render(v) for n in texts if isinstance(v := getattr(self, n), str)})

    def start_of(self, run: Any) -> str:
        """
        Where the period of a run begins, for templates of writers that are not ours.

        With ``user_defined_macros={"day": DAY}`` on the DAG, ``{{ day.start_of(dag_run) }}`` is where that begins
        which a load or a guard of ``DAY`` owns in that run.

        :param run: Airflow's ``dag_run``.
        :return: a date for whole days, else a moment with the offset of ``timezone``, both as ISO text.
        """
        return self._bounds_of(run)[0]

    def end_of(self, run: Any) -> str:
        """The first moment after it; see :meth:`start_of`."""
        return self._bounds_of(run)[1]

    def _bounds_of(self, run: Any) -> tuple[str, str]:
        tz = zone(self.timezone)
        dates = RunIdentity(
            logical_date=run.logical_date,
            data_interval_start=run.data_interval_start,
            data_interval_end=run.data_interval_end,
            partition_date=getattr(run, "partition_date", None),
        )
        start, end = self._period(dates, tz)
        for _ in range(self.lookback):
            start = preceding(start, self.grain, tz)
        return _day_or_moment(start, tz), _day_or_moment(end, tz)

    def pieces(self, grain: Grain) -> tuple[TimePartition, ...]:
        """
        An explicit range cut into grains of its zone, oldest first.

        :raises InvalidPartition: it has no explicit start and end, or they do not begin a grain.
        """
        tz = zone(self.timezone)
        if self.start is None or self.end is None:
            raise InvalidPartition(f"{self.column}: only a range with a start and an end can be cut into pieces.")
        at, end = _instant(self.start, "start", tz), _instant(self.end, "end", tz)
        for bound in (at, end):
            if bound != floor(bound, grain, tz):
                raise InvalidPartition(
                    f"{self._shown(bound, tz)} does not begin a {grain} in {self.timezone}.",
                    fix=f"Give a start and an end that begin a {grain}, or a shorter grain.",
                )
        found = []
        while at < end:
            after = following(at, grain, tz)
            found.append(replace(self, grain=grain, start=at, end=after))
            at = after
        return tuple(found)

    def scopes(self, run: RunIdentity, kind: ColumnKind, now: datetime) -> tuple[TimeScope, ...]:
        """
        The typed scopes that a run owns, oldest first.

        :param run: the run's dates.
        :param kind: what the column holds, from the catalog.
        :param now: the present, with zone; a scope that ends later is open.
        :raises SafeOpsError: no date, empty or open period, or a column that cannot hold such a period.
        """
        tz = zone(self.timezone)
        start, end = self._period(run, tz)
        self._check_kind(kind, start, end, tz)
        bounds = [end, start]
        for _ in range(self.lookback):
            bounds.append(preceding(bounds[-1], self.grain, tz))
        if end > utc(now, "The present") and not self.allow_open:
            raise OpenPartition(
                f"{self._shown(start, tz)}..{self._shown(end, tz)}@{self.timezone} on {self.column} has not ended yet.",
                start=start,
                end=end,
            )
        return tuple(self._typed(lo, hi, kind, tz) for lo, hi in pairwise(reversed(bounds)))

    def _period(self, run: RunIdentity, tz: tzinfo) -> tuple[datetime, datetime]:
        if self.start is not None and self.end is not None:
            return _instant(self.start, "start", tz), _instant(self.end, "end", tz)
        if self.period in ("auto", "data_interval"):
            interval = self._interval(run, tz)
            if interval:
                return interval
        if self.period == "partition_date" or (self.period == "auto" and run.logical_date is None):
            at = self._date(run.partition_date, "partition date", run)
            start = floor(at, self.grain, tz)
            return start, following(start, self.grain, tz)
        at = self._date(run.logical_date, "logical date", run)
        if self.period == "starting_at_logical_date":
            start = floor(at, self.grain, tz)
            return start, following(start, self.grain, tz)
        return last_complete(at, self.grain, tz)

    def _interval(self, run: RunIdentity, tz: tzinfo) -> tuple[datetime, datetime] | None:
        """The period of the run's data interval; None where ``auto`` has to look at the logical date."""
        lo, hi = run.data_interval_start, run.data_interval_end
        if lo is None or hi is None:
            if self.period == "data_interval":
                raise NoLogicalDate(f"Run {run.run_id!r} of {run.dag_id} has no data interval.", run_id=run.run_id)
            return None
        start, end = utc(lo, "data_interval_start"), utc(hi, "data_interval_end")
        if self.period == "data_interval":
            if start >= end:
                raise ZeroLengthInterval(
                    f"The data interval of run {run.run_id!r} begins and ends at {start.isoformat()}.",
                    start=start,
                    end=end,
                )
            return start, end
        if start >= end:
            return None
        first, last = floor(start, self.grain, tz), floor(end, self.grain, tz)
        return (first, last) if first < last else last_complete(end, self.grain, tz)

    def _date(self, moment: datetime | None, what: str, run: RunIdentity) -> datetime:
        if moment is None:
            raise NoLogicalDate(f"Run {run.run_id!r} of {run.dag_id} has no {what}.", run_id=run.run_id)
        return utc(moment, f"The {what}")

    def _check_kind(self, kind: ColumnKind, start: datetime, end: datetime, tz: tzinfo) -> None:
        if start >= end:
            raise InvalidPartition(
                f"{self.column}: the end {end} does not lie after the start {start}.",
                fix="Give an end after the start; the end itself does not belong to the partition.",
            )
        if self.lookback and start != floor(start, self.grain, tz):
            raise InvalidPartition(
                f"lookback counts whole grains, and {self._shown(start, tz)} does not begin a {self.grain}.",
                fix='Use period="auto" or an aligned start, or leave lookback out.',
            )
        if kind == "date":
            if self.grain == "hour":
                raise UnsupportedPartitionColumn(
                    f"Column {self.column!r} is a DATE, which has no hours.", fix='Use grain="day" or longer.'
                )
            if any(bound != floor(bound, "day", tz) for bound in (start, end)):
                raise MisalignedInterval(
                    f"[{start.isoformat()}, {end.isoformat()}) does not begin and end at midnight in {self.timezone}.",
                    start=start,
                    end=end,
                )
        if kind == "timestamp" and self.grain == "hour" and has_changing_offset(tz, start):
            raise UnsupportedPartitionColumn(
                f"Column {self.column!r} has no time zone, and in {self.timezone} one hour of the year comes twice.",
                why="Both hours have the same wall clock, so their rows cannot be told apart.",
                fix='Store instants (timestamptz), use timezone="UTC", or use grain="day".',
            )

    def _typed(self, start: datetime, end: datetime, kind: ColumnKind, tz: tzinfo) -> TimeScope:
        lo: date | datetime = start
        hi: date | datetime = end
        if kind == "date":
            lo, hi = start.astimezone(tz).date(), end.astimezone(tz).date()
        elif kind == "timestamp":
            lo, hi = (_clock(bound, tz) for bound in (start, end))
        if kind == "timestamp" and lo >= hi:
            raise UnsupportedPartitionColumn(
                f"Column {self.column!r} has no time zone, and {self._shown(start, tz)}..{self._shown(end, tz)} has no "
                f"length on the wall clock of {self.timezone}.",
                fix="Store instants (timestamptz), or use a longer grain.",
            )
        return TimeScope(self.column, kind, lo, hi, self.timezone)

    @staticmethod
    def _shown(moment: datetime, tz: tzinfo) -> str:
        return moment.astimezone(tz).isoformat()


def _day_or_moment(moment: datetime, tz: tzinfo) -> str:
    local = moment.astimezone(tz)
    return local.date().isoformat() if moment == midnight(local.date(), tz) else local.isoformat()


@dataclass(frozen=True, init=False)
class ValuePartition:
    """
    The rows in which some columns have fixed values: ``ValuePartition(region="EU", source="shop")``.

    The values are cast by the database to their columns' types, once; None means NULL.

    :param values: a dict, for columns whose names are no Python names; templates in values are rendered.
    :param columns: the columns with their values, by keyword.
    """

    values: tuple[tuple[str, Any], ...]

    def __init__(self, values: Mapping[str, Any] | None = None, /, **columns: Any) -> None:
        pairs: dict[Any, Any] = {**(values or {}), **columns}
        if not pairs:
            raise InvalidPartition(
                "A ValuePartition names no column.",
                fix="Name one, or say WholeTable() if all rows are meant.",
            )
        for column, value in pairs.items():
            if not isinstance(column, str) or not column:
                raise InvalidPartition(f"{column!r} names no column.", fix="Give the column's name as text.")
            if isinstance(value, list | tuple | set | dict):
                raise InvalidPartition(
                    f"{column}={value!r} is more than one value.",
                    fix="One value a column; expand() the task for more.",
                )
        object.__setattr__(self, "values", tuple(pairs.items()))

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that decide whether a row belongs to it."""
        return tuple(column for column, _ in self.values)

    def serialize(self) -> dict[str, Any]:
        """Plain data, the same at each parse, as Airflow keeps it."""
        return {"type": "values", "values": {column: _plain(value) for column, value in self.values}}

    def rendered(self, render: Render) -> ValuePartition:
        """A copy with its templates rendered."""
        return ValuePartition({c: render(v) if isinstance(v, str) else v for c, v in self.values})

    def __repr__(self) -> str:
        return f"ValuePartition({dict(self.values)!r})"


@dataclass(frozen=True)
class WholeTable:
    """Every row of the target: each run replaces or merges the whole table."""

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that decide whether a row belongs to it: none."""
        return ()

    def serialize(self) -> dict[str, Any]:
        """Plain data, the same at each parse, as Airflow keeps it."""
        return {"type": "table"}

    def rendered(self, _render: Render) -> WholeTable:
        """The same: there is nothing to render."""
        return self


Partition: TypeAlias = TimePartition | ValuePartition | WholeTable


def _check_time_partition(partition: TimePartition) -> None:
    templated = [n for n in ("grain", "timezone", "period") if "{" in str(getattr(partition, n))]
    column: Any = partition.column
    if not isinstance(column, str) or not column:
        raise InvalidPartition(f"column={column!r} names no column.")
    if "grain" not in templated and partition.grain not in GRAINS:
        raise InvalidPartition(f"grain={partition.grain!r} is not one of {', '.join(GRAINS)}.")
    if "period" not in templated and partition.period not in PERIODS:
        raise InvalidPartition(f"period={partition.period!r} is not one of {', '.join(PERIODS)}.")
    if "timezone" not in templated:
        zone(partition.timezone)
    lookback: Any = partition.lookback
    if isinstance(lookback, bool) or not isinstance(lookback, int) or lookback < 0:
        raise InvalidPartition(f"lookback={lookback!r} is not a whole number of earlier grains, 0 or more.")
    if (partition.start is None) != (partition.end is None):
        raise InvalidPartition("start and end are given together or not at all.")


def _clock(moment: datetime, tz: tzinfo) -> datetime:
    """What the wall clock shows; 00:00 at a day's start, also where the clock jumps over it."""
    local = moment.astimezone(tz)
    if moment == midnight(local.date(), tz):
        return datetime(local.year, local.month, local.day)
    return local.replace(tzinfo=None)


def _instant(bound: Moment, what: str, tz: tzinfo) -> datetime:
    if isinstance(bound, datetime):
        return utc(bound, what)
    if isinstance(bound, date):
        return midnight(bound, tz)
    try:
        return midnight(date.fromisoformat(bound), tz)
    except (ValueError, TypeError):
        pass
    try:
        moment = datetime.fromisoformat(bound)
    except (ValueError, TypeError) as error:
        raise InvalidPartition(
            f"{what}={bound!r} is no date and no date with time.",
            fix="Write 2026-01-31, or 2026-01-31T06:00:00+00:00.",
        ) from error
    return utc(moment, what)


def _plain(value: Any) -> Any:
    if isinstance(value, date):
        return value.isoformat()
    return value if value is None or isinstance(value, str | bool | int | float) else str(value)
