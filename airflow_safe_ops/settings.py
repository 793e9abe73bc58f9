"""The ``[safe_ops]`` section of Airflow's configuration, typed."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from configparser import InterpolationError
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Literal

from airflow_safe_ops.errors import InvalidArgument, InvalidPolicyException, InvalidPolicySetting, SafeOpsError

SECTION = "safe_ops"
_LONGEST = 2_000_000  # seconds; PostgreSQL counts milliseconds in 31 bits


@dataclass(frozen=True)
class Settings:
    """
    What an installation decides for all its loads.

    :param ledger_schema: schema of the ledger in each target database.
    :param lock_timeout: longest wait for an overlapping load, in seconds.
    :param claim_grace: how long a claim is left to an owner that does not begin, in seconds by the server's clock;
        at least 1, since a living owner pauses for up to half a second.
    :param log_samples: whether refusals show sample rows in log and ledger.
    :param instance: a name for this Airflow in ledgers that several share.
    :param failure_rules: rules that say of which class an error is, as JSON; asked before the package's own.
    """

    ledger_schema: str = "safe_ops"
    lock_timeout: float = 600.0
    claim_grace: float = 5.0
    log_samples: bool = True
    instance: str = ""
    failure_rules: str = ""


def load_settings() -> Settings:
    """
    The settings as Airflow's configuration has them now.

    :raises InvalidArgument: one of them is not usable.
    """
    default = Settings()
    return Settings(
        ledger_schema=_text("ledger_schema") or default.ledger_schema,
        lock_timeout=_seconds("lock_timeout", default.lock_timeout),
        claim_grace=max(1.0, _seconds("claim_grace", default.claim_grace)),
        log_samples=_yes_or_no("log_samples", default=default.log_samples),
        instance=_text("instance"),
        failure_rules=failure_rules_text(),
    )


def failure_rules_text() -> str:
    """
    The installation's rules as they are written: a ``%`` in a message means itself.

    Read alone, since a task that failed asks for them: what is wrong with other settings must not hide its error.
    """
    from airflow.providers.common.compat.sdk import conf

    return str(conf.get(SECTION, "failure_rules", fallback="", raw=True) or "").strip()


def _seconds(option: str, default: float) -> float:
    given = _text(option)
    with suppress(ValueError):
        seconds = float(given or default)
        if 0 <= seconds <= _LONGEST:
            return seconds
    raise _unusable(option, given, f"It takes seconds, a number from 0 to {_LONGEST:,}")


def _yes_or_no(option: str, *, default: bool) -> bool:
    given = _text(option).lower()
    if given in ("", "t", "true", "1", "f", "false", "0"):
        return given in ("t", "true", "1") if given else default
    raise _unusable(option, given, "It takes True or False")


def _unusable(option: str, given: str, takes: str) -> InvalidArgument:
    return InvalidArgument(
        f"[safe_ops] {option} = {given!r} cannot be used. {takes}.",
        fix="Correct it in section [safe_ops] of Airflow's configuration, or its variable "
        f"AIRFLOW__SAFE_OPS__{option.upper()}.",
    )


Mode = Literal["off", "warn", "enforce"]
MODES: tuple[Mode, ...] = ("off", "warn", "enforce")
POLICY_RULES = ("unsafe_backfill", "max_active_runs", "catchup", "retries", "start_date", "split_write")
WRITING_OPERATORS = (
    "airflow.providers.amazon.aws.transfers.s3_to_redshift.S3ToRedshiftOperator",
    "airflow.providers.amazon.aws.transfers.s3_to_sql.S3ToSqlOperator",
    "airflow.providers.common.sql.operators.generic_transfer.GenericTransfer",
    "airflow.providers.common.sql.operators.sql.SQLBulkLoadOperator",
    "airflow.providers.common.sql.operators.sql.SQLInsertRowsOperator",
    "airflow.providers.databricks.operators.databricks_sql.DatabricksCopyIntoOperator",
    "airflow.providers.google.cloud.transfers.gcs_to_bigquery.GCSToBigQueryOperator",
    "airflow.providers.snowflake.transfers.copy_into_snowflake.CopyFromExternalStageToSnowflakeOperator",
)
_DOTTED = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)+")


@dataclass(frozen=True)
class PolicyException:
    """
    DAGs that are left out of rules.

    :param tag: the DAG's tag.
    :param rules: the names of the rules.
    :param reason: why; it is shown wherever the exception is used.
    """

    tag: str
    rules: frozenset[str]
    reason: str


@dataclass(frozen=True)
class PolicySettings:
    """
    What the cluster policy asks of all DAGs.

    :param modes: each rule's mode.
    :param max_active_runs_cap: the most runs of one DAG at a time.
    :param catchup_cap: the same for a DAG that catches up.
    :param default_retries: the retries of a task that has none.
    :param writing_operators: dotted names of classes whose tasks write.
    :param exceptions: DAGs that are left out of rules, by tag.
    :param problems: what could not be used; the defaults stand in for it.
    """

    modes: Mapping[str, Mode] = field(default_factory=lambda: dict.fromkeys(POLICY_RULES, "warn"))
    max_active_runs_cap: int = 16
    catchup_cap: int = 3
    default_retries: int = 5
    writing_operators: frozenset[str] = frozenset(WRITING_OPERATORS)
    exceptions: tuple[PolicyException, ...] = ()
    problems: tuple[SafeOpsError, ...] = ()


def load_policy_settings() -> PolicySettings:
    """The cluster policy's settings; a value that cannot be used is a problem, and the default is taken."""
    default, problems = PolicySettings(), _misspelt()
    return PolicySettings(
        modes={rule: _mode(f"policy_{rule}", default.modes[rule], problems) for rule in POLICY_RULES},
        max_active_runs_cap=_number("max_active_runs_cap", default.max_active_runs_cap, 1, 1000, problems),
        catchup_cap=_number("catchup_cap", default.catchup_cap, 1, 1000, problems),
        default_retries=_number("default_retries", default.default_retries, 1, 20, problems),
        writing_operators=_class_names("writing_operators", problems),
        exceptions=_exceptions("policy_exceptions", problems),
        problems=tuple(problems),
    )


