"""The rule of each check at its edges, and checks as plain data."""

from __future__ import annotations

import json
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest

from airflow_safe_ops.definition.checks import (
    BUILT_IN,
    Check,
    NoDuplicates,
    NullShare,
    RowCount,
    SqlCheck,
    Sum,
    check_from,
)
from airflow_safe_ops.errors import InvalidArgument

NAN = float("nan")


@pytest.mark.parametrize(
    ("check", "observed", "passes"),
    [
        (RowCount(), 1, True),
        (RowCount(), 0, False),
        (RowCount(), None, False),
        (RowCount(min=0), 0, True),
        (RowCount(max=0), 0, True),
        (RowCount(max=0), 1, False),
        (RowCount(min=2, max=3), 1, False),
        (RowCount(min=2, max=3), 2, True),
        (RowCount(min=2, max=3), 3, True),
        (RowCount(min=2, max=3), 4, False),
        (RowCount(), True, True),
        (Sum("a"), None, False),
        (Sum("a"), 0, True),
        (Sum("a", min=-10), None, False),
        (Sum("a", min=0), 0.0, True),
        (Sum("a", min=0), -0.0, True),
        (Sum("a", min=0), Decimal("-0.01"), False),
        (Sum("a", max=0.3), Decimal("0.3"), True),
        (Sum("a", max=0.3), 0.1 + 0.2, False),
        (Sum("a", max=Decimal("0.3")), 0.3, True),
        (Sum("a", min=1), float("inf"), True),
        (Sum("a", max=1), float("inf"), False),
        (Sum("a", max=1), float("-inf"), True),
        (Sum("a", min=0), NAN, False),
        (Sum("a", max=1), Decimal("NaN"), False),
        (Sum("a"), NAN, False),
        (Sum("a"), timedelta(1), True),
        (Sum("a", min=1), timedelta(1), False),
        (NoDuplicates("a"), 0, True),
        (NoDuplicates("a"), Decimal(0), True),
        (NoDuplicates("a"), 1, False),
        (NoDuplicates("a"), None, False),
        (NullShare("a"), 0, True),
        (NullShare("a"), Decimal("0E-20"), True),
        (NullShare("a"), Decimal("0.00000001"), False),
        (NullShare("a"), None, False),
        (NullShare("a", max=1), 1, True),
        (NullShare("a", max=0.1), Decimal("0.1"), True),
        (NullShare("a", max=Decimal("0.1")), 0.1, True),  # type: ignore[arg-type]
        (SqlCheck("SELECT true"), True, True),
        (SqlCheck("SELECT true"), False, False),
        (SqlCheck("SELECT true"), None, False),
        (SqlCheck("SELECT true"), 1, False),
        (SqlCheck("SELECT true"), "t", False),
    ],
    ids=str,
)
def test_rules(check: Check, observed: Any, passes: bool) -> None:
    """apache/airflow#30081: NULL passes nothing, and a measured 0 is a value."""
    result = check.judge(observed, "audit")
    assert (result.passed, result.observed, result.phase) == (passes, observed, "audit")
    assert str(result) == f"{check.name}: observed {observed!r}, required {check.required}"


@pytest.mark.parametrize(
    ("check", "name", "required"),
    [
        (RowCount(), "RowCount()", "at least 1"),
        (RowCount(min=2, max=3, table="t", where="a > 1"), "RowCount() of t where a > 1", "2 to 3"),
        (RowCount(max=3), "RowCount()", "at most 3"),
        (Sum("a"), "Sum(a)", "a value"),
        (Sum("a", min=Decimal("0.50")), "Sum(a)", "at least 0.50"),
        (NoDuplicates("a", "b", where="c"), "NoDuplicates(a, b) where c", "0 keys that stand more than once"),
        (NullShare("a", max=0.05), "NullShare(a)", "at most 0.05"),
        (SqlCheck("SELECT\n  true"), "SqlCheck(SELECT true)", "true"),
        (SqlCheck("SELECT true", label="sane"), "SqlCheck(sane)", "true"),
    ],
)
def test_names_and_rules_in_words(check: Check, name: str, required: str) -> None:
    assert (check.name, check.required) == (name, required)


