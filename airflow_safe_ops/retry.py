"""SafeRetryPolicy: how often, and how soon, a task is tried again, by the class of its failure."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from airflow_safe_ops.errors import FailureClass, InvalidRetryPolicy, SafeOpsError
from airflow_safe_ops.failures.classify import Verdict, classify
from airflow_safe_ops.failures.evidence import words_of
from airflow_safe_ops.failures.registry import use_configured
from airflow_safe_ops.failures.retries import (
    DEFAULTS,
    NEVER,
    NEVER_RETRIED,
    TOTAL,
    Retries,
    check_retries,
    checked_span,
    plain,
    retries_from,
    told,
)
from airflow_safe_ops.settings import failure_rules_text

if TYPE_CHECKING:
    from airflow.sdk.definitions.retry_policy import RetryAction, RetryDecision, RetryPolicy

    HAS_RETRY_POLICY = True
else:
    try:
        from airflow.sdk.definitions.retry_policy import RetryAction, RetryDecision, RetryPolicy

        HAS_RETRY_POLICY = True
    except ImportError:  # Airflow before 3.3: nobody asks a policy
        RetryPolicy, HAS_RETRY_POLICY = object, False

log = logging.getLogger(__name__)
_KEY = "safe_ops_retries"


class SafeRetryPolicy(RetryPolicy):
    """
    A retry policy that asks of which class a failure is before it spends a try.

    What may heal by itself is tried again, with delays that grow; what a person has to heal (rows, rights, schema,
    code) fails at once, with the reason. What no rule knows is retried as the task says. A deadlock or a commit
    conflict repeats the whole task, since its transaction was rolled back: with this package's operators that
    repeats the whole load of one partition.

    Airflow never goes beyond the task's ``retries``: a task whose ``retries`` are fewer than what the policy wants
    says so once, in its log. Tries are counted by class, in the task's state store where there is one, so a process
    that was killed, which no policy sees, uses up Airflow's retries and not the policy's. Needs Airflow 3.3.

    :param transient: network, time-out, a server that goes down; default 5 tries, 30 s to 10 minutes apart.
    :param contention: deadlock, serialization, lock wait, commit conflict; default 6 tries, 10 s to 2 minutes apart.
    :param resource: disk, quota, too many connections; default 4 tries, 2 to 30 minutes apart.
    :param cancelled: stopped by a person or a limit; default 2 tries, the task's own delay apart.
    :param late_input: the source is not there yet; default never: a sensor waits for it.
    :param total: no try begins later than this after the first one began, default 6 hours.
    :raises InvalidRetryPolicy: a value is out of range.
    """

    def __init__(
        self,
        *,
        transient: Retries | None = None,
        contention: Retries | None = None,
        resource: Retries | None = None,
        cancelled: Retries | None = None,
        late_input: Retries | None = None,
        total: timedelta = TOTAL,
    ) -> None:
        given = {
            FailureClass.TRANSIENT: transient,
            FailureClass.CONTENTION: contention,
            FailureClass.RESOURCE: resource,
            FailureClass.CANCELLED: cancelled,
            FailureClass.LATE_INPUT: late_input,
        }
        for name, how in given.items():
            check_retries(name, how)
        self.retries = {**DEFAULTS, **{name: how for name, how in given.items() if how is not None}}
        self.total = checked_span("total", total)

    def evaluate(
        self, exception: BaseException, try_number: int, max_tries: int, context: Any | None = None
    ) -> RetryDecision:
        """
        Decide what follows a failed try; called in the process of the task. It never raises.

        :param exception: what it raised.
        :param try_number: the try, from 1.
        :param max_tries: the last try that Airflow's ``retries`` allow a retry after.
        """
        try:
            return self._decided(classified(exception), try_number, max_tries, context)
        except Exception:
            log.exception("SafeRetryPolicy could not decide")
            return RetryDecision(action=RetryAction.DEFAULT, reason="The policy failed; the task's retries count.")

    def _decided(self, verdict: Verdict, try_number: int, max_tries: int, context: Any | None) -> RetryDecision:
        story = _story(context, try_number, max_tries)
        failed = story.count(verdict.failure)
        story.keep(context)
        kind = _kind(verdict)
        how = self.retries.get(verdict.failure)
        if how is None:
            return RetryDecision(action=RetryAction.DEFAULT, reason=f"{kind} It is retried as the task says.")
        if how.tries == 1:
            return RetryDecision.fail(f"{kind} It is never tried again. {verdict.advice}")
        if failed >= how.tries:
            return RetryDecision.fail(f"{kind} Try {failed} of {how.tries} for this class: no more.")
        return self._again(verdict, how, failed, story, (try_number, max_tries))

    def _again(
        self, verdict: Verdict, how: Retries, failed: int, story: _Story, airflow: tuple[int, int]
    ) -> RetryDecision:
        kind, (try_number, max_tries) = _kind(verdict), airflow
        delay, asked = how.before(failed, story.chance(try_number)), ""
        if verdict.retry_after is not None:
            delay, asked = timedelta(seconds=max(1.0, verdict.retry_after)), ", as the server asks"
        if story.spent() + (delay or timedelta()) > self.total:
            spent = told(story.spent())
            return RetryDecision.fail(f"{kind} {spent} went into it, of {told(self.total)} in total: no more.")
        if try_number > max_tries:
            return RetryDecision(
                action=RetryAction.DEFAULT,
                reason=f"{kind} The task's retries are used up; the policy would try {how.tries} times.",
            )
        left = max_tries + 1 - try_number
        if failed == 1 and left < how.tries - 1:
            log.warning(
                "retries=%d: SafeRetryPolicy would use %d against a failure of class %s. Raise retries.",
                left,
                how.tries - 1,
                verdict.failure,
            )
        when = f"in {told(delay)}{asked}" if delay is not None else "after the task's retry_delay"
        return RetryDecision.retry(
            delay, f"{kind} Try {failed + 1} of {min(how.tries, failed + left)} for this class {when}."
        )

    def serialize(self) -> dict[str, Any]:
        """As a dict of JSON; the same for equal policies."""
        of_class = {str(name): plain(how) for name, how in sorted(self.retries.items())}
        return {"__type": "SafeRetryPolicy", "retries": of_class, "total": self.total.total_seconds()}

    @classmethod
    def deserialize(cls, data: dict[str, Any]) -> SafeRetryPolicy:
        """
        From what :meth:`serialize` made.

        :raises InvalidRetryPolicy: it is something else.
        """
        try:
            known = {FailureClass(name): retries_from(facts) for name, facts in data["retries"].items()}
            policy = cls(total=timedelta(seconds=data["total"]))
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise InvalidRetryPolicy(f"This is no serialized SafeRetryPolicy: {error!r}.") from error
        if set(known) != set(DEFAULTS) or any(known[name] != NEVER for name in NEVER_RETRIED):
            raise InvalidRetryPolicy(
                "This is no serialized SafeRetryPolicy: it has other classes, or retries for data."
            )
        policy.retries = {**policy.retries, **known}
        return policy

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SafeRetryPolicy) and self.serialize() == other.serialize()

    def __hash__(self) -> int:
        return hash(repr(self))

    def __repr__(self) -> str:
        changed = {str(n): how for n, how in sorted(self.retries.items()) if how != DEFAULTS[n]}
        parts = [f"{name}={how!r}" for name, how in changed.items()]
        if self.total != TOTAL:
            parts.append(f"total={self.total!r}")
        return f"SafeRetryPolicy({', '.join(parts)})"


def classified(error: BaseException) -> Verdict:
    """The class of a failure, by the installation's rules too; nothing that is wrong with those hides the failure."""
    try:
        use_rules(failure_rules_text())
    except Exception:
        log.exception("[safe_ops] failure_rules cannot be read and is left out")
    return classify(error)


