"""Each rule on one DAG: which apply, what is done, and how it is said."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any

from airflow_safe_ops.errors import PolicyFailed, SafeOpsError
from airflow_safe_ops.policies.facts import DagFacts, dag_facts
from airflow_safe_ops.policies.rules import RULES, Finding, Rule
from airflow_safe_ops.settings import PolicySettings, load_policy_settings

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Remark:
    """
    What the policy says of a DAG.

    :param dag_id: the DAG.
    :param rule: the rule's name.
    :param mode: how the rule is set.
    :param what: what it found, or why it does not look.
    :param tasks: the tasks it is about; none: the DAG.
    :param done: what was set right; empty: nothing.
    :param fix: what to do.
    :param is_note: for who asks; no warning.
    """

    dag_id: str
    rule: str
    mode: str
    what: str
    tasks: tuple[str, ...] = ()
    done: str = ""
    fix: str = ""
    is_note: bool = False

    def __str__(self) -> str:
        tasks = f" (tasks {', '.join(self.tasks)})" if self.tasks else ""
        done = f" Enforced: {self.done}." if self.done else ""
        return f"Policy {self.rule}: DAG {self.dag_id} {self.what}{tasks}.{done} {self.fix}".rstrip()


_MOST_SAID = 10_000
_said: set[Remark | str] = set()
_listeners: list[list[Remark]] = []


def review(dag: Any) -> SafeOpsError | None:
    """
    Look at a DAG by each rule, set right what is enforced, and say each thing once in a process.

    :param dag: the DAG as its file made it.
    :return: why the DAG is to be left out; None: it goes through.
    """
    settings = policy_settings()
    for problem in settings.problems:
        _say_problem(problem)
    if set(settings.modes.values()) == {"off"}:
        return None
    facts = dag_facts(dag, settings)
    refusal = None
    for rule in RULES:
        try:
            for remark, refused in _remarks(rule, facts):
                refusal = refusal or refused
                _say(remark)
        except Exception as error:
            failed = PolicyFailed(f"The rule {rule.name} failed on DAG {facts.dag_id}.")
            log.exception("%s", failed)
            what = f"could not be looked at: {type(error).__name__}: {error}"
            _say(Remark(facts.dag_id, rule.name, settings.modes[rule.name], what, fix=f"{failed.code} {failed.fix}"))
    return refusal


@cache
def policy_settings() -> PolicySettings:
    """The settings, read once in a process."""
    return load_policy_settings()


@contextmanager
def listening() -> Iterator[list[Remark]]:
    """Collect what the policy says of the DAGs that are parsed meanwhile, instead of logging it."""
    heard: list[Remark] = []
    _listeners.append(heard)
    try:
        yield heard
    finally:
        _listeners.pop()


def _remarks(rule: Rule, facts: DagFacts) -> Iterator[tuple[Remark, SafeOpsError | None]]:
    settings, mode = facts.settings, facts.settings.modes[rule.name]
    if mode == "off":
        return
    tags = getattr(facts.dag, "tags", None) or ()
    exception = next((e for e in settings.exceptions if e.tag in tags and rule.name in e.rules), None)
    for finding in list(rule.look(facts)):
        if exception is not None:
            what = f"is left out by its tag {exception.tag}: {exception.reason}. It {finding.what}"
            yield Remark(facts.dag_id, rule.name, mode, what, finding.tasks, is_note=True), None
            continue
        done, fix, refusal = _enforced(rule, finding, mode)
        remark = Remark(facts.dag_id, rule.name, mode, finding.what, finding.tasks, done, fix, finding.is_note)
        yield remark, refusal


def _enforced(rule: Rule, finding: Finding, mode: str) -> tuple[str, str, SafeOpsError | None]:
    """What was done, what is left to do, and the refusal."""
    if mode != "enforce" or finding.is_note:
        return "", finding.fix, None
    if finding.enforce is None:
        return "", f"Only warned of: a policy cannot set it right. {finding.fix}", None
    if rule.needs is not None and not rule.needs.is_there():
        return "", f"Only warned of: this Airflow has no {rule.needs}. {finding.fix}", None
    return finding.enforce(), finding.fix, finding.refusal


def _say(remark: Remark) -> None:
    if _listeners:
        _listeners[-1].append(remark)
    elif remark not in _said and len(_said) < _MOST_SAID:
        _said.add(remark)
        note = logging.INFO if remark.mode == "enforce" else logging.DEBUG
        level = note if remark.is_note else logging.WARNING
        log.log(logging.DEBUG if _is_in_a_task() else level, "%s", remark)


def _say_problem(problem: SafeOpsError) -> None:
    if str(problem) not in _said:
        _said.add(str(problem))
        log.log(logging.DEBUG if _is_in_a_task() else logging.ERROR, "%s", problem)


def _is_in_a_task() -> bool:
    """A task's process parses the DAG too; its log is not the place, the dag-processor has said it."""
    from airflow.sdk import get_parsing_context

    return get_parsing_context().task_id is not None
