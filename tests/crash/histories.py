"""
Random histories of loads on a real database, each step compared with what the oracle expects.

A history has a source that changes, two targets, and loads that come one after the other, at once, or die.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import wraps
from typing import TYPE_CHECKING, Any, ClassVar

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from tests.crash import oracle
from tests.crash.changes import ASKS, CHANGES, MOVES, PERIODS, ROWS, Change
from tests.crash.days import DAYS, Period, day
from tests.crash.harness import Child, Outcome, eventually, kill_the_living
from tests.crash.oracle import Ask, Row, Table
from tests.crash.orders import Ran, stories
from tests.crash.world import Target, Task, World, partition_of

if TYPE_CHECKING:
    from tests.conftest import Database

# Where the first of several loads stands while the others come: its source is read, or not yet; it may lose its claim.
READ = ("stage.fill:after", "target.look:after", "target.insert:after", "target.count:after", "commit:before")
NOT_BEGUN = "claim:after"
UNREAD = (NOT_BEGUN, "claim.hold:after")
TARGETS = st.sampled_from((0, 0, 0, 0, 0, 0, 1))
TASKS = st.builds(
    Task,
    ASKS,
    target=TARGETS,
    driver=st.sampled_from(("psycopg", "psycopg2")),
    exclusive=st.sampled_from((False, False, False, False, True)),
)
INDEXES = st.sampled_from((("id",), ("day", "id"), ()))
# The points of a load at which a process may die: those that every load comes by, and others.
BEFORE_ITS_CLAIM = ("prepare:before", "prepare:after", "claim:before")
ALWAYS = (
    *BEFORE_ITS_CLAIM,
    "claim:after",
    *(
        f"{step}:{when}"
        for step in ("claim.hold", "stage.create", "stage.fill", "target.look", "target.count", "ledger.publish")
        for when in ("before", "after")
    ),
    "commit:before",
    "commit:after",
)
SOMETIMES = tuple(
    f"{step}:after"
    for step in (
        "stage.keep_latest",
        "stage.unique",
        "target.lock",
        "target.moved",
        "target.delete_moved",
        "target.delete",
        "target.update",
        "target.insert",
        "target.arrived",
    )
)
POINTS = st.sampled_from((*ALWAYS, *ALWAYS, *SOMETIMES, "target.insert:before", "target.insert:after"))


def kept(function: Callable[..., None]) -> Callable[..., None]:
    """A step that is remembered, looked at afterwards, and told if it fails: loads at once are never twice the same."""

    @wraps(function)
    def step(self: Histories, **given: Any) -> None:
        said = ", ".join(f"{name}={value!r}" for name, value in given.items())
        self.steps.append(f"state.{function.__name__}({said})")
        try:
            function(self, **given)
            self.look()
        except Exception as error:
            self.failed.append("\n".join([*self.steps, f"{type(error).__name__}: {error}"]))
            raise

    return step


class Histories(RuleBasedStateMachine):
    """One history; a class of its own for each test, with its database and its figures."""

    db: ClassVar[Database]
    told: ClassVar[Counter[str]]
    failed: ClassVar[list[str]]

    def __init__(self) -> None:
        super().__init__()
        self.steps: list[str] = []

    @initialize(indexes=st.tuples(INDEXES, INDEXES), loaded=st.sampled_from((True, True, False)), rows=ROWS)
    @kept
    def begin(self, indexes: tuple[tuple[str, ...], ...], loaded: bool, rows: list[Row]) -> None:
        """Two targets: the first was loaded before, or holds rows that no ledger knows."""
        self.told["histories"] += 1
        self.world = World(self.db, indexes)
        if loaded:
            self._load(Task(Ask(Period())))
        else:
            self.world.write_by_hand(0, rows)

    def teardown(self) -> None:
        """No process is left."""
        kill_the_living()
        if hasattr(self, "world"):
            self.world.close()

    # --- what happens -------------------------------------------------------------------------------------------

    @rule(changes=CHANGES, task=TASKS, twice=st.booleans())
    @kept
    def load(self, changes: list[Change], task: Task, twice: bool) -> None:
        """One load; the second time nothing changes."""
        self.world.change(changes)
        task = _aimed(task, changes)
        first = self._load(task)
        if twice:
            rows = self.world.rows(self.world.targets[task.target])
            again = self._load(task)
            assert again.code == first.code
            assert self.world.rows(self.world.targets[task.target]) == rows
            assert not any(partition["changed"] for partition in again.partitions)

    @rule(moves=st.lists(MOVES, min_size=1, max_size=3), task=TASKS)
    @kept
    def move(self, moves: list[Change], task: Task) -> None:
        """Keys move from day to day, and a day to which one came is loaded."""
        self.world.change(moves)
        self._load(_aimed(task, moves))

    @rule(changes=CHANGES, task=TASKS, number=st.integers(0, len(DAYS) - 1), lookback=st.integers(1, 3))
    @kept
    def look_back(self, changes: list[Change], task: Task, number: int, lookback: int) -> None:
        """A day and those before it, oldest first; after one that is refused none is loaded."""
        self.world.change(changes)
        task = _aimed(replace(task, ask=replace(task.ask, period=day(number)), lookback=lookback), changes)
        outcome = self.world.load(task)
        days: list[Ran] = []
        table = self.world.targets[task.target].table
        for back in range(lookback, -1, -1):
            ask = replace(task.ask, period=task.ask.period.before(back))
            verdict = oracle.judge(table, self.world.source, ask)
            table = verdict.table
            told = outcome.partitions[len(days) : len(days) + 1]
            code = outcome.code if verdict.code or not back else ""
            ended = replace(outcome, partitions=told, code=code)
            days.append(Ran(replace(task, ask=ask), ended, (self.world.source,)))
            if code:
                break
        self._explain_each(days, at_once=False)

    @rule(rows=ROWS, task=TASKS, told=st.sampled_from(("", "adopt", "invalidate")), period=st.sampled_from(PERIODS))
    @kept
    def by_hand(self, rows: list[Row], task: Task, told: str, period: Period) -> None:
        """Somebody writes rows without this package, perhaps tells the ledger something, and then comes a load."""
        self.world.write_by_hand(task.target, rows)
        target = self.world.targets[task.target]
        if told == "adopt":
            self._adopt(target, task.ask.period)
        elif told == "invalidate" and self.world.has_ledger():
            self._invalidate(target, period)
        self._load(task)

    @rule(
        before=CHANGES,
        first=TASKS,
        pause=st.sampled_from((*READ, *UNREAD)),
        during=CHANGES,
        others=st.lists(TASKS, min_size=1, max_size=2),
        then=st.one_of(st.sampled_from(("same", "same", "")), st.tuples(st.sampled_from(DAYS), st.sampled_from(DAYS))),
    )
    @kept
    def overlap(
        self,
        before: list[Change],
        first: Task,
        pause: str,
        during: list[Change],
        others: list[Task],
        then: str | tuple[str, str],
    ) -> None:
        """
        The first stands in its data transaction, or before it, while the source changes and the others come.

        :param then: the next one loads the same partition, or any; or a new key comes to the first one's day and has
            moved to the next one's meanwhile.
        """
        if isinstance(then, tuple):
            before, during = [*before, ("new", 0, then[0])], [*during, ("day", -1, then[1])]
        self.world.change(before)
        first = _aimed(first, before)
        others = [_aimed(others[0], during), *others[1:]]
        if then == "same":
            others[0] = _same(first, others[0])
        old = self.world.source
        ahead = self.world.child(first, pause)
        stands = ahead.until_anywhere()
        self.world.change(during)
        new = self.world.source
        behind = [(task, self.world.beside(task)) for task in others]
        if stands:
            ahead.go()
            self._count_overlaps(first, *others)
        # Who lost its claim or takes moved keys out of other partitions queues again, and reads the source again.
        again = stands and (pause == NOT_BEGUN or first.ask.on_key_moved == "move")
        read = (new,) if stands and pause in UNREAD else (old, new) if again else (old,)
        ran = [Ran(first, _end(ahead), read, first=not again)]
        ran += [Ran(task, _end(child), (new,)) for task, child in behind]
        self._explain_each(ran)

    @rule(
        changes=CHANGES,
        task=TASKS,
        points=st.lists(POINTS, min_size=2, max_size=4),
        race=st.sampled_from((None, None, 0, 1, 4)),
        again=st.booleans(),
    )
    @kept
    def kill(self, changes: list[Change], task: Task, points: list[str], race: int | None, again: bool) -> None:
        """
        A process dies at a point of its load, its retries at others; then one is left alone, or there is none.

        :param race: they die so many milliseconds later.
        """
        self.world.change(changes)
        task = _aimed(task, changes)
        for point in points:
            child = self.world.child(task, point)
            if not child.until_anywhere():
                outcome = _end(child)
                assert outcome.code or point not in ALWAYS
                self._explain_each([Ran(task, outcome, (self.world.source,))])
                continue
            if race is not None:
                child.go()
                child.until_anywhere(race / 1000)
            ran, state = self._kill(task, child)
            if race is None:
                begun = "" if point in BEFORE_ITS_CLAIM else "started"
                assert state == ("published" if point == "commit:after" else begun)
            self._explain_each(ran)
        if again:
            self._load(task)

    @rule(changes=CHANGES, task=TASKS, point=POINTS, other=TASKS, same=st.booleans(), waiter=st.booleans())
    @kept
    def kill_beside(self, changes: list[Change], task: Task, point: str, other: Task, same: bool, waiter: bool) -> None:
        """A process dies while another one waits for it, or the one that waits dies."""
        self.world.change(changes)
        task = _aimed(task, changes)
        other = _same(task, other) if same else other
        first = self.world.child(task, point)
        if first.until_anywhere():
            self._count_overlaps(task, other)
        second = self.world.beside(other)
        dies, lives = ((other, second), (task, first)) if waiter else ((task, first), (other, second))
        ran, _ = self._kill(*dies)
        died = not ran
        ran.append(Ran(lives[0], _end(lives[1]), (self.world.source,)))
        self._explain_each(ran)
        if waiter and died:  # who was before it in the queue never met its claim
            self.world.targets[other.target].dead[second.job.name] = other.ask.period

    # --- what has to be true ------------------------------------------------------------------------------------

    def look(self) -> None:
        """Rows, ledger and claims; nothing is left over."""
        self.told["steps"] += 1
        for target in self.world.targets:
            assert self.world.rows(target) == Counter(target.table.rows)
            assert self._unexpected_records(target, target.table) == []
            assert self.world.attempts(target) == target.attempts
            assert self.world.claims(target) <= set(target.dead)
        assert eventually(lambda: not self.world.stages()), self.world.stages()

    # --- judging ------------------------------------------------------------------------------------------------

    def _load(self, task: Task) -> Outcome:
        outcome = self.world.load(task)
        self._explain_each([Ran(task, outcome, (self.world.source,))])
        return outcome

    def _kill(self, task: Task, child: Child) -> tuple[list[Ran], str]:
        """Kill it; what it has done, and what the ledger says of it."""
        state, code = self.world.bury(child)
        if child.ended():
            return [Ran(task, child.outcome(), (self.world.source,))], state
        self.told["kills"] += 1
        if state in ("published", "failed"):
            return [Ran(task, Outcome(code=code), (self.world.source,))], state
        target = self.world.targets[task.target]
        target.dead[child.job.name] = task.ask.period
        target.attempts["lost"] += bool(state)
        return [], state

    def _explain_each(self, ran: Sequence[Ran], *, at_once: bool = True) -> None:
        for number, target in enumerate(self.world.targets):
            here = [each for each in ran if each.task.target == number]
            if here:
                self._explain(target, here, at_once=at_once and len(here) > 1)

    def _explain(self, target: Target, ran: list[Ran], *, at_once: bool) -> None:
        """Find an order in which the loads, one after the other, would have ended as they did."""
        rows, wrong = self.world.rows(target), []
        # Who queued again read the source again, and may have claimed days from which nothing moves any more.
        lenient = at_once or any(len(each.sources) > 1 for each in ran)
        for story in stories(target.table, ran, at_once=at_once):
            complaints = story.complaints
            if Counter(story.table.rows) != rows:
                complaints.append(f"rows {sorted(map(str, rows.elements()))}, expected {story.table.rows}")
            complaints += self._unexpected_records(target, story.table, lenient=lenient)
            if not complaints:
                self.told.update(story.met)
                self._go_on(target, story.table, ran)
                return
            wrong.append(f"{' then '.join(str(each.ask) for each in story.order)}: {'; '.join(complaints)}")
        raise AssertionError("\n".join(["no order of the loads explains what is there:", *wrong]))

    def _go_on(self, target: Target, table: Table, ran: Sequence[Ran]) -> None:
        """From what is there: loads at once may have claimed more than they had to, and forgotten its counts."""
        found = self.world.records(target)
        records = {
            key: record if found[key][1] is not None else replace(record, content=None)
            for key, record in table.records.items()
        }
        target.table = replace(table, records=records)
        target.attempts.update(each.attempt for each in ran)
        target.met([each.ask.period for each in ran])

    def _adopt(self, target: Target, period: Period) -> None:
        """Somebody records a partition as it stands."""
        with self.world.recorder(target) as recorder:
            (noted,) = recorder.adopt([partition_of(period)])
        expected, said = oracle.adopt(target.table, period)
        assert (noted.partition, noted.outcome) == (period.key, said)
        self._noted(target, expected, [period.key] if said == "adopted" else [])
        self.told["adopted"] += said == "adopted"

    def _invalidate(self, target: Target, period: Period) -> None:
        """Somebody says that what the ledger has of a period holds no longer."""
        with self.world.recorder(target) as recorder:
            noted = recorder.invalidate([partition_of(period)])
        expected, said = oracle.invalidate(target.table, period)
        assert {one.partition: one.outcome for one in noted} == said
        self._noted(target, expected, [key for key, outcome in said.items() if outcome == "invalidated"])

    def _noted(self, target: Target, expected: Table, keys: Sequence[str]) -> None:
        target.met([expected.records[key].period for key in keys])
        target.attempts.update(expected.records[key].state.replace("missing", "invalidated") for key in keys)
        target.table = expected

    def _unexpected_records(self, target: Target, table: Table, *, lenient: bool = False) -> list[str]:
        """
        Where the ledger's partitions are not the oracle's.

        :param lenient: a count that the ledger does not know is no fault.
        """
        found = self.world.records(target)
        if set(found) != set(table.records):
            return [f"partitions {found}, expected {table.records}"]
        return [
            f"{key} is {found[key]}, expected {(record.state, record.count)}"
            for key, record in table.records.items()
            if found[key] != (record.state, record.count)
            and not (found[key] == (record.state, None) and (lenient or not record.sure))
        ]

    def _count_overlaps(self, *tasks: Task) -> None:
        self.told["overlaps"] += sum(
            one.target == other.target and one.ask.period.overlaps(other.ask.period)
            for n, one in enumerate(tasks)
            for other in tasks[:n]
        )


def _aimed(task: Task, changes: list[Change]) -> Task:
    """Where a row came to a day: load that day, by the key that came."""
    to = [str(value) for what, _, value in changes if what in ("day", "new")]
    return replace(task, ask=replace(task.ask, period=day(DAYS.index(to[-1])), key=("id",))) if to else task


def _same(first: Task, other: Task) -> Task:
    """Another load of the same partition, by the same key if it has one."""
    ask = replace(other.ask, period=first.ask.period, key=first.ask.key or other.ask.key)
    return replace(other, target=first.target, ask=ask)


def _end(child: Child) -> Outcome:
    """How it ended, once it is gone."""
    outcome = child.outcome()
    child.outcomes()
    child.kill()
    return outcome