def use_rules(text: str) -> None:
    """Take the installation's rules in this process; those that are not usable are logged and left out."""
    try:
        use_configured(text)
    except SafeOpsError:
        log.exception("[safe_ops] failure_rules is left out")


def fail_if_terminal(error: BaseException) -> None:
    """
    Fail the task at once where another try cannot help: what there is before Airflow 3.3, or without a policy.

    :raises AirflowFailException: from the error.
    """
    from airflow.providers.common.compat.sdk import AirflowFailException

    verdict = classified(error)
    if verdict.failure.is_terminal:
        said = words_of(error) if isinstance(error, SafeOpsError) else f"{_kind(verdict)} {words_of(error)}"
        raise AirflowFailException(said) from error


def give_policy(task: Any) -> None:
    """The default policy for a task to which nobody gave one; nothing before Airflow 3.3."""
    if HAS_RETRY_POLICY and task.retry_policy is None:
        task.retry_policy = SafeRetryPolicy()


def hand_over(task: Any, error: BaseException) -> None:
    """
    Before an operator of ours raises its error: let Airflow do what fits it.

    A task with a policy raises the error itself, so that the policy sees it and its reason is told.

    :raises AirflowFailException: from the error, where the task is not to be retried and nobody would ask a policy.
    """
    from airflow.providers.common.compat.sdk import AirflowFailException

    if not task.retry_on_failure:
        raise AirflowFailException(words_of(error)) from error
    if getattr(task, "retry_policy", None) is None:
        fail_if_terminal(error)


