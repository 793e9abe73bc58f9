"""A partition as an object, as plain data, and as text on the command line: three forms of one thing."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from airflow_safe_ops.definition.grain import GRAINS, zone
from airflow_safe_ops.definition.identity import RunIdentity
from airflow_safe_ops.definition.notation import partition_from
from airflow_safe_ops.definition.partition import PERIODS, TimePartition, ValuePartition, WholeTable
from airflow_safe_ops.definition.scope import TableScope, TimeScope, ValueScope
from airflow_safe_ops.errors import InvalidPartition, SafeOpsError
from tests.unit.test_grain import ZONES

NOW = datetime(2100, 1, 1, tzinfo=UTC)

names = st.one_of(
    st.text(min_size=1, max_size=8), st.sampled_from(["region", "a=b", "a,b", 'q"q', " x ", "..", "*", "@"])
)
values = st.one_of(names, st.sampled_from(["", "NULL", "EU", "2026-01-01..2026-02-01", "a..b@UTC", '"', "\\"]))
time_partitions = st.builds(
    lambda column, grain, timezone, period, lookback, allow_open, both: TimePartition(
        column, grain, timezone, period, lookback, allow_open, *(both or (None, None))
    ),
    names,
    st.sampled_from(GRAINS),
    st.sampled_from(ZONES),
    st.sampled_from(PERIODS),
    st.integers(0, 99),
    st.booleans(),
    st.one_of(st.none(), st.tuples(st.dates(), st.dates())),
)
scalars = st.one_of(
    st.none(), values, st.booleans(), st.integers(), st.dates(), st.decimals(allow_nan=False), st.uuids()
)
value_partitions = st.builds(ValuePartition, st.dictionaries(names, scalars, min_size=1, max_size=3))


@given(st.one_of(time_partitions, value_partitions, st.just(WholeTable())))
def test_plain_data_goes_there_and_back(partition: Any) -> None:
    data = partition.serialize()
    back = partition_from(json.loads(json.dumps(data)))
    assert type(back) is type(partition)
    assert back.serialize() == data
    assert back.columns == partition.columns
    assert partition_from(partition) is partition


@given(st.one_of(time_partitions, value_partitions))
def test_the_repr_is_the_same_at_each_parse(partition: Any) -> None:
    """Airflow compares what it serialized: an address or the order of a set would make a new version of the DAG."""
    twin = (
        type(partition)(**vars(partition))
        if isinstance(partition, TimePartition)
        else ValuePartition(dict(partition.values))
    )
    assert repr(twin) == repr(partition)
    assert " at 0x" not in repr(partition)
    assert twin == partition
    assert hash(twin) == hash(partition)


def test_a_dict_of_arguments_or_of_columns_is_enough() -> None:
    assert partition_from({"column": "d", "grain": "month"}) == TimePartition("d", grain="month")
    assert partition_from({"region": "EU"}) == ValuePartition(region="EU")
    assert partition_from({"values": "x"}) == ValuePartition(values="x")
    assert partition_from({"type": "table"}) == WholeTable()


def test_values_that_are_no_json_become_text() -> None:
    given_values = {"a": Decimal("1.50"), "b": UUID(int=1), "c": date(2026, 1, 1), "d": True, "e": None}
    data = ValuePartition(given_values).serialize()
    assert data["values"] == {"a": "1.50", "b": str(UUID(int=1)), "c": "2026-01-01", "d": True, "e": None}


@pytest.mark.parametrize(
    ("text", "partition"),
    [
        ("*", WholeTable()),
        (" region = EU ", ValuePartition(region="EU")),
        ("region=EU,source=NULL", ValuePartition(region="EU", source=None)),
        ('region="NULL"', ValuePartition(region="NULL")),
        ('region=""', ValuePartition(region="")),
        ("region=", ValuePartition(region="")),
        ('"a=b"="c,d",e=f=g', ValuePartition({"a=b": "c,d", "e": "f=g"})),
        ('name=O"Brien', ValuePartition(name='O"Brien')),
        ('region="2026-01-01..2026-02-01"', ValuePartition(region="2026-01-01..2026-02-01")),
        ("d=2026-01-01..2026-02-01", TimePartition("d", start="2026-01-01", end="2026-02-01")),
        (
            "d=2026-01-01..2026-02-01@America/New_York",
            TimePartition("d", timezone="America/New_York", start="2026-01-01", end="2026-02-01"),
        ),
        (
            "d=2026-01-01T06:00..2026-01-02@America/New_York",
            TimePartition("d", timezone="America/New_York", start="2026-01-01T11:00:00+00:00", end="2026-01-02"),
        ),
        ('"my day"=2026-01-01..2026-02-01', TimePartition("my day", start="2026-01-01", end="2026-02-01")),
    ],
)
def test_the_form_of_the_command_line(text: str, partition: Any) -> None:
    assert partition_from(text) == partition


@given(st.dictionaries(names, st.one_of(st.none(), values), min_size=1, max_size=3))
@example({"region": 'a"b,c=d'})
@example({"region": "2026-01-01..2026-02-01"})
def test_the_key_of_a_value_scope_is_read_back(pairs: dict[str, str | None]) -> None:
    scope = ValueScope(tuple(pairs.items()))
    back = partition_from(scope.key)
    assert isinstance(back, ValuePartition)
    assert back.values == scope.values


@given(
    names,
    st.sampled_from(ZONES),
    st.sampled_from(["date", "timestamp", "timestamptz"]),
    st.datetimes(datetime(2000, 1, 1), datetime(2050, 1, 1)),
    st.timedeltas(timedelta(microseconds=1), timedelta(days=4000)),
    st.booleans(),
)
def test_the_key_of_a_time_scope_is_read_back(
    column: str, name: str, kind: Any, start: datetime, length: Any, whole_days: bool
) -> None:
    end = start + length
    if whole_days or kind == "date":
        start, end = (datetime(b.year, b.month, b.day) for b in (start, end))
    assume(start < end)
    lo, hi = (typed(bound, kind, name) for bound in (start, end))
    scope = TimeScope(column, kind, lo, hi, name if kind == "timestamptz" else "UTC")
    back = partition_from(scope.key)
    assert isinstance(back, TimePartition)
    assert back.scopes(RunIdentity(), kind, NOW) == (scope,)


def typed(bound: datetime, kind: str, name: str) -> Any:
    if kind == "timestamptz":
        return bound.replace(tzinfo=zone(name)).astimezone(UTC)
    return bound.date() if kind == "date" else bound


def test_two_midnights_of_one_day_have_two_keys() -> None:
    """In Havana 00:00 comes twice in autumn: the two hours are two partitions."""
    four, five, six = (datetime(2023, 11, 5, hour, tzinfo=UTC) for hour in (4, 5, 6))
    first = TimeScope("t", "timestamptz", four, five, "America/Havana")
    second = TimeScope("t", "timestamptz", five, six, "America/Havana")
    assert first.key == "t=2023-11-05..2023-11-05T00:00:00-05:00@America/Havana"
    assert second.key == "t=2023-11-05T00:00:00-05:00..2023-11-05T01:00:00-05:00@America/Havana"


def test_the_key_of_the_whole_table() -> None:
    assert partition_from(TableScope().key) == WholeTable()


@pytest.mark.parametrize(
    "bad",
    [
        "",
        " ",
        "region",
        "region=EU,",
        "=EU",
        ",",
        'region="a" b',
        'region="a',
        "d=2026-01-01..2026-02-01@Nowhere/Land",
        5,
        {},
        {"type": "spiral"},
        {"type": "table", "column": "d"},
        {"column": "d", "grains": "day"},
        {"column": ""},
        {"": "EU"},
        {5: "EU"},
        {"region": ["EU", "US"]},
        {"type": "values", "values": {}},
    ],
    ids=str,
)
def test_what_is_no_partition_is_refused(bad: Any) -> None:
    with pytest.raises(InvalidPartition) as refused:
        partition_from(bad)
    assert_says_what_to_do(refused.value)


@pytest.mark.parametrize(
    "arguments",
    [
        {"column": ""},
        {"column": None},
        {"column": "d", "grain": "minute"},
        {"column": "d", "grain": None},
        {"column": "d", "timezone": "EST5PDT7"},
        {"column": "d", "timezone": ZoneInfo("UTC")},
        {"column": "d", "timezone": None},
        {"column": "d", "period": "manual"},
        {"column": "d", "lookback": -1},
        {"column": "d", "lookback": True},
        {"column": "d", "lookback": 1.5},
        {"column": "d", "lookback": "{{ params.n }}"},
        {"column": "d", "start": "2026-01-01"},
        {"column": "d", "end": "2026-01-01"},
    ],
    ids=str,
)
def test_a_time_partition_is_checked_when_it_is_made(arguments: dict[str, Any]) -> None:
    with pytest.raises(InvalidPartition) as refused:
        TimePartition(**arguments)
    assert_says_what_to_do(refused.value)


def test_a_value_partition_without_a_column_is_refused() -> None:
    with pytest.raises(
        InvalidPartition, match=r"^SO-202 A ValuePartition names no column\. Name one, or say WholeTable"
    ):
        ValuePartition()


def assert_says_what_to_do(error: SafeOpsError) -> None:
    assert str(error).startswith(f"{error.code} {error.what}")
    assert str(error).endswith(error.fix)
    assert error.what
    assert error.fix
