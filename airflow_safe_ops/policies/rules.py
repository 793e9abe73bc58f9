"""
The rules of the cluster policy.

A rule is a class: its name is the setting ``policy_<name>``, its docstring says why it is there, ``fix`` what to do.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, ClassVar, Literal

from airflow_safe_ops.compat import ALLOWED_RUN_TYPES, RETRY_POLICY, Feature
from airflow_safe_ops.errors import MovingStartDate
from airflow_safe_ops.policies.facts import DagFacts, TaskFacts, argument, is_mapped
from airflow_safe_ops.policies.start_dates import clock_dates_of_file

BACKFILL = "backfill"
_MOST_LISTED = 10
_NOT_BACKFILLED = frozenset({"OnceTimetable", "ContinuousTimetable", "AssetTriggeredTimetable"})


@dataclass(frozen=True)
class Finding:
    """
    What a rule found in a DAG.

    :param what: one clause, of the DAG.
    :param fix: what the DAG's author can do.
    :param tasks: the tasks it is about; none: the DAG.
    :param enforce: sets it right and says what it did; None: nothing can be set right.
    :param refusal: the error that leaves the DAG out, where that is what enforcing means.
    :param is_note: it is said to who asks, not warned of.
    """

    what: str
    fix: str
    tasks: tuple[str, ...] = ()
    enforce: Callable[[], str] | None = None
    refusal: MovingStartDate | None = None
    is_note: bool = False


class Rule(ABC):
    """One rule. ``needs`` is what Airflow must have for the rule to be enforced."""

    name: ClassVar[str]
    fix: ClassVar[str]
    needs: ClassVar[Feature | None] = None

    @abstractmethod
    def look(self, facts: DagFacts) -> Iterator[Finding]:
        """What the rule has to say of a DAG; it changes nothing."""


class UnsafeBackfill(Rule):
    """
    A DAG with a task that writes and is not safe to repeat cannot be backfilled.

    A backfill runs again what has run. Enforced, the run type ``backfill`` is taken out of ``allowed_run_types``;
    what the author has excluded stays excluded, and a schedule goes on.
    """

    name = "unsafe_backfill"
    needs = ALLOWED_RUN_TYPES
    fix = (
        "Load with IdempotentLoadOperator, put a guard around the task, or, if a repeat does no harm, give the DAG "
        "the tag safe_ops:repeatable."
    )

    def look(self, facts: DagFacts) -> Iterator[Finding]:
        """See the class."""
        yield from _unknown(facts)
        yield from _unread(facts)
        unsafe = [task for task in facts.tasks if task.is_unsafe]
        allowed = _run_types(facts.dag)
        if not unsafe or not _can_be_backfilled(facts.dag) or (allowed is not None and BACKFILL not in allowed):
            return
        what = f"can be backfilled, and a repeat may write twice: {_writes(unsafe)}"
        yield Finding(what, self.fix, _ids(unsafe), lambda: _forbid_backfill(facts.dag))


class MaxActiveRuns(Rule):
    """A DAG has no more runs at a time than the installation wants. Enforced, ``max_active_runs`` is the cap."""

    name = "max_active_runs"
    fix = "Set max_active_runs to no more than the cap."

    def look(self, facts: DagFacts) -> Iterator[Finding]:
        """See the class."""
        cap = facts.settings.max_active_runs_cap
        if facts.dag.max_active_runs > cap:
            what = f"has max_active_runs={facts.dag.max_active_runs}, above the cap of {cap}"
            yield Finding(what, self.fix, enforce=lambda: _lower(facts.dag, cap))


class Catchup(Rule):
    """
    A DAG that catches up says how many runs that may be at once.

    With ``catchup=True`` a pause of a month ends in a month of runs. Airflow's own default, 16 at a time, is above
    the cap here, so that who catches up has to say a number. Enforced, ``max_active_runs`` is the cap.
    """

    name = "catchup"
    fix = "Set max_active_runs to no more than the cap, or catchup=False."

    def look(self, facts: DagFacts) -> Iterator[Finding]:
        """See the class."""
        dag, cap = facts.dag, facts.settings.catchup_cap
        if dag.catchup and dag.timetable.can_be_scheduled and dag.max_active_runs > cap:
            what = f"has catchup=True and max_active_runs={dag.max_active_runs}, above the cap of {cap} for catch-up"
            yield Finding(what, self.fix, enforce=lambda: _lower(dag, cap))


class RetriesMissing(Rule):
    """
    A task has retries, and a policy that knows which failures they can heal.

    Left alone, and said: a task with a retry policy of its own; one whose author wrote ``retries=0``; and one that
    writes, or of which it is not known whether it does, and that is not safe to repeat, because a retry after a lost
    COMMIT would write twice. Of a mapped task Airflow does not keep whether ``retries=0`` was written, so there it
    counts as not written.
    """

    name = "retries"
    needs = RETRY_POLICY
    fix = "Set retries on the task or in default_args; retries=0 says that none are wanted."

    def look(self, facts: DagFacts) -> Iterator[Finding]:
        """See the class."""
        groups: dict[str, list[TaskFacts]] = {}
        for task in facts.tasks:
            if not task.task.retries and not _does_nothing(task.task):
                groups.setdefault(_why_left_alone(task, facts.dag), []).append(task)
        plain = groups.pop("", [])
        for why, tasks in groups.items():
            may_write = tasks[0].is_unsafe or (tasks[0].unknown and not tasks[0].is_safe)
            fix = UnsafeBackfill.fix if may_write else self.fix
            yield Finding(f"has tasks without retries that {why}; left alone", fix, _ids(tasks), is_note=True)
        if plain:
            count = facts.settings.default_retries
            yield Finding("has tasks without retries", self.fix, _ids(plain), lambda: _give_retries(plain, count))


class StartDate(Rule):
    """
    A start date stands still.

    Told by two signs that are the same at each parse: parts of a second, which nobody writes down, and a call such
    as ``now()`` or ``days_ago()`` in the file, which tells a date that was rounded. Enforced, that DAG alone is left
    out, where that is certain: where the ids of the file's DAGs are computed, or the date may have another value,
    it is only warned of.
    """

    name = "start_date"
    fix = MovingStartDate.fix

    def look(self, facts: DagFacts) -> Iterator[Finding]:
        """See the class."""
        dag = facts.dag
        moving = [task for task in facts.tasks if _is_split_second(task.task.start_date)]
        if _is_split_second(dag.start_date) or moving:
            date = dag.start_date if _is_split_second(dag.start_date) else moving[0].task.start_date
            what = f"has a start date with parts of a second, so it is computed: {date.isoformat()}"
            yield self._refused(facts, what, () if _is_split_second(dag.start_date) else _ids(moving))
        elif dag.start_date is not None:
            dates = clock_dates_of_file(dag.fileloc or "")
            what = f"has a start date that line {dates.line_of(facts.dag_id)} of its file computes from the clock"
            if facts.dag_id in dates.dag_ids:
                yield self._refused(facts, what, ())
            elif dates.line_of(facts.dag_id):
                yield Finding(f"{what}, as far as can be told", self.fix)

    def _refused(self, facts: DagFacts, what: str, tasks: tuple[str, ...]) -> Finding:
        error = MovingStartDate(f"DAG {facts.dag_id} {what}.")
        return Finding(what, self.fix, tasks, lambda: "this DAG is left out", error)


class SplitWrite(Rule):
    """
    A delete and the insert that belongs to it are one task.

    Two tasks are two transactions: between them readers see the gap, and a retry or a clear of the second alone
    doubles the rows. No policy can join them: enforced, it is warned of as well. Case: stellar-etl-airflow#421.
    """

    name = "split_write"
    fix = "Make them one task: IdempotentLoadOperator deletes and inserts in one transaction."

    def look(self, facts: DagFacts) -> Iterator[Finding]:
        """See the class."""
        unsafe = [task for task in facts.tasks if task.is_unsafe]
        inserts = _Inserts(unsafe)
        deleting: dict[tuple[str, str], list[TaskFacts]] = {}
        for task in unsafe:
            for table in set(_tables(task, "deletes")).difference(_tables(task, "inserts")):
                deleting.setdefault((table, _place(task)), []).append(task)
        for (table, place), deleters in sorted(deleting.items()):
            inserters = inserts.into(table, place)
            if inserters:
                shown = "one table" if "jinja_" in table else table
                what = f"deletes from {shown} in {_some(deleters)} and inserts into it in {_some(inserters)}"
                tasks = dict.fromkeys((*_ids(deleters[:_MOST_LISTED]), *_ids(inserters[:_MOST_LISTED])))
                yield Finding(what, self.fix, tuple(tasks))


RULES: tuple[Rule, ...] = (
    UnsafeBackfill(),
    MaxActiveRuns(),
    Catchup(),
    RetriesMissing(),
    SplitWrite(),
    StartDate(),
)


def _ids(tasks: Iterable[TaskFacts]) -> tuple[str, ...]:
    return tuple(task.task_id for task in tasks)


def _tables(task: TaskFacts, what: Literal["deletes", "inserts"]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(effect.table for effect in task.effects if getattr(effect, what) and effect.table))


class _Inserts:
    """The tasks that insert, found by a table's name or the end of it: ``t`` and ``mart.t`` may be one table."""

    def __init__(self, tasks: Sequence[TaskFacts]) -> None:
        self._by_name: dict[str, list[TaskFacts]] = {}
        self._by_end: dict[str, list[TaskFacts]] = {}
        for task in tasks:
            for table in _tables(task, "inserts"):
                self._by_name.setdefault(table, []).append(task)
                for end in _ends(table):
                    self._by_end.setdefault(end, []).append(task)
        self._deletes = {id(task): frozenset(_tables(task, "deletes")) for task in tasks}
        self._place = {id(task): _place(task) for task in tasks}

    def into(self, table: str, place: str) -> list[TaskFacts]:
        """The tasks that insert into a table and do not delete from it themselves, each once."""
        found = [*self._by_end.get(table, ())]
        for end in _ends(table):
            found += self._by_name.get(end, ())
        return [
            task
            for key, task in {id(task): task for task in found}.items()
            if table not in self._deletes[key] and (not place or self._place[key] in ("", place))
        ]


