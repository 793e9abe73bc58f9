"""Two ledgers in one database would exclude nothing: whoever comes with another one is kept out, whenever it comes."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest

from tests.crash.harness import Child, eventually, holding, until_blocked
from tests.crash.warehouse import Heap, Shop, day

if TYPE_CHECKING:
    from tests.conftest import Database

INSIDE = frozenset({"stage.fill:after"})


def _ledgers(db: Database) -> list[str]:
    rows = db.execute(
        "SELECT nspname FROM pg_class JOIN pg_namespace AS n ON n.oid = relnamespace "
        "WHERE relname LIKE 'safe\\_ops\\_%' GROUP BY 1 ORDER BY 1"
    )
    return [row[0] for row in rows]


@pytest.mark.parametrize(
    ("schema", "driver"),
    [("other", "psycopg"), ("SAFE_OPS", "psycopg2"), ("Safe_Ops", "psycopg"), ('"safe_ops"', "psycopg2")],
)
def test_another_ledger_is_refused_while_a_load_runs(db: Database, schema: str, driver: str) -> None:
    """By whatever other name: a schema's name is taken as it is written."""
    shop = Shop(db)
    running = Child(shop.job(driver=driver, pauses=INSIDE))
    running.until("stage.fill:after")
    others = [Child(shop.job(shop.load(day(n)), driver=driver, ledger_schema=schema)).outcome() for n in (0, 1)]
    assert [(outcome.code, outcome.terminal) for outcome in others] == [("SO-502", True)] * 2
    assert _ledgers(db) == ["safe_ops"]
    assert running.outcome().published
    assert shop.wrong() == []
    assert [a["outcome"] for a in shop.attempts()] == ["published"]


def test_another_ledger_never_gets_in_between(db: Database) -> None:
    """Loads by the one as fast as they can, and all the time loads by another one."""
    shop = Heap(db)
    shop.run()
    shop.new_version()
    loads = [Child(shop.job(shop.load(day(n)), shop.load(day(n + 1)), seconds=1)) for n in range(3)]
    others = [
        Child(shop.job(shop.load(day(n)), driver=driver, ledger_schema="other", seconds=1, stays=True))
        for n, driver in enumerate(("psycopg", "psycopg2"))
    ]
    refused = [outcome for child in others for outcome in child.outcomes()]
    published = [outcome for child in loads for outcome in child.outcomes()]
    assert {outcome.code for outcome in refused} == {"SO-502"}
    assert {outcome.error for outcome in published} == {""}
    assert min(len(refused), len(published)) > 3
    assert _ledgers(db) == ["safe_ops"]
    assert len(shop.rows()) == len(set(shop.rows())) == 4 * 5
    assert len(shop.attempts()) == len(published) + 1


def test_of_two_first_loads_with_two_ledgers_one_wins(db: Database, driver: str) -> None:
    """Both have seen that there is none; afterwards there is one, and loads by it go on."""
    shop = Heap(db)
    schemas = ("safe_ops", "other")
    with ExitStack() as held:
        children = []
        for number, schema in enumerate(schemas):
            held.enter_context(holding(db.uri, f"CREATE SCHEMA {schema}"))
            children.append(Child(shop.job(shop.load(day(number)), driver=driver, ledger_schema=schema)))
            until_blocked(children[-1])
    outcomes = [child.outcome() for child in children]
    assert {outcome.code for outcome in outcomes} <= {"", "SO-502"}
    assert eventually(lambda: len(_ledgers(db)) == 1, 1), _ledgers(db)
    again = [
        Child(shop.job(shop.load(day(n)), driver=driver, ledger_schema=s)).outcome() for n, s in enumerate(schemas)
    ]
    assert sorted(outcome.code for outcome in again) == ["", "SO-502"]
