"""What older versions of Airflow lack; the only place that compares versions."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache


@dataclass(frozen=True)
class Feature:
    """
    Something that Airflow has since a version.

    :param name: what it is, as Airflow's documentation calls it.
    :param since: the first version that has it, as major and minor number.
    :param without: what this package does where it is missing.
    """

    name: str
    since: tuple[int, int]
    without: str

    def is_there(self) -> bool:
        """Whether the installed Airflow has it."""
        return airflow_version() >= self.since

    def __str__(self) -> str:
        return f"{self.name} (Airflow {self.since[0]}.{self.since[1]})"


RETRY_POLICY = Feature(
    "retry_policy",
    (3, 3),
    "Terminal errors of this package's operators still fail at once; what else is retried is the task's own setting.",
)
ALLOWED_RUN_TYPES = Feature("allowed_run_types", (3, 2), "A backfill cannot be refused: the rule only warns.")

FEATURES = (ALLOWED_RUN_TYPES, RETRY_POLICY)


def missing() -> tuple[Feature, ...]:
    """What the installed Airflow lacks."""
    return tuple(feature for feature in FEATURES if not feature.is_there())


@cache
def airflow_version() -> tuple[int, int]:
    """Major and minor version of the installed Airflow."""
    from importlib.metadata import version

    major, minor = version("apache-airflow-core").split(".")[:2]
    return int(major), int(minor)