ALL = (
    RowCount(),
    RowCount(min=0, max=5, table="t", where="a"),
    Sum("a"),
    Sum("a", min=Decimal("0.10"), max=5, abs_tolerance=0.5, where="b"),
    NoDuplicates("a"),
    NoDuplicates("a", "b", table="t", where="c"),
    NullShare("a"),
    NullShare("a", max=Decimal("0.25")),  # type: ignore[arg-type]
    SqlCheck("SELECT true", label="sane"),
)


@pytest.mark.parametrize("check", ALL, ids=repr)
def test_plain_data_goes_there_and_back(check: Check) -> None:
    data = json.loads(json.dumps(check.serialize()))
    back = check_from(data)
    assert type(back) is type(check)
    assert json.loads(json.dumps(back.serialize())) == data
    assert (back.name, back.required) == (check.name, check.required)
    assert [back.passes(n) for n in (None, 0, Decimal("0.1"), 0.25, 7)] == [
        check.passes(n) for n in (None, 0, Decimal("0.1"), 0.25, 7)
    ]
    assert check_from(check) is check
    assert " at 0x" not in repr(check)


def test_every_kind_is_known_by_its_name() -> None:
    assert {type(check).__name__ for check in ALL} == set(BUILT_IN)


def test_a_key_of_one_column_may_be_text() -> None:
    assert check_from({"check": "NoDuplicates", "key": "order_id"}) == NoDuplicates("order_id")


def test_templates_are_rendered_in_a_copy() -> None:
    def render(text: str) -> str:
        return text.replace("{{ x }}", "5")

    shared = Sum("{{ x }}", min="{{ x }}", where="a > {{ x }}")  # type: ignore[arg-type]
    rendered = shared.rendered(render)
    assert (rendered.name, rendered.passes(5), rendered.passes(4)) == ("Sum(5) where a > 5", True, False)
    assert shared.column == "{{ x }}"
    assert NoDuplicates("a{{ x }}", "b", where="{{ x }}").rendered(render) == NoDuplicates("a5", "b", where="5")
    assert SqlCheck("SELECT {{ x }}").rendered(render) == SqlCheck("SELECT 5")
    assert NullShare("a", max="{{ x }}").rendered(lambda _: "0.5") == NullShare("0.5", max=0.5)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "make",
    [
        NoDuplicates,
        lambda: NoDuplicates(""),
        lambda: NoDuplicates(["a", "b"]),  # type: ignore[arg-type]
        lambda: NullShare("a", max=1.1),
        lambda: NullShare("a", max=-0.1),
        lambda: NullShare("a", max=NAN),
        lambda: NullShare("a", max="much"),  # type: ignore[arg-type]
        lambda: RowCount(min=5, max=4),
        lambda: RowCount(min="many"),  # type: ignore[arg-type]
        lambda: Sum("a", min=0, max=-1),
        lambda: Sum("a", max=-1, min=Decimal(0)),
        lambda: Sum("a", abs_tolerance=timedelta(1)),  # type: ignore[arg-type]
        lambda: check_from({}),
        lambda: check_from({"check": "Nothing"}),
        lambda: check_from({"check": "Sum"}),
        lambda: check_from({"check": "RowCount", "least": 5}),
        lambda: check_from({"check": "NoDuplicates", "key": []}),
        lambda: check_from("RowCount"),  # type: ignore[arg-type]
    ],
)
def test_what_can_never_pass_or_is_no_check_is_refused(make: Any) -> None:
    """astronomer/airflow-guides#396: a bound that cannot be compared is a clear refusal, not a TypeError."""
    with pytest.raises(InvalidArgument, match=r"^SO-201 ") as refused:
        make()
    assert refused.value.fix
