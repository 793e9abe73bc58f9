"""The ``[safe_ops]`` section of Airflow's configuration, typed."""

from __future__ import annotations

from dataclasses import dataclass

SECTION = "safe_ops"


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
    """

    ledger_schema: str = "safe_ops"
    lock_timeout: float = 600.0
    claim_grace: float = 5.0
    log_samples: bool = True
    instance: str = ""


def load_settings() -> Settings:
    """The settings as Airflow's configuration has them now."""
    from airflow.providers.common.compat.sdk import conf

    default = Settings()
    return Settings(
        ledger_schema=conf.get(SECTION, "ledger_schema", fallback=default.ledger_schema),
        lock_timeout=conf.getfloat(SECTION, "lock_timeout", fallback=default.lock_timeout),
        claim_grace=max(1.0, conf.getfloat(SECTION, "claim_grace", fallback=default.claim_grace)),
        log_samples=conf.getboolean(SECTION, "log_samples", fallback=default.log_samples),
        instance=conf.get(SECTION, "instance", fallback=default.instance),
    )
