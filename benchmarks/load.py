"""
What a load costs beside the bare work: one partition of a table replaced and merged, by us and by hand.

``python -m benchmarks.load [--quick] [--json FILE] [--steps]``; docs/performance.md says how to read it.
"""

# ruff: noqa: T201 - it is a command

from __future__ import annotations

import os
import time
from argparse import Namespace
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from pathlib import Path
from typing import Any

from benchmarks import harness, load_facts
from benchmarks.harness import Ratio, Report, Times, say
from benchmarks.load_tables import (
    ALL_CHANGED,
    BASE,
    DELETE,
    FEW_CHANGED,
    INSERT,
    LARGE,
    MERGE,
    SMALL,
    Tables,
    bare,
    by_turns,
)
from benchmarks.load_task import Stopwatch, load

OURS, WITHOUT, PEER = "ours", "ours without checksum", "peer"


@dataclass(frozen=True)
class Size:
    """
    How much is measured.

    :param rows: rows of the target; a large partition has a tenth of them.
    :param rounds: how often each side runs on it.
    :param small: how often each side runs on 1,000 rows.
    :param processes: fresh processes for each DAG file.
    """

    rows: int = 10_000_000
    rounds: int = 5
    small: int = 60
    processes: int = 11

    @classmethod
    def of(cls, args: Namespace) -> Size:
        """As the flags say."""
        base = cls(500_000, 3, 20, 5) if args.quick else cls()
        if args.rounds:  # few rounds are few of everything
            base = cls(base.rows, args.rounds, min(base.small, args.rounds * 10), min(base.processes, args.rounds))
        return replace(base, rows=args.rows or base.rows)


@dataclass
class Series:
    """Our loads and the peer by turns, on one partition; each run finds another content than it brings."""

    made: Tables
    contents: tuple[str, str]
    rounds: int
    day: date = LARGE
    settles: bool = True
    watches: dict[str, Stopwatch] = field(default_factory=dict)

    def run(self, ours: Mapping[str, Mapping[str, Any]], *by_hand: str) -> dict[str, Times]:
        """
        The times of each side.

        :param ours: each of our sides with the operator's options.
        :param by_hand: the peer's statements.
        """
        load(self.contents[0], self.day)
        following = by_turns(*self.contents)
        source = ""

        def before() -> None:
            nonlocal source
            source = following()
            if self.settles:
                self.made.settle()

        def side(name: str, options: Mapping[str, Any]) -> Callable[[], None]:
            watch = self.watches[name] = Stopwatch()
            return lambda: load(source, self.day, watch, **options)

        sides: dict[str, Callable[[], object]] = {name: side(name, options) for name, options in ours.items()}
        sides[PEER] = lambda: bare(self.made.uri, source, self.day, *by_hand)
        return harness.alternate(sides, self.rounds, before=before, after=lambda: self.made.expect(source, self.day))

    def steps(self) -> dict[str, dict[str, float]]:
        """The median seconds of each step of our sides."""
        return {name: watch.steps(self.rounds) for name, watch in self.watches.items()}


@dataclass
class Benchmark:
    """All that is measured, into one report."""

    made: Tables
    size: Size
    report: Report = field(default_factory=Report)
    steps: dict[str, dict[str, dict[str, float]]] = field(default_factory=dict)

    def replace(self) -> None:
        """A partition deleted and inserted, with and without the checksum."""
        ours = {OURS: {}, WITHOUT: {"checksum": "off"}}
        times = self._series("delete_insert", (BASE, ALL_CHANGED), ours, DELETE, INSERT)
        self.report.results += [
            Ratio("delete_insert/hand_written", 1.25, times[OURS], times[PEER]),
            Ratio("delete_insert_no_checksum/hand_written", 1.10, times[WITHOUT], times[PEER]),
        ]
        self.report.facts.append(load_facts.checksum_price(times[OURS], times[WITHOUT]))

    def merge(self) -> None:
        """A partition merged in which all rows changed, and one in which one row in a hundred did."""
        for name, changed, aim in (("merge_all_changed", ALL_CHANGED, 1.35), ("merge_1pct_changed", FEW_CHANGED, 1.8)):
            times = self._series(name, (BASE, changed), {OURS: {"strategy": "merge"}}, MERGE)
            self.report.results.append(Ratio(f"{name}/hand_written", aim, times[OURS], times[PEER]))

    def facts(self, folder: Path) -> None:
        """What is told beside the ratios."""
        small = Series(self.made, (BASE, ALL_CHANGED), self.size.small, SMALL[1_000], settles=False)
        say(f"1,000 rows, {small.rounds} times")
        times = small.run({OURS: {}}, DELETE, INSERT)
        self.steps["1,000 rows"] = small.steps()
        self.report.facts.append(load_facts.fixed_cost(times[OURS], times[PEER]))
        say("memory")
        self.report.facts += load_facts.memory(self.made)
        say(f"DAG files, {self.size.processes} processes each")
        self.report.facts += load_facts.dag_files(folder, self.size.processes)

    def _series(
        self, name: str, contents: tuple[str, str], ours: Mapping[str, Mapping[str, Any]], *by_hand: str
    ) -> dict[str, Times]:
        say(f"{name}: {self.made.large:,} of {self.made.rows:,} rows, {self.size.rounds} rounds")
        series = Series(self.made, contents, self.size.rounds)
        times = series.run(ours, *by_hand)
        self.steps[name] = series.steps()
        return times


def main(argv: Sequence[str] | None = None) -> None:
    """Measure, print, write."""
    args = harness.arguments(str(__doc__).strip().partition("\n")[0]).parse_args(argv)
    size, began = Size.of(args), time.perf_counter()
    with harness.own_folder(args.dir) as folder, harness.running_server(folder) as server:
        os.environ["AIRFLOW_CONN_DWH"] = server.airflow_uri()
        made = Tables(server.uri(), size.rows)
        say(f"a table of {size.rows:,} rows")
        with made.made():
            benchmark = Benchmark(made, size)
            benchmark.replace()
            benchmark.merge()
            benchmark.facts(folder)
            benchmark.report.about = {**harness.machine(), **made.about(), "steps": benchmark.steps}
    report = benchmark.report
    report.about["seconds"] = round(time.perf_counter() - began)
    if args.steps:
        show_steps(benchmark.steps)
    report.show()
    if args.json:
        report.write(args.json)


def show_steps(steps: Mapping[str, Mapping[str, Mapping[str, float]]]) -> None:
    """Where the time of our loads goes."""
    for name, sides in steps.items():
        for side, seconds in sides.items():
            rows = [(step, f"{taken:.4f}") for step, taken in seconds.items()]
            rows.append(("all steps", f"{sum(seconds.values()):.4f}"))
            print(f"\n{harness.table((f'{name}, {side}', 'seconds'), rows)}")


if __name__ == "__main__":
    main()