def _misspelt() -> list[SafeOpsError]:
    """Options that look like a rule's and are of none."""
    from airflow.providers.common.compat.sdk import conf

    known = [*(f"policy_{rule}" for rule in POLICY_RULES), "policy_exceptions"]
    prefix = f"AIRFLOW__{SECTION.upper()}__"
    variables = (name.removeprefix(prefix).lower() for name in os.environ if name.startswith(prefix))
    # Names only: getsection reads the values too, and one % in a reason makes it fail.
    written = conf.options(SECTION) if conf.has_section(SECTION) else ()
    options = dict.fromkeys((*written, *variables))
    given = [option for option in options if option.startswith("policy")]
    allowed = f"Options are {', '.join(known)}; this one is left out."
    return [_invalid(option, "…", allowed) for option in given if option not in known]


def _text(option: str) -> str:
    from airflow.providers.common.compat.sdk import conf

    try:
        return str(conf.get(SECTION, option, fallback="") or "").strip()
    except InterpolationError:
        return str(conf.get(SECTION, option, fallback="", raw=True) or "").strip()


def _mode(option: str, default: Mode, problems: list[SafeOpsError]) -> Mode:
    given = _text(option).lower()
    for mode in MODES:
        if given == mode:
            return mode
    if given:
        allowed = ", ".join(MODES)
        problems.append(_invalid(option, given, f"Allowed are {allowed}; {default} is used."))
    return default


def _number(option: str, default: int, least: int, most: int, problems: list[SafeOpsError]) -> int:
    given = _text(option)
    if not given:
        return default
    if given.isdecimal() and least <= int(given) <= most:
        return int(given)
    problems.append(_invalid(option, given, f"Allowed are whole numbers from {least} to {most}; {default} is used."))
    return default


def _class_names(option: str, problems: list[SafeOpsError]) -> frozenset[str]:
    given = _text(option)
    if not given:
        return frozenset(WRITING_OPERATORS)
    names = given.replace(",", " ").split()
    usable = frozenset(name for name in names if _DOTTED.fullmatch(name))
    allowed = "Allowed are dotted names of classes; this one is left out."
    problems += [_invalid(option, name, allowed) for name in names if name not in usable]
    return usable


def _exceptions(option: str, problems: list[SafeOpsError]) -> tuple[PolicyException, ...]:
    try:
        entries = json.loads(_text(option) or "[]")
    except ValueError as error:
        problems.append(InvalidPolicyException(f"{option} is no JSON: {error}."))
        return ()
    if not isinstance(entries, list):
        problems.append(InvalidPolicyException(f"{option} is no JSON list."))
        return ()
    found = []
    for entry in entries:
        wrong = _what_is_wrong(entry)
        if wrong:
            problems.append(InvalidPolicyException(f"{option}: {json.dumps(entry)} {wrong}."))
        else:
            found.append(PolicyException(entry["tag"], frozenset(entry["rules"]), entry["reason"].strip()))
    return tuple(found)


def _what_is_wrong(entry: object) -> str:
    """Why an exception is not usable; empty where it is."""
    if not isinstance(entry, dict) or set(entry) != {"tag", "rules", "reason"}:
        return "has not exactly the keys tag, rules and reason"
    if not all(isinstance(entry[key], str) and entry[key].strip() for key in ("tag", "reason")):
        return "needs a tag and a reason in words"
    rules = entry["rules"]
    if not isinstance(rules, list) or not rules or not all(rule in POLICY_RULES for rule in rules):
        return f"names no list of rules, or one that is not there; rules are {', '.join(POLICY_RULES)}"
    return ""


def _invalid(option: str, given: str, allowed: str) -> InvalidPolicySetting:
    return InvalidPolicySetting(f"[safe_ops] {option} = {given!r} cannot be used. {allowed}")
