"""Each refusal refuses at one and passes at none."""

from __future__ import annotations

from typing import Any

import pytest

from airflow_safe_ops import errors
from airflow_safe_ops.definition.checks import NullShare, RowCount
from airflow_safe_ops.errors import SafeOpsError
from airflow_safe_ops.plan import refusals
from tests.load_tasks import DAY

SAMPLES: list[dict[str, Any]] = [{"order_date": "2026-01-02", "order_id": 7}, {"order_date": None, "order_id": 8}]
GOOD = {
    "rows_staged": 1200,
    "null_in_partition": 0,
    "rows_outside": 0,
    "null_key_0": 0,
    "null_key_1": 0,
    "rows_before": 5,
    "unledgered": False,
    "keys_moved": 0,
    "rows_deleted": 5,
    "rows_inserted": 1200,
    "rows_after": 1200,
}
KEY = ("order_id", "line_no")
GUARDS: list[tuple[Any, dict[str, Any], type[SafeOpsError], str]] = [
    (refusals.no_null_in_partition(DAY), {"null_in_partition": 1}, errors.NullInPartition, "1 of 1,200 staged rows"),
    (refusals.no_rows_outside(DAY), {"rows_outside": 1}, errors.RowsOutsidePartition, "2026-01-01..2026-01-02"),
    (refusals.no_null_in_key(KEY), {"null_key_0": 1}, errors.NullInKey, "order_id (1 rows)"),
    (refusals.no_null_in_key(KEY), {"null_key_1": 1}, errors.NullInKey, "line_no (1 rows)"),
    (refusals.no_duplicates(KEY, "Twice the"), {"duplicate_keys": True}, errors.DuplicateKeys, "(order_id, line_no)"),
    (refusals.no_duplicates(KEY, "Twice the"), {"duplicate_keys": 1}, errors.DuplicateKeys, "Twice the unique_key"),
    (
        refusals.no_accidental_empty(DAY.key, "t"),
        {"rows_staged": 0, "rows_before": 1},
        errors.EmptySource,
        "has rows",
    ),
    (refusals.only_ledgered_rows(DAY, "t"), {"unledgered": True}, errors.UnledgeredRows, "order_date=2026-01-01"),
    (refusals.no_moved_keys(KEY), {"keys_moved": 1}, errors.KeysMoved, "1 staged keys (order_id, line_no)"),
    (refusals.rows_as_written(DAY.key, "t", keeps=False), {"rows_after": 1201}, errors.OtherWriter, "holds 1,201 rows"),
    (refusals.rows_as_written(DAY.key, "t", keeps=False), {"rows_after": 1199}, errors.OtherWriter, "left 1,200"),
    (
        refusals.rows_as_written(DAY.key, "t", keeps=False),
        {"rows_inserted": 1199, "rows_after": 1199},
        errors.OtherWriter,
        "holds 1,199 rows",
    ),
    (refusals.rows_as_written(DAY.key, "t", keeps=True), {"rows_after": 1201}, errors.OtherWriter, "left 1,200"),
    (refusals.checks_pass({"c": RowCount(max=4)}, "audit"), {"c": 5}, errors.AuditFailed, "observed 5"),
    (refusals.checks_pass({"c": RowCount(max=4)}, "post_check"), {"c": 5}, errors.PostCheckFailed, "at most 4"),
    (refusals.checks_pass({"c": RowCount(max=4)}, "audit"), {}, errors.AuditFailed, "observed None"),
]


@pytest.mark.parametrize(("refusal", "facts", "error", "says"), GUARDS)
def test_a_guard_refuses_at_one(refusal: Any, facts: dict[str, Any], error: type[SafeOpsError], says: str) -> None:
    found = refusal({**GOOD, **facts}, SAMPLES)
    assert type(found) is error
    assert says in str(found)
    assert str(found).startswith(error.code)


@pytest.mark.parametrize("refusal", [refusal for refusal, *_ in GUARDS])
def test_a_guard_passes_at_none(refusal: Any) -> None:
    assert refusal({**GOOD, "c": 4}, []) is None


def test_an_empty_partition_may_stay_empty() -> None:
    assert refusals.no_accidental_empty(DAY.key, "t")({"rows_staged": 0, "rows_before": 0}, []) is None


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        ({"rows_before": 5, "rows_deleted": 2, "rows_inserted": 4}, 7),
        ({"rows_before": 5, "rows_inserted": 4}, 9),
        ({"rows_before": 0, "rows_inserted": 0}, 0),
    ],
)
def test_what_a_merge_keeps_is_counted(facts: dict[str, Any], expected: int) -> None:
    refusal = refusals.rows_as_written(DAY.key, "t", keeps=True)
    assert refusal({**facts, "rows_after": expected}, []) is None
    assert refusal({**facts, "rows_after": expected + 1}, []) is not None


def test_facts_are_attributes_and_samples_are_shown() -> None:
    found = refusals.no_rows_outside(DAY)({**GOOD, "rows_outside": 37}, SAMPLES)
    assert found is not None
    assert found.facts == {"rows": 37, "staged": 1200, "partition": DAY.key}
    assert "For example: order_date=2026-01-02, order_id=7; order_date=None, order_id=8." in str(found)
    assert refusals.shown([]) == ""


def test_every_check_is_judged_and_every_failure_named() -> None:
    """apache/airflow#25163: each check has its own value, and the message names the one that failed."""
    facts: dict[str, Any] = {"audit_0": 0, "audit_1": 5, "audit_2": None}
    checks = {"audit_0": RowCount(), "audit_1": RowCount(), "audit_2": NullShare("a")}
    found = refusals.checks_pass(checks, "audit")(facts, [])
    assert found is not None
    assert found.facts["failed"] == ["RowCount()", "NullShare(a)"]
    assert [result.passed for result in facts["checks"]] == [False, True, False]
    refusals.checks_pass({"audit_1": RowCount()}, "post_check")(facts, [])
    assert [result.phase for result in facts["checks"]] == ["audit"] * 3 + ["post_check"]
