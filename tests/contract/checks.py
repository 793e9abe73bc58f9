"""The contract of checks: audits before readers see anything, post-checks in the load's own transaction."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from airflow_safe_ops import NoDuplicates, NullShare, RowCount, SqlCheck, Sum
from tests.contract.harness import D1, D2, SALES_SQL, sale

if TYPE_CHECKING:
    from airflow_safe_ops.definition.checks import Check
    from tests.contract.harness import Warehouse

ROWS = [sale(D1, 1, "10"), sale(D1, 2, "20.5"), (D1, 2, None)]

PASSING: list[Check] = [
    RowCount(),
    RowCount(min=3, max=3),
    RowCount(min=2, max=2, where="amount IS NOT NULL"),
    RowCount(max=0, where="CAST(id AS text) LIKE '%9%'"),
    Sum("amount", min=30.5, max=30.5),
    Sum("amount", min=0, where="id = 1"),
    NoDuplicates("id", "amount"),
    NoDuplicates("id", where="amount IS NOT NULL"),
    NullShare("amount", max=0.34),
    NullShare("id"),
    SqlCheck("SELECT count(*) = 3 FROM {relation}"),
    SqlCheck("SELECT sum(amount) > 30 FROM {relation}", label="enough"),
]
FAILING: list[Check] = [
    RowCount(min=4),
    RowCount(max=2),
    RowCount(where="id = 9"),
    Sum("amount", min=31),
    Sum("amount", max=30.49),
    Sum("amount", where="id = 9"),
    NoDuplicates("id"),
    NullShare("amount"),
    NullShare("amount", max=0.3),
    SqlCheck("SELECT count(*) = 4 FROM {relation}"),
    SqlCheck("SELECT amount > 0 FROM {relation} WHERE id = 9"),
    SqlCheck("SELECT NULL"),
    SqlCheck("SELECT 1"),
]


class ChecksContract:
    """Pass: recorded. Fail: nothing is published."""

    @pytest.fixture(autouse=True)
    def _sales(self, warehouse: Warehouse) -> None:
        warehouse.sales(ROWS)

    def test_passing_checks_are_recorded(self, warehouse: Warehouse) -> None:
        warehouse.load(audits=PASSING, post_checks=PASSING)
        results = warehouse.ledger("check", "phase, name, passed", "ORDER BY check_id")
        assert results == [(phase, c.name, True) for phase in ("audit", "post_check") for c in PASSING]
        observed = warehouse.ledger("check", "observed, required", "WHERE phase = 'audit' ORDER BY check_id")
        assert observed[4] == ("30.5", "30.5 to 30.5")
        assert len(warehouse.ledger("check", "DISTINCT attempt_id")) == 1

    @pytest.mark.parametrize("check", FAILING, ids=lambda check: f"{check.name}: {check.required}")
    def test_an_audit_that_fails(self, warehouse: Warehouse, check: Check) -> None:
        """
        NULL became 0 and passed on an empty relation; a failure named another check's SQL (apache/airflow#30081,
        apache/airflow#63210, apache/airflow#25163).
        """
        error = warehouse.refused("SO-109", audits=[RowCount(), check])
        assert error.facts["failed"] == [check.name]
        recorded = warehouse.ledger("check", "name, passed", "ORDER BY check_id")
        assert recorded == [(RowCount().name, True), (check.name, False)]

    @pytest.mark.parametrize("check", FAILING, ids=lambda check: f"{check.name}: {check.required}")
    def test_a_post_check_that_fails(self, warehouse: Warehouse, check: Check) -> None:
        warehouse.load()
        warehouse.insert("raw_sales", [sale(D2, 5, "5")])
        error = warehouse.refused("SO-110", audits=[RowCount()], post_checks=[check, RowCount()])
        assert error.facts["failed"] == [check.name]

    def test_all_failures_are_named_at_once(self, warehouse: Warehouse) -> None:
        error = warehouse.refused("SO-109", audits=[RowCount(min=4), RowCount(), Sum("amount", min=31)])
        assert len(error.facts["failed"]) == 2

    def test_an_audit_sees_the_staged_rows_only(self, warehouse: Warehouse) -> None:
        warehouse.insert("sales", [sale(D2, 5, "5")])
        warehouse.load_twice(audits=[RowCount(min=3, max=3)])

    def test_a_post_check_sees_the_partition_as_written(self, warehouse: Warehouse) -> None:
        """Kept rows of a merge are among them; other partitions are not."""
        merge: dict[str, Any] = {"strategy": "merge", "unique_key": ["day", "id"]}
        warehouse.source(sale(D1, 1, "1"), sale(D2, 5, "5"))
        warehouse.load(D2, **merge)
        warehouse.load(D1, **merge)
        warehouse.source(sale(D1, 2, "2"))
        warehouse.load_twice(D1, **merge, audits=[RowCount(max=1)], post_checks=[RowCount(min=2, max=2)])

    def test_an_audit_of_an_empty_day(self, warehouse: Warehouse) -> None:
        """An interval before the source's first day made an empty table and a green run (SQLMesh/sqlmesh#5236)."""
        error = warehouse.refused("SO-109", D2, audits=[RowCount()])
        assert "0" in error.what
        warehouse.load_twice(D2, audits=[RowCount(min=0)])

    @pytest.mark.parametrize("audits", [[RowCount(where="no_such_column = 1")], [SqlCheck("SELECT x FROM {relation}")]])
    def test_a_check_the_database_does_not_know(self, warehouse: Warehouse, audits: list[Check]) -> None:
        warehouse.refused("SO-212", audits=audits)

    @pytest.mark.parametrize("sql", ["DELETE FROM sales", "SELECT true; SELECT true", "TRUNCATE sales"])
    def test_a_check_that_is_not_one_select(self, warehouse: Warehouse, sql: str) -> None:
        warehouse.refused("SO-209", audits=[SqlCheck(sql)])

    def test_a_check_with_a_table_of_its_own(self, warehouse: Warehouse) -> None:
        warehouse.refused("SO-201", audits=[RowCount(table="raw_sales")])

    def test_a_check_from_its_plain_data(self, warehouse: Warehouse) -> None:
        warehouse.load_twice(audits=[check.serialize() for check in PASSING])
        assert len(warehouse.ledger("check", "1")) == 2 * len(PASSING)

    def test_a_failed_load_records_its_checks_with_the_failed_attempt(self, warehouse: Warehouse) -> None:
        warehouse.refused("SO-110", audits=PASSING, post_checks=[RowCount(min=4)])
        recorded = warehouse.ledger("check", "phase, passed, CAST(attempt_id AS text)", "ORDER BY check_id")
        ((failed,),) = warehouse.ledger("attempt", "CAST(attempt_id AS text)")
        assert recorded[-1] == ("post_check", False, failed)
        assert all(passed and of == failed for _, passed, of in recorded[:-1])
        assert warehouse.states() == ["failed"]
        assert warehouse.ledger("attempt", "error_code") == [("SO-110",)]
        warehouse.load_twice(sql=SALES_SQL)
