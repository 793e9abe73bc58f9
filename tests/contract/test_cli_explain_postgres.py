"""`airflow safe-ops explain --run`: what the ledger keeps of a failed try, and what is told of it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from airflow_safe_ops import register_rule
from airflow_safe_ops.definition.checks import RowCount
from airflow_safe_ops.failures.registry import forget_rules
from tests.contract.command_line import CONN, everything
from tests.contract.harness import D1, SALES_SQL, run, sale

if TYPE_CHECKING:
    from tests.contract.postgres import PostgresWarehouse

KEPT = "state, failure_class, failure_reason, seconds IS NOT NULL"


@pytest.fixture
def failed(new_postgres: PostgresWarehouse, cli: Any) -> PostgresWarehouse:
    """A day of which the first try was refused, and the names of its run."""
    new_postgres.sales([sale(D1, 1, 5)])
    new_postgres.refused("SO-109", D1, sql=SALES_SQL, audits=[RowCount(min=2)])
    return new_postgres


def names(warehouse: PostgresWarehouse) -> list[str]:
    return list(warehouse.ledger("attempt", "dag_id, run_id, task_id", "ORDER BY started_at")[0])


def test_the_last_failed_try_is_told(failed: PostgresWarehouse, cli: Any) -> None:
    before = everything(failed.database)
    code, out, _ = cli("explain", *CONN, "--run", *names(failed), "--output", "json")
    assert code == 0
    (told,) = json.loads(out)
    assert (told["class"], told["retried"], told["delays"]) == ("data", False, [])
    assert told["reason"].startswith("SO-109")
    text = cli("explain", *CONN, "--run", *names(failed))[1]
    assert "day=2026-01-02..2026-01-03" in text
    assert everything(failed.database) == before


def test_a_run_that_did_not_fail(failed: PostgresWarehouse, cli: Any) -> None:
    dag, _, task = names(failed)
    code, _, err = cli("explain", *CONN, "--run", dag, "another_run", task)
    assert (code, err[:7]) == (1, "SO-705 ")
    assert cli("explain", *CONN, "--run", *names(failed), "--map-index", "3")[0] == 1


def test_the_class_that_the_try_was_given_counts(failed: PostgresWarehouse, cli: Any) -> None:
    """By what the error carried then: its text may say less."""
    failed.database.execute(
        "UPDATE safe_ops.safe_ops_attempt SET error_code = NULL, error_class = 'OperationalError', "
        "error_message = 'gone', failure_class = 'transient', failure_reason = 'the connection was lost'"
    )
    (told,) = json.loads(cli("explain", *CONN, "--run", *names(failed), "-o", "json")[1])
    assert (told["class"], told["reason"], len(told["delays"])) == ("transient", "the connection was lost", 4)


def test_a_later_try_that_published_is_said(failed: PostgresWarehouse, cli: Any) -> None:
    failed.load(D1, sql=SALES_SQL)
    code, out, err = cli("explain", *CONN, "--run", *names(failed))
    assert code == 0
    assert "SO-109" in out
    assert "published" in err


def test_what_the_ledger_keeps_of_a_failure(failed: PostgresWarehouse) -> None:
    """apache/airflow#42553, #31212: attempts are counted in the ledger, each with its class and what it cost."""
    failed.refused("SO-602", D1, sql="SELECT day, id, amount / 0 AS amount FROM raw_sales")
    failed.load(run(D1), sql=SALES_SQL)
    assert failed.ledger("attempt", KEPT, "ORDER BY started_at") == [
        ("failed", "data", "SO-109: A check on the staged rows failed before publication", True),
        ("failed", "data", "a value does not fit", True),
        ("published", None, None, True),
    ]
    assert all(seconds >= 0 for (seconds,) in failed.ledger("attempt", "seconds"))


def cannot_say(error: BaseException) -> bool:
    """A rule's function with a fault."""
    raise RuntimeError(str(error))


def test_a_rule_that_fails_leaves_no_failure_unrecorded(new_postgres: PostgresWarehouse) -> None:
    """The claim is given back, and the partition can be loaded."""
    register_rule("contention", when=cannot_say)
    try:
        new_postgres.sales([sale(D1, 1, 5)])
        new_postgres.refused("SO-109", D1, sql=SALES_SQL, audits=[RowCount(min=2)])
        assert new_postgres.ledger("attempt", KEPT.partition(", failure_reason")[0]) == [("failed", "data")]
        assert new_postgres.ledger("claim", "*") == []
    finally:
        forget_rules()
