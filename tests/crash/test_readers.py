"""Whoever reads while loads run sees what one load left, never a gap and never two loads' rows together."""

from __future__ import annotations

import threading
from decimal import Decimal
from typing import TYPE_CHECKING

import pytest

from airflow_safe_ops.definition.load import Load
from tests import figures
from tests.crash.harness import Child
from tests.crash.warehouse import COLUMNS, ROWS, STRATEGIES, Heap, Shop

if TYPE_CHECKING:
    from tests.conftest import Database

Seen = tuple[int, Decimal | None]


def _versions(shop: Shop, strategy: str, number: int) -> list[Load]:
    """Loads of one day; version n has n rows more than the source, and every amount is n."""
    return [
        Load(
            **{
                **vars(shop.load(strategy=strategy)),
                "sql": f"SELECT day, id, :version::numeric(12, 2) AS amount, note FROM (SELECT {COLUMNS} "
                f"FROM {shop.source} UNION ALL SELECT :partition_start, 1000 + n, 0, 'more' "
                "FROM generate_series(1, :version) AS n) AS q "
                "WHERE day >= :partition_start AND day < :partition_end",
                "parameters": {"version": version},
            }
        )
        for version in range(1, number + 1)
    ]


class _Reader:
    """Reads count and sum again and again on a connection of its own."""

    def __init__(self, db: Database, table: str) -> None:
        self.seen: list[Seen] = []
        self.reads = 0
        self._connection = db.connect()
        self._query = f"SELECT count(*), sum(amount) FROM {table}".encode()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._over.set()
        self._thread.join()

    def _read(self) -> None:
        while not self._over.is_set():
            row = self._connection.execute(self._query).fetchone()
            assert row is not None
            self.reads += 1
            if [(row[0], row[1])] != self.seen[-1:]:
                self.seen.append((row[0], row[1]))


@pytest.mark.parametrize(("strategy", "driver"), [("delete_insert", "psycopg2"), ("merge", "psycopg")])
def test_a_reader_sees_the_old_or_the_new(db: Database, strategy: str, driver: str) -> None:
    shop = Shop(db)
    loads = _versions(shop, strategy, 20)
    shop.run(loads[0])
    states: list[Seen] = [(ROWS + n, Decimal(n * (ROWS + n))) for n in range(1, len(loads) + 1)]
    reader = _Reader(db, shop.target)
    outcomes = Child(shop.job(*loads, driver=driver)).outcomes()
    reader.stop()
    assert [outcome.error for outcome in outcomes] == [""] * len(loads)
    figures.add("readers", reads=reader.reads, wrong=len(set(reader.seen) - set(states)))
    assert set(reader.seen) <= set(states)
    assert reader.seen == sorted(reader.seen), "no version comes back once a newer one was seen"
    assert reader.seen[-1] == states[-1]
    assert len(reader.seen) > 5
    assert reader.reads > len(loads)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_reader_in_each_step_sees_the_old(db: Database, strategy: str) -> None:
    """At every step until COMMIT the old rows are there, after it the new ones."""
    shop = Heap(db)
    shop.ready(strategy)
    old = shop.rows()
    child = Child(shop.job(shop.load(strategy=strategy), pauses=frozenset({"*"})))
    seen = []
    while child.until_anywhere():
        seen.append((child.at, shop.rows() == old))
        child.go()
    figures.add("readers", reads=len(seen), wrong=sum(is_old == (at == "commit:after") for at, is_old in seen))
    assert [point for point, is_old in seen if not is_old] == ["commit:after"]
    assert len(seen) > 20
    assert shop.wrong() == []
