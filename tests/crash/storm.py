"""Many processes that load days, months and the whole of one table, by several names, as fast as they can."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import date, datetime
from decimal import Decimal
from itertools import count
from typing import TYPE_CHECKING, Any

from airflow_safe_ops.definition.load import Load
from airflow_safe_ops.definition.partition import Partition, WholeTable
from tests import figures
from tests.crash.harness import Child, Job, Outcome, eventually, run_apart
from tests.crash.warehouse import FIRST, ROWS, Heap, day, month

if TYPE_CHECKING:
    from tests.conftest import Database

DAYS = 31
BUSY = 4  # days that are loaded alone; the others by months and whole tables only


class Plaza(Heap):
    """
    A table without a key that several logins know by several names.

    Each load brings a version of its own: every amount is its number, and the number of rows goes by it too, so what
    a day holds tells which load wrote it.
    """

    @contextmanager
    def open(self, isolation: str) -> Iterator[list[tuple[str, list[str]]]]:
        """Two logins, as URIs, each with the names by which it finds the table; one finds another by the same name."""
        other = f"other_{self.db.name}"
        self.db.execute(
            f"ALTER DATABASE {self.db.name} SET default_transaction_isolation = '{isolation}';"
            f"CREATE VIEW seen AS SELECT day, id, amount, note FROM {self.target};"
            f"CREATE ROLE {other} LOGIN; CREATE SCHEMA theirs; ALTER ROLE {other} SET search_path = theirs, public;"
            f"CREATE VIEW theirs.{self.target} AS SELECT day, id, amount, note FROM public.{self.target};"
            f"GRANT USAGE ON SCHEMA theirs, safe_ops TO {other};"
            f"GRANT ALL ON ALL TABLES IN SCHEMA theirs, public, safe_ops TO {other};"
            f"GRANT USAGE ON ALL SEQUENCES IN SCHEMA safe_ops TO {other}"
        )
        names = [self.target, f"public.{self.target}"]
        try:
            yield [(self.db.uri, [*names, "seen"]), (self.db.uri.replace("postgres@", f"{other}@"), names)]
        finally:
            self.db.execute(f"DROP OWNED BY {other}; DROP ROLE {other}")

    def version(self, number: int, partition: Partition, strategy: str, **more: Any) -> Load:
        """A load that writes rows of a version."""
        load = self.load(partition, strategy, **more)
        rows = f"(SELECT day, id, note FROM {self.source} UNION ALL SELECT DISTINCT day, 100 + n, 'more' "
        rows += f"FROM {self.source}, generate_series(1, 2) AS n)"
        where = "WHERE (note IS DISTINCT FROM 'more' OR id <= 100 + :version % 3)"
        if not isinstance(partition, WholeTable):
            where += " AND day >= :partition_start AND day < :partition_end"
        sql = f"SELECT day, id, CAST(:version AS numeric(12, 2)) AS amount, note FROM {rows} AS q {where}"
        return replace(load, sql=sql, parameters={"version": number})

    def held(self) -> dict[date, tuple[int, Decimal, Decimal]]:
        """Of each day how many rows it holds, and the least and the greatest version among them."""
        return {row[0]: row[1:] for row in self.db.execute(self.counts)}

    def written(self) -> list[Written]:
        """The published loads, as the ledger has them."""
        rows = self.db.execute(
            "SELECT attempt_id::text, (parameters::json ->> 'version')::int, partition_key, started_at, finished_at "
            "FROM safe_ops.safe_ops_attempt WHERE state = 'published'"
        )
        return [Written(attempt, version, _days(key), start, end) for attempt, version, key, start, end in rows]

    @property
    def counts(self) -> str:
        """The query of a reader."""
        return f"SELECT day, count(*), min(amount), max(amount) FROM {self.target} GROUP BY day"


def is_one_version(found: tuple[int, Decimal, Decimal]) -> bool:
    """Whether a day's rows are those of one load, all of them."""
    rows, least, greatest = found
    return least == greatest and rows == ROWS + int(least) % 3


