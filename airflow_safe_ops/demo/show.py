"""What the demo prints: progress, the tables side by side, the ledger's story, what to do next."""

from __future__ import annotations

import os
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

from airflow_safe_ops.demo.attempts import partition_key
from airflow_safe_ops.demo.flights import ROWS, SAFE, SOURCE
from airflow_safe_ops.demo.folder import WAREHOUSE

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import date

    from airflow_safe_ops.demo.compare import Comparison, Target
    from airflow_safe_ops.demo.folder import Folder
    from airflow_safe_ops.demo.story import Story

_SHOWN = 8
_STORY = ("started", "run", "try", "state", "deleted", "inserted", "seconds")
_NARROW_STORY = ("started", "run", "try", "state", "inserted")
_WIDE = 108


def console() -> Console:
    """Where the demo prints; wide enough for its tables when it is no terminal."""
    width = None if sys.stdout.isatty() else 120
    return Console(highlight=False, width=width)


def introduce(out: Console, story: Story, folder: Folder) -> None:
    """The first lines: what will happen, where, how long."""
    days = len(story.days)
    out.print(
        f"[bold]airflow-safe-ops demo[/bold]: {days} days of real flights, loaded by a DAG that appends and by its "
        "safe twin.\nBoth live through one incident: a green history, then catch-up, clears, an overlap, a run killed "
        "in mid-write.\n"
        f"PostgreSQL and Airflow run in {_near(folder.root)} alone, without network, for two to three minutes.\n"
    )


def progress(out: Console) -> Progress:
    """The bars."""
    return Progress(
        SpinnerColumn(finished_text="[green]✓[/green]"),
        TextColumn("{task.description}"),
        BarColumn(bar_width=30),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=out,
    )


def how_it_ran(out: Console, seconds: float) -> None:
    """How the runs were executed, so that nobody takes them for something else."""
    out.print(
        f"\nPlayed in {_minutes(seconds)}. Every run is a DAG run in Airflow's own database, every try a process of "
        "its own under Airflow's task supervisor. No scheduler daemon ran: the demo asked for each run in its place, "
        "and retries at once.\n"
    )


def side_by_side(out: Console, result: Comparison, story: Story) -> None:
    """Copies per date: the worst, a few of the usual, and how many are right."""
    table = Table(title=f"Copies of each day: rows in the target for one row in {SOURCE}", title_justify="left")
    table.add_column("day")
    table.add_column("what happened to it")
    table.add_column("source", justify="right")
    table.add_column("flights_daily_append", justify="right", style="red", overflow="fold")
    table.add_column("flights_daily", justify="right", style="green")
    worst = result.worst_days()
    usual = worst[len(worst) // 2 :: max(1, len(worst) // 6)]
    shown = sorted({*worst[:_SHOWN], *usual, worst[-1], story.killed})
    for day in shown:
        table.add_row(
            day.isoformat(),
            _fate(story, day),
            f"{result.source[day]:,}",
            _copies(result, result.append, day),
            _copies(result, result.safe, day),
        )
    if len(shown) < len(result.days):
        table.caption = f"{len(shown)} of {len(result.days)} days, the worst among them"
        table.caption_justify = "left"
    out.print(table)
    _summary(out, "flights_daily_append", result, result.append)
    _summary(out, "flights_daily", result, result.safe)


def _summary(out: Console, name: str, result: Comparison, target: Target) -> None:
    equal, days = result.equal(target), len(result.days)
    colour = "green" if equal == days else "red"
    out.print(f"[{colour}]{name}: {equal} of {days} days equal their source, row for row[/{colour}]")
    kinds = Counter(_kind(result.copies(target, day)) for day in result.days)
    out.print("    " + ", ".join(f"{_plural(count, 'day')} with {kind}" for (_, kind), count in sorted(kinds.items())))
    for day, rows in sorted(target.differing.items()):
        if day not in result.source:
            out.print(f"    [red]{_plural(rows, 'row')} of {day}, a day that was not loaded[/red]")


def _kind(copies: float) -> tuple[int, str]:
    whole = int(copies)
    if copies != whole:
        return whole, f"{whole} copies and a part" if whole > 1 else "a part" if whole == 0 else "1 copy and a part"
    return whole, _plural(whole, "copy", "copies")


def _plural(number: int, one: str, many: str = "") -> str:
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def _copies(result: Comparison, target: Target, day: date) -> str:
    mark = "" if day not in target.differing else f"  ({target.differing[day]:,} wrong)"
    return f"{target.rows.get(day, 0):,} = {result.copies(target, day):.2f}x{mark}"


def _fate(story: Story, day: date) -> str:
    what = "history, catch-up"
    if day == story.killed:
        return f"{what}, clear: killed while it wrote"
    if day == story.overlapped:
        return f"{what}, clear and a run by hand at once"
    return f"{what}, clear" if day in story.cleared else what


def ledger_story(out: Console, day: date, attempts: Sequence[Mapping[str, Any]]) -> None:
    """What the ledger knows about one day."""
    table = Table(title=f"The ledger on {SAFE}, {partition_key(day)}", title_justify="left")
    names = _STORY if out.width >= _WIDE else _NARROW_STORY
    for name in names:
        right = name in ("deleted", "inserted", "seconds")
        table.add_column(name, justify="right" if right else "left", overflow="fold", no_wrap=name != "run")
    for attempt in attempts:
        shown = {**attempt, "started": attempt["started (UTC)"][-len("hh:mm:ss") :]}
        table.add_row(*(str(shown[name]) for name in names))
    if any(attempt["state"] == "lost" for attempt in attempts):
        table.caption = "lost: it began, and its process died without a word; nothing of it was published"
        table.caption_justify = "left"
    out.print()
    out.print(table)


def verdict(out: Console, result: Comparison) -> None:
    """One line: what the demo proved, or did not."""
    out.print()
    if not result.safe_is_right:
        wrong = sum(result.safe.differing.values())
        out.print(f"[bold red]The safe twin differs from its source by {_plural(wrong, 'row')}.[/bold red]")
    elif not result.append_is_wrong:
        out.print("[bold red]The appending DAG came out right: this demo proved nothing.[/bold red]")
    else:
        out.print(
            f"[bold green]The safe twin holds its source, row for row, for {len(result.days)} of {len(result.days)} "
            "days.[/bold green]"
        )


def next_steps(out: Console, folder: Folder, day: date) -> None:
    """Commands that work on what the demo left."""
    python = _near(Path(sys.executable)) if os.sep in sys.executable else sys.executable
    demo = f"{python} -m airflow_safe_ops.demo"
    where = "" if folder.root == Path.cwd() / ".demo" else f" --dir {_near(folder.root)}"
    ledger = f"{demo} shell{where} airflow safe-ops ledger show --conn-id {WAREHOUSE} --table {SAFE}"
    steps = {
        ledger: "what became of every day",
        f"{ledger} --partition {partition_key(day)}": "every try of one",
        f"{demo} shell{where}": "a shell: psql opens the warehouse, airflow standalone the UI with every run",
        f"{demo} compare{where}": "compare again; exit code 1 if the safe twin is wrong by a row",
    }
    out.print("\nWhat to do next (PostgreSQL runs as long as the command):")
    for command, what in steps.items():
        out.print(f"  {what}\n    [bold]{command}[/bold]", soft_wrap=True)


def loaded(rows: int) -> str:
    """The first step's name once it is done."""
    return f"PostgreSQL, {rows:,} flights" if rows != ROWS else f"PostgreSQL, all {rows:,} flights of 2013"


def _minutes(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"


def _near(path: Path) -> str:
    """A path as short as it can be from here."""
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else str(path)
