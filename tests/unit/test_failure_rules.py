"""Rules of the package and of users: none is asked in vain, and bad ones are refused."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from airflow_safe_ops import FailureClass, register_rule
from airflow_safe_ops.errors import AuditFailed, InvalidFailureRule
from airflow_safe_ops.failures.classify import classify
from airflow_safe_ops.failures.registry import added_rules, forget_rules, parse_rules, use_configured
from airflow_safe_ops.failures.rules import ADVICE
from airflow_safe_ops.failures.table import RULES
from airflow_safe_ops.retry import SafeRetryPolicy
from tests.failures import needs_policy

if TYPE_CHECKING:
    from collections.abc import Iterator


class Busy(Exception):
    """An error that no rule of the package knows."""


@pytest.fixture(autouse=True)
def no_rules() -> Iterator[None]:
    forget_rules()
    yield
    forget_rules()


def test_no_rule_of_the_package_is_asked_in_vain() -> None:
    shadowed = [(before, rule) for n, rule in enumerate(RULES) for before in RULES[:n] if before.covers(rule)]
    assert shadowed == []


def test_every_rule_says_why_and_what_to_do() -> None:
    assert set(ADVICE) == set(FailureClass)
    for rule in RULES:
        assert rule.codes or rule.exceptions
        assert rule.reason
        assert not rule.reason.endswith(".")
        assert rule.to_do.endswith(".")


@pytest.mark.parametrize("name", ["Busy", f"{__name__}.Busy", f"{__name__.partition('.')[0]}.elsewhere.Busy"])
def test_a_rule_by_name(name: str) -> None:
    assert classify(Busy()).failure is FailureClass.UNKNOWN
    register_rule("contention", exception=name, reason="the warehouse is busy", advice="Wait.")
    verdict = classify(Busy())
    assert (verdict.failure, verdict.reason, verdict.advice) == ("contention", "the warehouse is busy", "Wait.")


def test_a_rule_by_state_message_code_and_function() -> None:
    import psycopg

    register_rule(FailureClass.RESOURCE, sqlstate="42P01", message="relation")
    assert classify(psycopg.errors.UndefinedTable("relation t")).failure == "resource"
    assert classify(psycopg.errors.UndefinedTable("other")).failure == "contract"
    register_rule("data", sqlstate="57")
    assert classify(psycopg.errors.AdminShutdown("x")).failure == "data"
    register_rule("late_input", code="errno:ENOENT", reason="the file is not there yet")
    assert classify(FileNotFoundError(2, "No such file")).failure == "late_input"
    register_rule("transient", when=lambda error: "moon" in str(error))
    assert classify(ValueError("full moon")).failure == "transient"


def test_a_user_s_rule_comes_before_everything_else() -> None:
    register_rule("transient", exception="AuditFailed")
    assert classify(AuditFailed("x")).failure == "transient"


def test_registering_again_changes_nothing() -> None:
    for _ in range(3):
        register_rule("contention", exception="Busy")
        register_rule("transient", when=is_moon)
    assert len(added_rules()) == 2
    register_rule("resource", exception="Busy")
    assert classify(Busy()).failure == "resource"
    assert len(added_rules()) == 2


def is_moon(error: BaseException) -> bool:
    """Whether the moon is to blame."""
    return "moon" in str(error)


@needs_policy
def test_rules_of_the_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    rules = [
        {"exception": "acme.Busy", "class": "contention", "reason": "busy"},
        {"sqlstate": "40XXX", "message": "queue", "class": "resource"},
    ]
    monkeypatch.setenv("AIRFLOW__SAFE_OPS__FAILURE_RULES", json.dumps(rules))
    busy = type("Busy", (Exception,), {"__module__": "acme.client"})()
    decision = SafeRetryPolicy().evaluate(busy, 1, 9)
    assert decision.action.value == "retry"
    assert "busy" in (decision.reason or "")
    assert [rule.failure for rule in added_rules()] == ["contention", "resource"]
    monkeypatch.setenv("AIRFLOW__SAFE_OPS__FAILURE_RULES", "")
    assert SafeRetryPolicy().evaluate(busy, 1, 9).action.value == "default"


@needs_policy
def test_a_setting_that_is_wrong_fails_no_task(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW__SAFE_OPS__FAILURE_RULES", "[{]")
    assert SafeRetryPolicy().evaluate(ConnectionResetError(104, "reset"), 1, 9).action.value == "retry"


BAD = {
    "no JSON": ("{[", "no JSON"),
    "no list": ('{"class": "data"}', "no JSON list"),
    "unknown class": ('[{"exception": "a.B", "class": "fatal"}]', "no class 'fatal'"),
    "no class": ('[{"exception": "a.B"}]', "names no class"),
    "unknown key": ('[{"exeption": "a.B", "class": "data"}]', "exeption"),
    "no text": ('[{"sqlstate": 40001, "class": "data"}]', "sqlstate is no text"),
    "nothing to match": ('[{"class": "data", "reason": "x"}]', "know every error"),
    "empty": ('[{"class": "data", "exception": ""}]', "know every error"),
    "no pattern": ('[{"class": "data", "message": "("}]', "no regular expression"),
    "every message": ('[{"class": "data", "message": ".*"}]', "found in every text"),
    "no state": ('[{"class": "data", "sqlstate": "4"}]', "never fit"),
    "no name": ('[{"class": "data", "exception": "a b"}]', "never fit"),
    "no kind": ('[{"class": "data", "code": "teapot:418"}]', "never fit"),
    "two codes": ('[{"class": "data", "code": "http:418", "sqlstate": "40001"}]', "one of them"),
    "twice": ('[{"class": "data", "sqlstate": "40"}, {"class": "transient", "sqlstate": "40"}]', "never asked"),
    "narrower later": (
        '[{"class": "data", "sqlstate": "40"}, {"class": "transient", "sqlstate": "40001", "message": "x"}]',
        "rule 1 (sqlstate:40*) knows",
    ),
    "wider package first": (
        '[{"class": "data", "exception": "Busy"}, {"class": "transient", "exception": "acme.Busy"}]',
        "never asked",
    ),
}


@pytest.mark.parametrize(("text", "said"), BAD.values(), ids=BAD)
def test_a_bad_rule_is_refused(text: str, said: str) -> None:
    with pytest.raises(InvalidFailureRule) as refused:
        parse_rules(text)
    assert refused.value.code == "SO-701"
    assert said in refused.value.what
    with pytest.raises(InvalidFailureRule):
        use_configured(text)
    assert added_rules() == ()


def test_the_guide_s_rules_are_rules() -> None:
    page = (Path(__file__).parents[2] / "docs" / "retries.md").read_text(encoding="utf-8")
    (text,) = re.findall(r"^```json\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    assert [rule.failure for rule in parse_rules(text)] == ["contention", "transient", "late_input"]


def test_a_rule_that_is_narrower_may_stand_first() -> None:
    text = '[{"class": "data", "sqlstate": "40001"}, {"class": "transient", "sqlstate": "40"}]'
    assert len(parse_rules(text)) == 2


def test_a_registered_rule_that_is_never_asked_is_refused() -> None:
    register_rule("data", exception="Busy")
    with pytest.raises(InvalidFailureRule, match="never asked"):
        register_rule("transient", exception="acme.Busy", message="x")
    with pytest.raises(InvalidFailureRule, match="know every error"):
        register_rule("data")
