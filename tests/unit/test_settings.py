"""`[safe_ops]`: what is wrong with a setting is told by a load, as an error of ours."""

from __future__ import annotations

import getpass
import os

import pytest

from airflow_safe_ops.context import user_name
from airflow_safe_ops.errors import InvalidArgument
from airflow_safe_ops.settings import Settings, load_settings

WRONG = [
    ("LOCK_TIMEOUT", "ten"),
    ("LOCK_TIMEOUT", "-1"),
    ("LOCK_TIMEOUT", "inf"),
    ("LOCK_TIMEOUT", "nan"),
    ("LOCK_TIMEOUT", "1e9"),
    ("CLAIM_GRACE", "5 s"),
    ("LOG_SAMPLES", "perhaps"),
]


@pytest.mark.parametrize(("name", "value"), WRONG)
def test_a_setting_that_is_not_usable_is_named(monkeypatch: pytest.MonkeyPatch, name: str, value: str) -> None:
    monkeypatch.setenv(f"AIRFLOW__SAFE_OPS__{name}", value)
    with pytest.raises(InvalidArgument) as refused:
        load_settings()
    assert (refused.value.code, name.lower() in refused.value.what, repr(value) in refused.value.what) == (
        "SO-201",
        True,
        True,
    )


def test_settings_are_typed(monkeypatch: pytest.MonkeyPatch) -> None:
    given = {"LOCK_TIMEOUT": "0", "CLAIM_GRACE": "0.1", "LOG_SAMPLES": "False", "INSTANCE": "50%", "LEDGER_SCHEMA": ""}
    for name, value in given.items():
        monkeypatch.setenv(f"AIRFLOW__SAFE_OPS__{name}", value)
    assert load_settings() == Settings(lock_timeout=0.0, claim_grace=1.0, log_samples=False, instance="50%")


@pytest.mark.parametrize("error", [KeyError("getpwuid(): uid not found: 4711"), OSError("No username set")], ids=repr)
def test_a_container_s_user_has_no_name(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    def nobody() -> str:
        raise error

    assert user_name() == getpass.getuser()
    monkeypatch.setattr(getpass, "getuser", nobody)
    assert user_name() == str(os.getuid())