class Reader:
    """Reads the table again and again on a connection of its own, and counts what no load has ever written."""

    def __init__(self, plaza: Plaza) -> None:
        self.reads = 0
        self.wrong: list[Any] = []
        self._connection = plaza.db.connect()
        self._query = plaza.counts.encode()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End it, and add what it saw to the figures."""
        self._over.set()
        self._thread.join()
        figures.add("readers", reads=self.reads, wrong=len(self.wrong))

    def _read(self) -> None:
        while not self._over.is_set():
            rows = self._connection.execute(self._query).fetchall()
            self.reads += 1
            self._over.wait(0.001)
            if len(rows) != DAYS or not all(is_one_version(row[1:]) for row in rows):
                self.wrong.append(rows)


@dataclass(frozen=True)
class Written:
    """One published load: its version, its days, and when it held its claim, as the ledger has it."""

    attempt: str
    version: int
    days: frozenset[int]
    started: datetime
    finished: datetime


def storm(db: Database, isolation: str, drivers: tuple[str, ...], processes: int, seconds: float) -> list[Written]:
    """Let it rage, look at everything, and return who wrote what when."""
    plaza = Plaza(db)
    plaza.run(plaza.version(0, WholeTable(), "delete_insert"))
    with plaza.open(isolation) as logins:
        crowd = [Child(job) for job in _jobs(plaza, logins, drivers, processes, seconds)]
        reader = Reader(plaza)
        with ThreadPoolExecutor(processes) as hands:
            ended = list(hands.map(lambda child: child.outcomes(timeout=120), crowd))
        reader.stop()
    outcomes = [outcome for each in ended for outcome in each]
    assert {outcome.error for outcome in outcomes} == {""}
    assert {outcome.points.count("claim:after") for outcome in outcomes} == {1}
    assert plaza.claims() == []
    written = plaza.written()
    assert len(outcomes) + 1 == len(written) == len(plaza.attempts())
    assert {outcome.partitions[0]["attempt_id"] for outcome in outcomes} < {one.attempt for one in written}
    _account(plaza, written, reader)
    return written


def deadly_storm(db: Database, drivers: tuple[str, ...], processes: int, seconds: float) -> None:
    """The same while one after the other is killed, and another one comes in its place."""
    plaza = Plaza(db)
    plaza.run(plaza.version(0, WholeTable(), "delete_insert"))
    chance, deaths = random.Random(processes), 0  # noqa: S311
    with plaza.open("read committed") as logins:
        jobs = _jobs(plaza, logins, drivers, processes, seconds, grace=1.0)
        crowd = [Child(job) for job in jobs]
        reader, told = Reader(plaza), list[Outcome]()
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            time.sleep(chance.uniform(0, 0.5))
            number = chance.randrange(processes)
            crowd[number].kill()
            told += crowd[number].so_far()
            crowd[number].close()
            crowd[number], deaths = Child(replace(jobs[number], seconds=left)), deaths + 1
            for child in crowd:
                child.so_far()
        told += [outcome for child in crowd for outcome in child.outcomes(timeout=120)]
        reader.stop()
    assert {outcome.error for outcome in told} == {""}
    written = plaza.written()
    assert {outcome.partitions[0]["attempt_id"] for outcome in told} <= {one.attempt for one in written}
    _account(plaza, written, reader)
    last = run_apart(plaza.job(plaza.version(1000, WholeTable(), "merge"), grace=1.0))
    wrong = [last.error] if last.error else _wrong_days(plaza, plaza.written())
    figures.add("kills", tried=deaths, wrong=int(bool(wrong)))
    assert (wrong, plaza.claims()) == ({}, [])
    assert deaths > seconds


def _account(plaza: Plaza, written: list[Written], reader: Reader) -> None:
    """Every day as it was written last, no deadlock, and nothing else ever seen."""
    wrong, broken = _wrong_days(plaza, written), deadlocks(plaza.db)
    figures.add("overlaps", loads=len(written) - 1, wrong=len(wrong), deadlocks=broken)
    assert (wrong, broken, reader.wrong) == ({}, 0, [])
    assert reader.reads > 10


def _jobs(
    plaza: Plaza,
    logins: list[tuple[str, list[str]]],
    drivers: tuple[str, ...],
    processes: int,
    seconds: float,
    grace: float = 60.0,  # where nobody dies, nobody's claim may be taken away
) -> list[Job]:
    chance, numbers = random.Random(processes), count(1)  # noqa: S311
    return [
        Job(
            uri=logins[n % 2][0],
            loads=tuple(_loads(plaza, chance, numbers, logins[n % 2][1])),
            driver=drivers[n // 2 % len(drivers)],
            name=f"storm{n}",
            seconds=seconds,
            grace=grace,
        )
        for n in range(processes)
    ]


def _loads(plaza: Plaza, chance: random.Random, numbers: Iterator[int], names: list[str]) -> Iterator[Load]:
    partitions: list[Partition] = [*map(day, range(BUSY)), *map(day, range(BUSY)), month(), WholeTable()]
    for _ in range(20):
        yield plaza.version(
            next(numbers),
            chance.choice(partitions),
            chance.choice(["delete_insert", "merge"]),
            table=chance.choice(names),
            exclusive=chance.random() < 0.1,
        )


def _days(key: str) -> frozenset[int]:
    """The days that a partition's name says."""
    if key == "*":
        return frozenset(range(DAYS))
    first, last = (date.fromisoformat(bound) for bound in key.removeprefix("day=").split(".."))
    return frozenset(range((first - FIRST).days, (last - FIRST).days))


def _wrong_days(plaza: Plaza, written: list[Written]) -> dict[date, Any]:
    """The days that do not hold exactly what the last load of them wrote."""
    last: dict[int, int] = {}
    for one in sorted(written, key=lambda one: one.finished):
        last |= dict.fromkeys(one.days, one.version)
    found, wrong = plaza.held(), {}
    for number in range(DAYS):
        when = date.fromordinal(FIRST.toordinal() + number)
        holds = found.get(when)
        if holds is None or not is_one_version(holds) or holds[1] != last[number]:
            wrong[when] = (holds, last[number])
    return wrong


def deadlocks(db: Database) -> int:
    """How many the server had to break; each session tells when it ends."""
    query = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
    eventually(lambda: db.execute(query)[0][0] <= 1, 10)
    row = db.execute("SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()")[0]
    return int(row[0])


def side_by_side(written: list[Written]) -> tuple[int, int]:
    """How many pairs of loads were at work at one time: of days in common, and of none."""
    in_common = apart = 0
    ahead: list[Written] = []
    for one in sorted(written, key=lambda one: one.started):
        ahead = [other for other in ahead if other.finished > one.started]
        in_common += sum(bool(other.days & one.days) for other in ahead)
        apart += sum(not other.days & one.days for other in ahead)
        ahead.append(one)
    return in_common, apart