def _ends(table: str) -> list[str]:
    """``a.b.c``, ``b.c``, ``c``."""
    return list(accumulate(reversed(table.split(".")), lambda end, part: f"{part}.{end}"))


def _place(task: TaskFacts) -> str:
    """The connection that a task names; empty where it names none: then it may be any."""
    given = argument(task.task, "conn_id")
    return "" if given is None else str(given)


def _some(tasks: list[TaskFacts]) -> str:
    return tasks[0].task_id + (f" and {len(tasks) - 1} more" if len(tasks) > 1 else "")


def _writes(tasks: list[TaskFacts]) -> str:
    return "; ".join(dict.fromkeys(_readable(task.writes) for task in tasks))


def _readable(writes: str) -> str:
    return ", ".join(w.split(" jinja_")[0] if " jinja_" in w else w for w in writes.split(", "))


def _unknown(facts: DagFacts) -> Iterator[Finding]:
    tasks = [task for task in facts.tasks if task.unknown and not (task.writes or task.is_safe or task.fault)]
    if tasks:
        seen = ", ".join(dict.fromkeys(task.unknown for task in tasks))
        fix = "Name its class in writing_operators if it writes."
        yield Finding(f"has tasks of which it is not known whether they write: {seen}", fix, _ids(tasks), is_note=True)


