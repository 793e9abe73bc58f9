"""What a policy knows of a DAG's tasks: which write, and which are safe to repeat."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from airflow_safe_ops.policies.functions import called_by, written_by
from airflow_safe_ops.settings import PolicySettings
from airflow_safe_ops.sql.kinds import SqlEffect, sql_effects

REPEATABLE_TAG = "safe_ops:repeatable"
GUARD_MARK = "__safe_ops_guard__"
SAFE_MARK = "safe_to_repeat"


@dataclass(frozen=True)
class TaskFacts:
    """
    A task as the rules see it.

    :param task: the operator, mapped or not.
    :param kind: its class.
    :param effects: what its SQL does, statement by statement.
    :param unknown: why it is not known all that it writes; empty where there is no SQL or all is read.
    :param writes: what it writes, for people; empty where it does not write as far as is known.
    :param is_safe: it may run again.
    :param fault: the error that reading the task ended with; empty: none.
    """

    task: Any
    kind: type
    effects: tuple[SqlEffect, ...] = ()
    unknown: str = ""
    writes: str = ""
    is_safe: bool = False
    fault: str = ""

    @property
    def task_id(self) -> str:
        """The task's id."""
        return str(self.task.task_id)

    @property
    def is_unsafe(self) -> bool:
        """It writes, and a repeat may write again."""
        return bool(self.writes) and not self.is_safe


@dataclass(frozen=True)
class DagFacts:
    """
    A DAG as the rules see it.

    :param dag: the DAG itself.
    :param tasks: its tasks.
    :param settings: what the installation asks of it.
    """

    dag: Any
    tasks: tuple[TaskFacts, ...]
    settings: PolicySettings

    @property
    def dag_id(self) -> str:
        """The DAG's id."""
        return str(self.dag.dag_id)


def dag_facts(dag: Any, settings: PolicySettings) -> DagFacts:
    """Look at each task of a DAG once. One that cannot be read is unknown, and hides nothing of the others."""
    is_repeatable = REPEATABLE_TAG in (getattr(dag, "tags", None) or ())
    writing = settings.writing_operators
    return DagFacts(dag, tuple(_task_facts(task, dag, writing, is_repeatable) for task in dag.tasks), settings)


def is_mapped(task: Any) -> bool:
    """Whether the task is expanded at run time."""
    return hasattr(task, "partial_kwargs")


def argument(task: Any, name: str) -> Any:
    """An argument of an operator, mapped or not; None where it has none."""
    given = task.partial_kwargs.get(name) if is_mapped(task) else None
    return getattr(task, name, None) if given is None else given


def is_guarded(task: Any) -> bool:
    """
    Whether a guard stands around the task: the mark is on one of its callables or on the task itself.

    :param task: an operator, mapped or not.
    """
    names = ("_pre_execute_hook", "pre_execute", "python_callable")
    holders = (task, *(argument(task, name) for name in names))
    return any(getattr(one, GUARD_MARK, False) for holder in holders for one in (holder, called_by(holder)))


def _task_facts(task: Any, dag: Any, writing_operators: Collection[str], is_repeatable: bool) -> TaskFacts:
    try:
        return _read(task, dag, writing_operators, is_repeatable)
    except Exception as error:  # noqa: BLE001 - the task's own properties run here, and may raise anything
        kind = _kind(task)
        fault = f"{type(error).__name__}: {' '.join(str(error).split())}"
        is_safe = is_repeatable or getattr(kind, SAFE_MARK, False) is True
        return TaskFacts(
            task, kind, (), f"reading it failed with {fault}", _named(kind, writing_operators), is_safe, fault
        )


def _read(task: Any, dag: Any, writing_operators: Collection[str], is_repeatable: bool) -> TaskFacts:
    kind = _kind(task)
    effects: list[SqlEffect] = []
    unknown: list[str] = []
    for text in _sql_of(task, dag, unknown.append):
        effects += sql_effects(text)
    unknown += [effect.verb for effect in effects if effect.is_unknown]
    writes = _named(kind, writing_operators) or ", ".join(
        dict.fromkeys(str(effect) for effect in effects if effect.writes)
    )
    writes = writes or written_by(argument(task, "python_callable"))
    is_safe = is_repeatable or getattr(kind, SAFE_MARK, False) is True or is_guarded(task)
    return TaskFacts(task, kind, tuple(effects), ", ".join(dict.fromkeys(unknown)), writes, is_safe)


def _kind(task: Any) -> type:
    kind = getattr(task, "operator_class", None) if is_mapped(task) else None
    return kind if isinstance(kind, type) else type(task)


def _named(kind: type, writing_operators: Collection[str]) -> str:
    """The class's name where it, or one that it inherits from, is named as writing; else nothing."""
    names = (f"{base.__module__}.{base.__qualname__}" for base in kind.__mro__)
    return kind.__name__ if any(name in writing_operators for name in names) else ""


def _sql_of(task: Any, dag: Any, unknown: Callable[[str], None]) -> Iterator[str]:
    """The texts of a task's ``sql``; what is no text here and now goes to `unknown`."""
    for given in _values(task, "sql"):
        for text in given if isinstance(given, list | tuple) else (given,):
            if not isinstance(text, str):
                unknown("SQL that is made at run time")
            elif text.rstrip().endswith(".sql") and "\n" not in text.strip():
                read = _template_file(dag, text.strip())
                if read is None:
                    unknown(f"the file {text.strip()}")
                else:
                    yield read
            else:
                yield text


def _values(task: Any, name: str) -> Iterator[Any]:
    """The values of an operator's argument; a mapped task may have one for each of its instances."""
    value = argument(task, name)
    yield from () if value is None else (value,)
    expanded = getattr(getattr(task, "expand_input", None), "value", None)
    if isinstance(expanded, Mapping):
        yield from (expanded[name],) if name in expanded else ()
    elif isinstance(expanded, list | tuple):
        yield from (one[name] for one in expanded if isinstance(one, Mapping) and name in one)


def _template_file(dag: Any, name: str) -> str | None:
    """A template's text, found as Airflow finds it; Airflow itself has not read those of mapped tasks yet."""
    try:
        env = dag.get_template_env()
        return str(env.loader.get_source(env, name)[0])
    except Exception:  # noqa: BLE001 - whatever the loader says: the file is not known
        return None
