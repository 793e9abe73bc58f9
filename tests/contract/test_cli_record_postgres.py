"""`airflow safe-ops adopt` and `ledger invalidate` against a real database."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest

from tests.contract.command_line import CONN, everything, json_of
from tests.contract.harness import D0, D1, D2, D3, SALES_SQL, run, sale
from tests.crash.harness import eventually

if TYPE_CHECKING:
    from tests.contract.postgres import PostgresWarehouse

SALES = (*CONN, "--table", "sales")
DAYS = "day=2026-01-01..2026-01-05"
KEYS = [f"day=2026-01-0{n}..2026-01-0{n + 1}" for n in range(1, 5)]
ONCE: dict[str, Any] = {"strategy": "append_once"}


@pytest.fixture
def held(new_postgres: PostgresWarehouse) -> PostgresWarehouse:
    """A table with rows of three days out of four, and no ledger."""
    rows = [sale(D0, 1, "1"), sale(D1, 2, "2"), sale(D1, 3, "3"), sale(D3, 4, "4")]
    new_postgres.sales(rows, held=rows)
    return new_postgres


def adopt(cli: Any, *more: str) -> list[tuple[str, str, int | None]]:
    return noted(cli("adopt", *SALES, *more, "--output", "json"))


def invalidate(cli: Any, *more: str) -> list[tuple[str, str, int | None]]:
    return noted(cli("ledger", "invalidate", *SALES, *more, "--reason", "a fix", "--output", "json"))


def noted(said: Any) -> list[tuple[str, str, int | None]]:
    return [(line["partition"], line["outcome"], line["rows"]) for line in json_of(said)]


def test_adopted_days_are_like_loaded_ones(held: PostgresWarehouse, cli: Any) -> None:
    tables = held.snapshot()
    found = adopt(cli, "--partitions", DAYS, "--grain", "day", "--reason", "taken over")
    assert found == list(zip(KEYS, ["adopted", "adopted", "empty", "adopted"], [1, 2, 0, 1], strict=True))
    assert held.snapshot() == tables
    assert [(key, state, rows) for key, state, rows, *_ in held.partitions()] == [
        (KEYS[0], "adopted", 1), (KEYS[1], "adopted", 2), (KEYS[3], "adopted", 1)
    ]  # fmt: skip
    assert held.ledger("attempt", "DISTINCT strategy, state, reason, run_type, dag_id") == [
        ("adopt", "adopted", "taken over", "cli", "safe-ops")
    ]
    assert held.claims() == []
    assert held.load(D1)["changed"] is False
    assert held.snapshot() == tables
    assert [state for _, state, *_ in held.partitions()] == ["adopted", "published", "adopted"]


def test_a_load_that_was_waited_for_is_not_turned_into_an_adoption(held: PostgresWarehouse, cli: Any) -> None:
    """It was not recorded yet when the adoption first looked."""
    cli("ledger", "init", *CONN)
    slow = SALES_SQL.replace(" FROM", " FROM (SELECT pg_sleep(1.5)) AS s,", 1)
    with ThreadPoolExecutor(1) as other:
        load = other.submit(lambda: held.operator(sql=slow, on_unledgered="replace").execute(run(D1)))
        assert eventually(held.claims)
        assert adopt(cli, "--partitions", KEYS[1]) == [(KEYS[1], "published", 2)]
        load.result(20)
    assert [(key, state) for key, state, *_ in held.partitions()] == [(KEYS[1], "published")]
    assert held.states() == ["published"]
    assert held.claims() == []


def test_without_adoption_they_are_refused(held: PostgresWarehouse, cli: Any) -> None:
    cli("ledger", "init", *CONN)
    error = held.refused("SO-102", D1)
    assert "airflow safe-ops adopt" in error.fix


@pytest.mark.parametrize("partition", ["*", "day=2026-01-01..2027-01-01"])
def test_a_whole_table_at_once(held: PostgresWarehouse, cli: Any, partition: str) -> None:
    """Days of it are loaded afterwards; what was not loaded stays adopted."""
    assert adopt(cli, "--partitions", partition) == [(partition, "adopted", 4)]
    held.source(sale(D1, 2, "22"))
    held.load(D1)
    assert held.rows("sales") == [sale(D0, 1, "1"), sale(D1, 2, "22"), sale(D3, 4, "4")]
    states = {key: (state, rows) for key, state, rows, *_ in held.partitions()}
    assert states == {partition: ("adopted", None), KEYS[1]: ("published", 1)}
    assert adopt(cli, "--partitions", partition) == [(partition, "adopted", 3)]


def test_an_adopted_partition_is_appended_once(held: PostgresWarehouse, cli: Any) -> None:
    """Rows of another process, then `append_once`: nothing is doubled."""
    held.refused("SO-102", D1, **ONCE)
    adopt(cli, "--partitions", DAYS, "--grain", "day")
    held.load_twice(D1, **ONCE)
    held.load(D2, **ONCE)
    assert len(held.rows("sales")) == 4
    held.source(sale(D1, 2, "2"))
    held.refused("SO-113", D1, **ONCE)


def test_adopting_twice_counts_again_and_leaves_loads_alone(held: PostgresWarehouse, cli: Any) -> None:
    adopt(cli, "--partitions", DAYS, "--grain", "day")
    held.load(D1)
    published = held.partitions()[1]
    held.insert("sales", [sale(D0, 9, "9")])
    found = adopt(cli, "--partitions", DAYS, "--grain", "day")
    assert [outcome for _, outcome, _ in found] == ["adopted", "published", "empty", "adopted"]
    assert held.partitions()[1] == published
    assert held.partitions()[0][:3] == (KEYS[0], "adopted", 2)


def test_a_dry_run_records_nothing(held: PostgresWarehouse, cli: Any) -> None:
    """Before there is a ledger, and then."""
    before = everything(held.database)
    assert adopt(cli, "--partitions", "*", "--dry-run") == [("*", "adopted", 4)]
    assert everything(held.database) == before
    adopt(cli, "--partitions", KEYS[0])
    before = everything(held.database)
    found = adopt(cli, "--partitions", DAYS, "--grain", "day", "--dry-run")
    assert [outcome for _, outcome, _ in found] == ["adopted", "adopted", "empty", "adopted"]
    assert invalidate(cli, "--partitions", DAYS, "--dry-run") == [(KEYS[0], "invalidated", 1)]
    assert everything(held.database) == before


@pytest.mark.parametrize(
    ("partitions", "code"),
    [
        (["nowhere=2026-01-01..2026-01-02"], "SO-302"),
        (["2026-01-01"], "SO-202"),
        (["day=2026-01-01..2026-01-15", "--grain", "month"], "SO-202"),
        (["day=2026-01-01..2026-01-02", "--grain", "hour"], "SO-208"),
        (["id=x"], "SO-602"),
    ],
)
def test_what_is_no_partition(held: PostgresWarehouse, cli: Any, partitions: list[str], code: str) -> None:
    exit_code, out, err = cli("adopt", *SALES, "--partitions", *partitions)
    assert (exit_code, out, err[:6]) == (1, "", code)
    assert held.partitions() == []


def test_adoption_waits_for_a_load(held: PostgresWarehouse, cli: Any) -> None:
    """A load that runs has not published yet: its rows are not counted before."""
    adopt(cli, "--partitions", KEYS[0])
    inside, go_on = threading.Event(), threading.Event()
    runner = held.runner(D1, on_unledgered="replace")

    def stand(step: str, when: str) -> None:
        if (step, when) == ("target.delete", "after"):
            inside.set()
            assert go_on.wait(30)

    runner.observe = stand
    load = threading.Thread(target=runner.execute)
    load.start()
    assert inside.wait(30)
    threading.Timer(0.5, go_on.set).start()
    assert adopt(cli, "--partitions", "*") == [("*", "adopted", 4)]
    load.join()
    (adopted,) = held.ledger("attempt", "started_at", "WHERE partition_key = '*'")
    (finished,) = held.ledger("attempt", "finished_at", "WHERE strategy = 'delete_insert'")
    assert adopted[0] > finished[0]


def test_an_invalidated_day_is_loaded_again(held: PostgresWarehouse, cli: Any) -> None:
    for day in (D0, D1, D3):
        held.load(day, on_unledgered="replace")
    held.execute("UPDATE sales SET amount = 99 WHERE id = 2")
    assert invalidate(cli, "--partitions", KEYS[1]) == [(KEYS[1], "invalidated", 2)]
    assert [(state, rows) for _, state, rows, *_ in held.partitions()] == [
        ("published", 1), ("missing", None), ("published", 1)
    ]  # fmt: skip
    assert held.ledger("attempt", "partition_key, reason, run_type", "WHERE state = 'invalidated'") == [
        (KEYS[1], "a fix", "cli")
    ]
    assert held.claims() == []
    shown = json_of(cli("ledger", "show", *SALES, "--partition", KEYS[1], "--output", "json"))
    assert [(line["state"], line["reason"]) for line in shown] == [("published", None), ("invalidated", "a fix")]
    assert held.load(D1)["changed"] is True
    assert held.partitions()[1][:3] == (KEYS[1], "published", 2)


def test_after_a_manual_fix_the_rows_may_be_adopted(held: PostgresWarehouse, cli: Any) -> None:
    held.load(D1, on_unledgered="replace")
    held.execute("DELETE FROM sales WHERE id = 3")
    invalidate(cli, "--partitions", KEYS[1])
    assert adopt(cli, "--partitions", KEYS[1]) == [(KEYS[1], "adopted", 1)]


def test_invalidated_appended_rows(held: PostgresWarehouse, cli: Any) -> None:
    """Deleted by hand, they are appended again; left where they are, they are not doubled."""
    held.execute("DELETE FROM sales")
    held.load(D1, **ONCE)
    held.execute("DELETE FROM sales")
    held.refused("SO-114", D1, **ONCE)
    invalidate(cli, "--partitions", DAYS)
    assert held.load(D1, **ONCE)["rows_inserted"] == 2
    invalidate(cli, "--partitions", DAYS)
    held.refused("SO-102", D1, **ONCE)
    assert len(held.rows("sales")) == 2


def test_one_slice_is_invalidated(held: PostgresWarehouse, cli: Any) -> None:
    options = {
        **ONCE,
        "unique_key": ["id"],
        "partition": "*",
        "sql": "SELECT * FROM raw_sales WHERE id = :source_slice",
    }
    held.execute("DELETE FROM sales")
    for name in ("1", "2"):
        held.load(**options, source_slice=name)
    assert invalidate(cli, "--partitions", "*", "--source-slice", "2") == [("* [2]", "invalidated", 1)]
    assert [(key, state, rows) for key, state, rows, *_ in held.partitions()] == [
        ("* [1]", "published", 1), ("* [2]", "missing", None)
    ]  # fmt: skip


def test_a_month_is_invalidated_with_its_days(held: PostgresWarehouse, cli: Any) -> None:
    """What lies in it becomes missing; what only overlaps it loses its counts; a load of all of it heals all."""
    adopt(cli, "--partitions", "*")
    adopt(cli, "--partitions", DAYS, "--grain", "day")
    found = invalidate(cli, "--partitions", "day=2026-01-01..2026-01-03")
    assert found == [(KEYS[0], "invalidated", 1), (KEYS[1], "invalidated", 2)]
    states = {key: (state, rows) for key, state, rows, *_ in held.partitions()}
    assert states == {
        "*": ("adopted", None), KEYS[0]: ("missing", None), KEYS[1]: ("missing", None), KEYS[3]: ("adopted", 1)
    }  # fmt: skip
    held.load(D1)
    now = {key: state for key, state, *_ in held.partitions()}
    assert now == {"*": "adopted", KEYS[0]: "missing", KEYS[1]: "published", KEYS[3]: "adopted"}
    held.load(partition="*", sql="SELECT * FROM raw_sales")
    assert {state for _, state, *_ in held.partitions()} == {"published"}


def test_nothing_to_invalidate(held: PostgresWarehouse, cli: Any) -> None:
    adopt(cli, "--partitions", KEYS[0])
    before = everything(held.database)
    code, out, err = cli("ledger", "invalidate", *SALES, "--partitions", KEYS[1], "--reason", "x")
    assert (code, out) == (1, "")
    assert "no record" in err
    code, _, err = cli("ledger", "invalidate", *SALES, "--partitions", KEYS[0], "--reason", " ")
    assert (code, err[:6]) == (1, "SO-201")
    assert everything(held.database) == before


def test_tables_for_people(held: PostgresWarehouse, cli: Any) -> None:
    code, out, err = cli("adopt", *SALES, "--partitions", DAYS, "--grain", "day")
    assert code == 0
    assert [line.split() for line in out.splitlines() if KEYS[1] in line] == [[KEYS[1], "|", "adopted", "|", "2"]]
    assert "1 hold no rows" in err
    code, out, _ = cli("ledger", "show", *SALES)
    assert code == 0
    assert out.count("adopted") == 3
