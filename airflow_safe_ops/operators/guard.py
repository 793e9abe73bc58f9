"""
A claim, a ledger row and checks around a write that is not ours: dbt, Cosmos, a stored procedure, Spark, COPY.

Three ways to the same guard: ``with partition_claim(…)``, ``@guarded(…)`` on a function, and
``AnyOperator(…, **guard(…))``. The guarantee is called *guarded* and is less than that of our own operators, which
is *atomic*: what the writer commits cannot be undone by us.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from functools import partial, wraps
from typing import TYPE_CHECKING, Any, NoReturn, ParamSpec, TypeVar

from airflow_safe_ops.definition.checks import Check, check_from
from airflow_safe_ops.definition.guard import GuardedTarget, OnRepeat
from airflow_safe_ops.definition.load import OnEmpty
from airflow_safe_ops.definition.notation import partition_from
from airflow_safe_ops.definition.partition import Partition, TimePartition, ValuePartition, WholeTable
from airflow_safe_ops.errors import InvalidArgument, SafeOpsError, Unfenced
from airflow_safe_ops.retry import fail_if_terminal
from airflow_safe_ops.settings import load_settings

if TYPE_CHECKING:
    from airflow_safe_ops.execution.guard import GuardedWrite

log = logging.getLogger(__name__)
P = ParamSpec("P")
R = TypeVar("R")
PartitionGiven = Partition | Mapping[str, Any] | str
Hook = Callable[..., None]
MARK = "__safe_ops_guard__"


@contextmanager
def partition_claim(
    conn_id: str,
    table: str,
    partition: PartitionGiven,
    *,
    on_repeat: OnRepeat = "fail",
    on_empty: OnEmpty = "fail",
    post_checks: Sequence[Check] = (),
    lock_timeout: float | timedelta | None = None,
    context: Mapping[str, Any] | None = None,
) -> Iterator[GuardedWrite]:
    """
    Hold the claim on a partition while something else writes it.

    What makes a re-run safe: nobody who takes claims writes the partition meanwhile; rows that are there before the
    writer starts are a decision; the ledger has the partition as ``unconfirmed`` until the writer has ended and the
    checks have passed, so a kill at any moment is seen.

    :param conn_id: connection of the database that holds the target; the writer may use another one (templated)
    :param table: the target, ``schema.table`` (templated)
    :param partition: the part of it that this run writes; with ``lookback`` one range over all its grains (templated)
    :param on_repeat: the partition holds rows before the writer starts: ``fail`` (default); ``clean_up`` deletes them
        first; ``allow`` if the writer itself replaces or merges
    :param on_empty: the writer leaves no row where there were some: ``fail`` (default), after the fact, or ``replace``
    :param post_checks: checks on the partition after the writer has ended; a failed one leaves it ``unconfirmed``
    :param lock_timeout: longest wait for another load or writer, in seconds or as timedelta; 0 refuses at once;
        default ``[safe_ops] lock_timeout``, 600 seconds
    :param context: Airflow's context; default the running task's
    :return: the guarded write; ``scope.key`` and ``scope.binds`` say what it owns
    :raises SafeOpsError: the partition holds rows (``WriteRepeated``), somebody else held it for longer than
        ``lock_timeout`` (``ClaimTimeout``), a check failed (``PostCheckFailed``; what the writer committed stays), the
        claim was lost meanwhile (``Unfenced``)
    :raises AirflowFailException: one of these that no retry heals, where the task has no ``retry_policy``;
        ``__cause__`` is the error
    """
    if context is None:
        from airflow.sdk import get_current_context

        context = get_current_context()
    with _Guard(conn_id, table, partition, on_repeat, on_empty, post_checks, lock_timeout).around(context) as write:
        yield write


def guarded(
    conn_id: str,
    table: str,
    partition: PartitionGiven,
    *,
    on_repeat: OnRepeat = "fail",
    on_empty: OnEmpty = "fail",
    post_checks: Sequence[Check] = (),
    lock_timeout: float | timedelta | None = None,
) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """
    Hold the claim on a partition while a TaskFlow function runs: ``@task`` above, ``@guarded(…)`` below it.

    Safe to repeat as :func:`partition_claim` is, which has the parameters and what is raised.
    """
    guard_of = _Guard(conn_id, table, partition, on_repeat, on_empty, post_checks, lock_timeout)

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
            raise InvalidArgument(
                f"{function.__name__} is guarded and a generator.",
                why="It would write after the guard has ended.",
                fix="Use partition_claim inside it.",
            )

        @wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> R:
            from airflow.sdk import get_current_context

            with guard_of.around(get_current_context()):
                return function(*args, **kwargs)

        @wraps(function)
        async def call_async(*args: P.args, **kwargs: P.kwargs) -> Any:
            from airflow.sdk import get_current_context

            with guard_of.around(get_current_context()):
                return await function(*args, **kwargs)  # type: ignore[misc]

        made: Any = call_async if inspect.iscoroutinefunction(function) else call
        setattr(made, MARK, True)
        return made  # type: ignore[no-any-return]

    return decorate


def guard(
    conn_id: str,
    table: str,
    partition: PartitionGiven,
    *,
    on_repeat: OnRepeat = "fail",
    on_empty: OnEmpty = "fail",
    post_checks: Sequence[Check] = (),
    lock_timeout: float | timedelta | None = None,
    pre_execute: Callable[[Any], None] | None = None,
    post_execute: Callable[[Any, Any], None] | None = None,
) -> dict[str, Any]:
    """
    Arguments that put any operator under the claim: ``AnyOperator(task_id=…, **guard("dwh", "mart.x", DAY))``.

    Safe to repeat as :func:`partition_claim` is, which has the parameters and what is raised. The task's process holds
    the claim: an operator that defers gives it up, and is refused. The task's callbacks stay its own.

    :param pre_execute: your own hook, called with the context once the claim is held; default None
    :param post_execute: your own hook, called with context and result before the claim is given back; default None
    """
    declared = _Guard(conn_id, table, partition, on_repeat, on_empty, post_checks, lock_timeout)
    return _Hooks(declared, pre_execute, post_execute).arguments()


class _Guard:
    """What an author declared; each try opens a write of its own."""

    def __init__(
        self,
        conn_id: str,
        table: str,
        partition: PartitionGiven,
        on_repeat: OnRepeat,
        on_empty: OnEmpty,
        post_checks: Sequence[Check],
        lock_timeout: float | timedelta | None,
    ) -> None:
        self.conn_id, self.table, self.partition = conn_id, table, partition
        self.on_repeat, self.on_empty = on_repeat, on_empty
        self.post_checks = tuple(check_from(check) for check in post_checks)
        self.lock_timeout = lock_timeout.total_seconds() if isinstance(lock_timeout, timedelta) else lock_timeout
        is_literal = isinstance(partition, TimePartition | ValuePartition | WholeTable) or "{{" not in str(partition)
        GuardedTarget(
            table, partition_from(partition) if is_literal else WholeTable(), on_repeat, on_empty, self.post_checks
        )

    @contextmanager
    def around(self, context: Mapping[str, Any]) -> Iterator[GuardedWrite]:
        """The write of this try, from its claim to its record."""
        from airflow_safe_ops.execution.guard import guarding

        with _told(context):
            write = self.write(context)
        with guarding(write, lambda: _told(context)):
            yield write

    def write(self, context: Mapping[str, Any]) -> GuardedWrite:
        """The write of this try, not begun."""
        from airflow_safe_ops.context import database_of, run_identity
        from airflow_safe_ops.execution.guard import GuardedWrite
        from airflow_safe_ops.ledger.claims import Patience

        task = context["task"]

        def render(given: Any) -> Any:
            return task.render_template(given, context)

        settings = load_settings()
        hook, dialect = database_of(render(self.conn_id))
        patience = settings.lock_timeout if self.lock_timeout is None else float(self.lock_timeout)
        declared = self.partition
        if not isinstance(declared, TimePartition | ValuePartition | WholeTable):
            declared = partition_from(render(declared))
        checks = tuple(check.rendered(render) for check in self.post_checks)
        return GuardedWrite(
            GuardedTarget(render(self.table), declared.rendered(render), self.on_repeat, self.on_empty, checks),
            run_identity(context, instance=settings.instance),
            hook.get_conn,
            dialect,
            Patience(patience, settings.claim_grace),
        )


class _Hooks:
    """An operator's hooks around one guard; the author's own are called inside the claim."""

    def __init__(self, guard_of: _Guard, before: Hook | None, after: Hook | None) -> None:
        self._guard, self._before, self._after = guard_of, before, after
        self._open: dict[tuple[Any, ...], GuardedWrite] = {}

    def arguments(self) -> dict[str, Any]:
        """The operator's arguments."""

        def pre_execute(context: Any) -> None:
            self._begin(context)
            if self._before is not None:
                self._before(context)

        def post_execute(context: Any, result: Any = None) -> None:
            if self._after is not None:
                self._after(context, result)
            with _told(context):
                self._end(context)

        setattr(pre_execute, MARK, True)
        return {"pre_execute": pre_execute, "post_execute": post_execute}

    def _begin(self, context: Any) -> None:
        task = context["task"]
        with _told(context):
            _refuse(task, context["ti"])
            write = self._guard.write(context)
            write.begin()
        self._open[_try_of(context)] = write
        task.defer = partial(_refuse_to_defer, task)
        for name in ("on_failure_callback", "on_retry_callback", "on_skipped_callback"):
            _put_first(task, name, self._gave_up)
        _put_first(task, "on_success_callback", self._ended_early)

    def _end(self, context: Any) -> None:
        write = self._open.pop(_try_of(context), None)
        if write is None:
            raise Unfenced(f"{context['task'].task_id} has ended and its guard had never begun.")
        write.end()

    def _ended_early(self, context: Any) -> None:
        """An operator that ends by an exception and in success (a branch, a trigger of another run) has no hook."""
        if _try_of(context) in self._open:
            self._end(context)

    def _gave_up(self, context: Any) -> None:
        """A try that did not end well: the claim is given back before the task's own callbacks are called."""
        write = self._open.pop(_try_of(context), None)
        if write is not None:
            error = context.get("exception")
            write.fail(error if isinstance(error, BaseException) else RuntimeError(str(error or "no success")))


