"""Who runs a load: the facts of one Airflow task try, without Airflow."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any


@dataclass(frozen=True)
class RunIdentity:
    """
    One try of one task in one DAG run.

    None of it is part of the load key: a retry, a clear and a backfill of one partition are the same load.

    :param logical_date: the run's logical date, with zone; None for a run without one.
    :param data_interval_start: start of the run's data interval, with zone.
    :param data_interval_end: end of the run's data interval, with zone; equal to the start for Airflow's
        default cron timetable.
    :param partition_date: the partition date of a partitioned run, with zone.
    :param clear_number: how often the run was cleared.
    :param code_version: commit or bundle version of the DAG's code, if Airflow knows one.
    """

    dag_id: str = ""
    task_id: str = ""
    run_id: str = ""
    map_index: int = -1
    run_type: str = ""
    try_number: int = 1
    clear_number: int = 0
    logical_date: datetime | None = None
    data_interval_start: datetime | None = None
    data_interval_end: datetime | None = None
    partition_date: datetime | None = None
    user: str | None = None
    code_version: str | None = None
    instance: str = ""
    params: dict[str, Any] = field(default_factory=dict)

    @property
    def label(self) -> str:
        """How a colleague would name it: ``dag.task[map] run try n``."""
        index = f"[{self.map_index}]" if self.map_index >= 0 else ""
        return f"{self.dag_id}.{self.task_id}{index} {self.run_id} try {self.try_number}"
