"""The contract of the ledger: what every try wrote, committed with the data or not at all."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from airflow_safe_ops import TimePartition
from tests.contract.harness import D0, D1, D2, SALES_SQL, run, sale

if TYPE_CHECKING:
    from tests.contract.harness import Warehouse

DIVIDED = SALES_SQL.replace("amount FROM", "1 / amount AS amount FROM")


class LedgerContract:
    """Three writes: started with the claim, published with the data, failed after the rollback."""

    def test_who_loaded_what(self, warehouse: Warehouse) -> None:
        warehouse.sales([sale(D1, 1, "1"), sale(D1, 2, "2")])
        context = run(D1, run_id="manual__x", try_number=3, map_index=4, dag_id="shop.eu", task_id="g.load")
        context["dag_run"].clear_number = 2
        summary = warehouse.load(context)
        columns = "dag_id, task_id, map_index, run_id, run_type, try_number, clear_number, user_name, strategy, state"
        expected = ("shop.eu", "g.load", 4, "manual__x", "scheduled", 3, 2, "ops", "delete_insert", "published")
        assert warehouse.ledger("attempt", columns) == [expected]
        assert warehouse.ledger("attempt", "logical_date") == [(context["dag_run"].logical_date,)]
        counts = "rows_read, rows_deleted, rows_inserted, rows_after, changed"
        assert warehouse.ledger("attempt", counts) == [(2, 0, 2, 2, True)]
        (attempt,) = warehouse.ledger("attempt", "CAST(attempt_id AS text), started_at <= finished_at, seconds >= 0")
        assert attempt == (summary["partitions"][0]["attempt_id"], True, True)

    def test_the_code_that_ran_is_recorded(self, warehouse: Warehouse) -> None:
        """A re-run used old code though the latest was asked for (apache/airflow#67657, apache/airflow#49639)."""
        warehouse.sales([sale(D1, 1, "1")])
        warehouse.load(run(D1, code_version="abc123"))
        warehouse.load(run(D1, code_version="def456"), sql=f"{SALES_SQL} AND id > 0")
        rows = warehouse.ledger("attempt", "code_version, sql_hash", "ORDER BY started_at")
        assert [version for version, _ in rows] == ["abc123", "def456"]
        assert rows[0][1] != rows[1][1]

    def test_parameters_are_recorded_and_secrets_are_not(self, warehouse: Warehouse) -> None:
        warehouse.sales([sale(D1, 1, "1")])
        warehouse.load(parameters={"least": 5, "password": "hunter2-x"})
        ((text,),) = warehouse.ledger("attempt", "parameters")
        assert '"least": 5' in text
        assert "hunter2-x" not in text

    def test_each_try_is_an_attempt_and_a_partition_has_one_row(self, warehouse: Warehouse) -> None:
        """
        One death was counted as several tries (apache/airflow#42553); a reprocessed partition got a second run
        beside the failed one (apache/airflow#68618).
        """
        warehouse.sales([sale(D1, 1, "0")])
        for number in (1, 2):
            warehouse.refused("SO-602", run(D1, try_number=number), sql=DIVIDED)
        warehouse.load(run(D1, try_number=3))
        tries = warehouse.ledger("attempt", "try_number, state, error_code", "ORDER BY started_at")
        assert tries == [(1, "failed", "SO-602"), (2, "failed", "SO-602"), (3, "published", None)]
        (partition,) = warehouse.ledger("partition", "attempt_id, state")
        (last,) = warehouse.ledger("attempt", "attempt_id, state", "WHERE try_number = 3")
        assert partition == last

    def test_a_failed_reload_leaves_the_record_of_what_stands(self, warehouse: Warehouse) -> None:
        """Marks were cleared before the reload, and another process filled the gap (SQLMesh/sqlmesh#5285)."""
        warehouse.sales([sale(D1, 1, "1")])
        warehouse.load()
        recorded = warehouse.ledger("partition", "*")
        warehouse.source(sale(D1, 1, "0"))
        warehouse.refused("SO-602", sql=DIVIDED)
        assert warehouse.ledger("partition", "*") == recorded
        ((code, name, message),) = warehouse.ledger(
            "attempt", "error_code, error_class, error_message", "WHERE state = 'failed'"
        )
        assert (code, name) == ("SO-602", "StatementRefused")
        assert message.startswith("SO-602 ")

    def test_a_window_before_the_target_s_first_day_is_no_other_partition(self, warehouse: Warehouse) -> None:
        warehouse.sales([sale(D0, 1, "1"), sale(D1, 2, "2"), sale(D2, 3, "3")])
        for day in (D2, D0, D1, D0):
            warehouse.load(day)
        keys = [key for key, *_ in warehouse.partitions()]
        assert keys == ["day=2026-01-01..2026-01-02", "day=2026-01-02..2026-01-03", "day=2026-01-03..2026-01-04"]

    def test_what_is_committed_is_there_for_everybody(self, warehouse: Warehouse) -> None:
        """Green task, no rows: the connection was closed without a commit (apache/airflow#10838)."""
        warehouse.sales([sale(D1, 1, "1")])
        warehouse.load()
        assert warehouse.rows("sales") == [sale(D1, 1, "1")]
        assert warehouse.states() == ["published"]

    # --- changed or not ---------------------------------------------------------------------------------------

    @pytest.mark.parametrize("checksum", ["auto", "full"])
    def test_an_equal_reload_says_unchanged(self, warehouse: Warehouse, checksum: str) -> None:
        warehouse.sales([sale(D1, 1, "1"), sale(D1, 2, "2"), (D1, 3, None)])
        first, second = warehouse.load_twice(checksum=checksum)
        assert (first["changed"], second["changed"]) == (True, False)
        assert warehouse.ledger("attempt", "changed", "ORDER BY started_at") == [(True,), (False,)]

    @pytest.mark.parametrize(
        "rows",
        [
            [(D1, 1, 1), (D1, 2, 3)],
            [(D1, 1, 1), (D1, 2, None)],
            [(D1, 1, 1)],
            [(D1, 1, 1), (D1, 2, 2), (D1, 2, 2)],
            [(D1, 1, 1), (D1, 2, 2), (D1, 9, 9), (D1, 9, 9)],
            [(D1, 2, 1), (D1, 1, 2)],
        ],
    )
    def test_any_other_reload_says_changed(self, warehouse: Warehouse, rows: list[tuple[Any, ...]]) -> None:
        """A doubled row cancels in an XOR, and a sum of columns does not see two swapped values."""
        warehouse.sales([(D1, 1, 1), (D1, 2, 2)])
        warehouse.load()
        warehouse.source(*rows)
        assert warehouse.load()["changed"] is True
        warehouse.source((D1, 1, 1), (D1, 2, 2))
        assert warehouse.load()["changed"] is True

    def test_the_order_of_rows_does_not_matter(self, warehouse: Warehouse) -> None:
        warehouse.sales([(D1, n, n) for n in range(50)])
        warehouse.load()
        warehouse.source(*((D1, n, n) for n in reversed(range(50))))
        assert warehouse.load()["changed"] is False

    def test_doubled_rows_are_in_the_checksum(self, warehouse: Warehouse) -> None:
        warehouse.sales([(D1, 1, 1), (D1, 1, 1)])
        first, second = warehouse.load_twice()
        assert (first["changed"], second["changed"]) == (True, False)

    @pytest.mark.parametrize(
        "options", [{"checksum": "off"}, {"checksum": "key", "unique_key": ["id"]}], ids=["off", "key"]
    )
    def test_what_cannot_be_told_is_a_change(self, warehouse: Warehouse, options: dict[str, Any]) -> None:
        """Without a checksum of all that was written nothing says that it is the same."""
        warehouse.sales([(D1, 1, 1)])
        warehouse.load(**options)
        warehouse.source((D1, 1, 2))
        assert warehouse.load(**options)["changed"] is True
        assert warehouse.rows("sales") == [(D1, 1, 2)]

    def test_another_checksum_setting_is_another_checksum(self, warehouse: Warehouse) -> None:
        warehouse.sales([(D1, 1, 1)])
        warehouse.load()
        assert warehouse.load(checksum="off")["changed"] is True
        assert warehouse.load(checksum="full")["changed"] is True
        assert warehouse.load()["changed"] is False

    # --- what is announced --------------------------------------------------------------------------------------

    def test_the_summary_is_small_plain_data(self, warehouse: Warehouse) -> None:
        import json

        warehouse.sales([sale(D1, 1, "1")])
        summary = warehouse.load()
        assert len(json.dumps(summary)) < 8192
        assert (summary["rows_read"], summary["rows_after"], summary["changed"]) == (1, 1, True)
        assert summary["partitions"][0]["partition"] == "day=2026-01-02..2026-01-03"

    def test_rows_that_vanished_are_a_change(self, warehouse: Warehouse) -> None:
        """Somebody deleted the day by hand, and now the source is empty too: readers saw another table before."""
        warehouse.sales([sale(D1, 1, "1")])
        warehouse.load()
        warehouse.execute("DELETE FROM sales")
        warehouse.source()
        assert warehouse.load(on_empty="replace")["changed"] is True
        assert warehouse.load(on_empty="replace")["changed"] is False

    def test_a_load_by_another_column_makes_the_counts_unknown(self, warehouse: Warehouse) -> None:
        """The rows of a day by one column may be rows of any day by another."""
        columns = {"ordered": "date", "shipped": "date", "id": "int", "amount": "int"}
        warehouse.create("raw_orders", columns, [(D0, D1, 1, 10)])
        warehouse.create("orders", columns)
        columns_sql = "SELECT ordered, shipped, id, amount FROM raw_orders WHERE {0} >= :partition_start AND "
        loads = {
            name: {
                "table": "orders",
                "partition": TimePartition(name),
                "sql": columns_sql.format(name) + f"{name} < :partition_end",
                "on_unledgered": "replace",
            }
            for name in ("ordered", "shipped")
        }
        warehouse.load(D0, **loads["ordered"])
        warehouse.execute("UPDATE raw_orders SET amount = 15")
        assert warehouse.load(D1, **loads["shipped"])["changed"] is True
        warehouse.execute("UPDATE raw_orders SET amount = 10")
        assert warehouse.load(D0, **loads["ordered"])["changed"] is True
        assert warehouse.rows("orders") == [(D0, D1, 1, 10)]

    @pytest.mark.parametrize("emit", [True, False])
    def test_an_unchanged_reload_may_hold_its_events_back(self, warehouse: Warehouse, emit: bool) -> None:
        from airflow.sdk import Asset

        warehouse.sales([sale(D1, 1, "1")])
        asset = Asset("sales")
        announced = []
        for clear_number in (0, 0, 1):
            operator = warehouse.operator(outlets=[asset], emit_unchanged=emit)
            event = SimpleNamespace(extra=None)
            operator.execute({**run(D1, clear_number=clear_number), "outlet_events": {asset: event}})
            announced.append((bool(operator.outlets), event.extra and event.extra["rows_after"]))
        # The second try of one run tells what the first one changed: that one may have died before it told.
        assert announced == [(True, 1), (True, 1), (True, 1) if emit else (False, None)]

    @pytest.mark.parametrize(
        "options",
        [{}, {"strategy": "merge", "unique_key": ["id"]}, {"strategy": "append_once", "on_unledgered": "adopt"}],
        ids=["delete_insert", "merge", "append_once"],
    )
    def test_a_ledger_from_a_backup_that_was_made_during_a_load(
        self, warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch, options: dict[str, Any]
    ) -> None:
        """It holds the claim of a load that is long over, and the attempt without its end."""
        monkeypatch.setenv("AIRFLOW__SAFE_OPS__CLAIM_GRACE", "1")
        warehouse.sales([sale(D1, 1, "1"), sale(D1, 2, "2")])
        warehouse.load(D0, **options)
        backups: list[Any] = []
        runner = warehouse.runner(run(D1), **options)

        def back_up(step: str, when: str) -> None:
            if (step, when) == ("target.insert", "after"):
                backups.append(warehouse.backup_ledger())

        runner.observe = back_up
        runner.execute()
        warehouse.restore_ledger(backups[0])
        assert len(warehouse.claims()) == 1
        warehouse.load_twice(D1, **{"on_unledgered": "replace", **options})
        assert warehouse.rows("sales") == [sale(D1, 1, "1"), sale(D1, 2, "2")]
        assert warehouse.states() == ["published", "started", "published", "published"]
