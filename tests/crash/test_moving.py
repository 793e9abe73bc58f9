"""Keys that move between days while many processes load these days: each key ends where the source has it, once."""

from __future__ import annotations

import random
import time
from typing import TYPE_CHECKING, Any

import pytest

from airflow_safe_ops.definition.load import Load
from airflow_safe_ops.definition.partition import Partition, WholeTable
from tests import figures
from tests.crash.harness import Child, Outcome
from tests.crash.storm import deadlocks
from tests.crash.warehouse import FIRST, Shop, day, no_stage_left, stages

if TYPE_CHECKING:
    from tests.conftest import Database

DAYS = 6
KEYS = 60
INDEX = pytest.mark.parametrize("index", [True, False], ids=["index", "no index"])


class Crossing(Shop):
    """Of each version every key stands in another day."""

    def new_version(self) -> None:
        self.versions += 1
        self.db.execute(
            f"DELETE FROM {self.source}; INSERT INTO {self.source} "
            f"SELECT DATE '{FIRST}' + (i * {self.versions} + i / {DAYS}) % {DAYS}, i, i, 'v{self.versions}' "
            f"FROM generate_series(1, {KEYS}) AS i"
        )

    def load(self, partition: Partition | None = None, strategy: str = "delete_insert", **more: Any) -> Load:
        given = {"unique_key": ("id",), "on_key_moved": "move", "on_empty": "replace", **more}
        return super().load(partition, strategy, **given)


def _loads(shop: Crossing, seed: int) -> list[Load]:
    """Every day once, in an order of its own."""
    chance = random.Random(seed)  # noqa: S311
    days = chance.sample(range(DAYS), DAYS)
    return [shop.load(day(number), chance.choice(["delete_insert", "merge"])) for number in days]


def _shop(db: Database, index: bool) -> Crossing:
    """The first version as it is loaded, and a source that has the second one."""
    shop = Crossing(db, days=DAYS)
    db.execute(f"ALTER TABLE {shop.target} DROP CONSTRAINT {shop.target}_pkey")
    if index:
        db.execute(f"ALTER TABLE {shop.target} ADD PRIMARY KEY (id)")
    shop.run(shop.load(WholeTable(), on_key_moved="fail"))
    shop.new_version()
    return shop


def _crowd(shop: Crossing, processes: int, seconds: float = 0) -> list[Child]:
    jobs = [
        shop.job(*_loads(shop, n), driver=("psycopg", "psycopg2")[n % 2], seconds=seconds) for n in range(processes)
    ]
    return [Child(job) for job in jobs]


def _account(shop: Crossing, outcomes: list[Outcome]) -> None:
    """All of them were published, keys did move, and each stands where the source has it."""
    assert {outcome.error for outcome in outcomes} == {""}
    wrong = shop.unsettled()
    if shop.rows() != shop.rows(shop.source):
        wrong.append(f"{shop.rows()} instead of {shop.rows(shop.source)}")
    figures.add("overlaps", loads=len(outcomes), wrong=len(wrong), deadlocks=deadlocks(shop.db))
    assert (wrong, deadlocks(shop.db)) == ([], 0)
    assert sum(outcome.partitions[0]["rows_moved"] for outcome in outcomes) > 0
    assert no_stage_left(shop.db), stages(shop.db)


@INDEX
def test_keys_move_among_many_days(db: Database, index: bool) -> None:
    """Every process loads every day, each in another order."""
    shop = _shop(db, index)
    _account(shop, [outcome for child in _crowd(shop, 5) for outcome in child.outcomes(60)])


@pytest.mark.long
@INDEX
def test_keys_move_on_and_on(db: Database, index: bool) -> None:
    """The source changes all the time; whoever looks never sees a key twice."""
    shop = _shop(db, index)
    crowd = _crowd(shop, 6, seconds=8)
    looker, end, looks, twice = db.connect(), time.monotonic() + 8, 0, []
    while time.monotonic() < end:
        if looks % 50 == 0:
            shop.new_version()
            for child in crowd:
                child.so_far()
        row = looker.execute(f"SELECT id FROM {shop.target} GROUP BY id HAVING count(*) > 1".encode()).fetchall()
        twice += row
        looks += 1
    outcomes = [outcome for child in crowd for outcome in child.outcomes(60)]
    figures.add("readers", reads=looks, wrong=len(twice))
    assert twice == []
    shop.run(*(shop.load(day(number)) for number in range(DAYS)))
    _account(shop, outcomes)