@contextmanager
def fails_at_once() -> Iterator[None]:
    """What fails in the block in a way that no retry heals fails the task at once; for any code of a task."""
    try:
        yield
    except Exception as error:
        fail_if_terminal(error)
        raise


@dataclass
class _Story:
    """
    The failed tries of one task in one run since it was last cleared.

    :param began: when the first of them began, as far as this is known.
    :param counts: how many failed, by class.
    :param series: which clear of the run and which first try they belong to.
    """

    series: str
    began: datetime
    counts: dict[str, int]
    seed: str

    def count(self, failure: FailureClass) -> int:
        """One more."""
        self.counts[failure] = self.counts.get(failure, 0) + 1
        return self.counts[failure]

    def spent(self) -> timedelta:
        """Since the first try began."""
        return max(timedelta(), datetime.now(UTC) - self.began)

    def chance(self, try_number: int) -> float:
        """A number between 0 and 1 that is the same whenever it is asked for one try."""
        digest = hashlib.sha256(f"{self.seed}|{try_number}".encode()).digest()
        return int.from_bytes(digest[:8], "big") / 2**64

    def keep(self, context: Any | None) -> None:
        """In the task's state store, which outlives the try; the series tells it from those before a clear."""
        store = _store(context)
        if store is None:
            return
        try:
            store.set(_KEY, {"series": self.series, "began": self.began.isoformat(), "counts": self.counts})
        except Exception:
            log.warning("the count of failed tries could not be kept; Airflow's try number counts", exc_info=True)


def _story(context: Any | None, try_number: int, max_tries: int) -> _Story:
    """What is known of the tries before this one; without a store, as if all of them had failed in this way."""
    ti = context.get("ti") if context else None
    retries = getattr(getattr(ti, "task", None), "retries", None)
    first = 1 if retries is None else max(1, max_tries - int(retries) + 1)
    run = context.get("dag_run") if context else None
    series = f"{getattr(run, 'clear_number', 0) or 0}.{first}"
    began = _began(getattr(ti, "start_date", None)) or datetime.now(UTC)
    names = ("dag_id", "task_id", "run_id", "map_index")
    seed = "|".join(str(getattr(ti, name, "")) for name in names)
    before = max(0, try_number - first)
    kept = _kept(context)
    if kept and kept.get("series") == series:
        try:
            told = {str(FailureClass(name)): max(0, int(n)) for name, n in kept["counts"].items()}
            return _Story(series, min(began, datetime.fromisoformat(kept["began"])), told, seed)
        except Exception:
            log.warning("the kept count of failed tries cannot be read; it begins anew", exc_info=True)
    counts = {} if _store(context) is not None else dict.fromkeys(map(str, FailureClass), before)
    return _Story(series, began, counts, seed)


def _began(start: Any) -> datetime | None:
    return start if isinstance(start, datetime) and start.tzinfo is not None else None


def _kept(context: Any | None) -> dict[str, Any] | None:
    store = _store(context)
    if store is None:
        return None
    try:
        kept = store.get(_KEY)
    except Exception:
        log.warning("the task's state store could not be read", exc_info=True)
        return None
    return kept if isinstance(kept, dict) else None


def _store(context: Any | None) -> Any | None:
    return context.get("task_state_store") if context else None


def _kind(verdict: Verdict) -> str:
    code = f" ({verdict.code.replace(':', ' ')})" if verdict.code and not verdict.code.startswith("so:") else ""
    return f"{str(verdict.failure).capitalize().replace('_', ' ')} failure: {verdict.reason}{code}."