def _unread(facts: DagFacts) -> Iterator[Finding]:
    tasks = [task for task in facts.tasks if task.fault]
    if tasks:
        seen = "; ".join(dict.fromkeys(task.fault for task in tasks))
        fix = "Mend the attribute that raises this when it is read, or make an exception."
        yield Finding(f"has tasks that cannot be looked at: {seen}", fix, _ids(tasks))


def _can_be_backfilled(dag: Any) -> bool:
    """Airflow backfills DAGs with a schedule that repeats."""
    kinds = {kind.__name__ for kind in type(dag.timetable).__mro__}
    return bool(dag.timetable.can_be_scheduled) and not kinds & _NOT_BACKFILLED


def _run_types(dag: Any) -> set[str] | None:
    """The run types that the author allows, by value; None: all."""
    allowed = getattr(dag, "allowed_run_types", None)
    return {str(getattr(one, "value", one)) for one in allowed} if allowed else None


def _forbid_backfill(dag: Any) -> str:
    from airflow.utils.types import DagRunType

    allowed = _run_types(dag) or {kind.value for kind in DagRunType}
    dag.allowed_run_types = sorted(allowed - {BACKFILL})
    return "backfills of it are refused"


def _lower(dag: Any, cap: int) -> str:
    dag.max_active_runs = cap
    return f"max_active_runs is {cap}"


def _does_nothing(task: Any) -> bool:
    return getattr(task, "inherits_from_empty_operator", False) is True


def _has_own_policy(task: Any) -> bool:
    policy = getattr(task, "retry_policy", None)
    return policy is not None and not type(policy).__module__.startswith("airflow_safe_ops.")


def _why_left_alone(task: TaskFacts, dag: Any) -> str:
    """Why the rule on retries leaves a task alone; empty where it does not."""
    if _has_own_policy(task.task):
        return "have a retry policy of their own"
    if _says_no_retries(task.task, dag):
        return "say retries=0"
    if task.is_unsafe:
        return "are not safe to repeat, so that a retry may write twice"
    return "may write, which cannot be told" if task.unknown and not task.is_safe else ""


def _says_no_retries(task: Any, dag: Any) -> bool:
    """Whether somebody wrote retries=0: the arguments are kept of a task, and not of a mapped one."""
    if is_mapped(task):
        return "retries" in (dag.default_args or {})
    return "retries" in getattr(task, "_BaseOperator__init_kwargs", {})


def _give_retries(tasks: list[TaskFacts], count: int) -> str:
    from airflow_safe_ops.retry import SafeRetryPolicy

    for facts in tasks:
        facts.task.retries = count
        if getattr(facts.task, "retry_policy", None) is None:
            facts.task.retry_policy = SafeRetryPolicy()
    return f"they have {count} retries and SafeRetryPolicy"


def _is_split_second(date: Any) -> bool:
    return bool(getattr(date, "microsecond", 0))