def _refuse(task: Any, ti: Any) -> None:
    started = getattr(ti, "_ti_context_from_server", None)
    is_resumed = getattr(started, "next_method", None) is not None
    waits = any(getattr(task, name, False) is True for name in ("deferrable", "start_from_trigger", "reschedule"))
    if waits or is_resumed:
        _refuse_to_defer(task)
    if getattr(task, "safe_to_repeat", False):
        raise InvalidArgument(
            f"{task.task_id} is guarded and a {type(task).__name__}.",
            why="It takes its own claim, and would wait for that of its guard.",
            fix="Leave the guard out.",
        )


def _refuse_to_defer(task: Any, *_: Any, **__: Any) -> NoReturn:
    raise InvalidArgument(
        f"{task.task_id} is guarded, and defers or is rescheduled.",
        why="That ends its process, and with it the connection that holds the claim.",
        fix="Let it wait in its process (deferrable=False), or put the writer into a function under partition_claim.",
    )


def _put_first(task: Any, name: str, callback: Hook) -> None:
    """Beside the task's own, wherever it has them from: ``default_args`` too."""
    theirs = getattr(task, name, None) or []
    setattr(task, name, [callback, *(theirs if isinstance(theirs, list | tuple) else [theirs])])


@contextmanager
def _told(context: Mapping[str, Any]) -> Iterator[None]:
    """A refusal that no retry heals fails the task at once, where no policy is asked."""
    try:
        yield
    except SafeOpsError as error:
        if getattr(context["task"], "retry_policy", None) is None:
            fail_if_terminal(error)
        raise


def _try_of(context: Any) -> tuple[Any, ...]:
    """One process may run several tasks one after another, and the mapped ones of one operator share its hooks."""
    ti = context["ti"]
    return ti.dag_id, ti.task_id, context["run_id"], ti.map_index, ti.try_number
