"""One load as a task runs it: the operator, its connection, its plan and its ledger; and its steps' seconds."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from datetime import time as time_of_day
from types import SimpleNamespace
from typing import Any

from benchmarks.load_tables import KEY, LISTED


@dataclass
class Stopwatch:
    """The seconds of each step of a load, as its runner tells them."""

    loads: list[dict[str, float]] = field(default_factory=list)
    _since: float = 0.0

    def __call__(self, step: str, when: str) -> None:
        """Watch one moment: what is no step's is between them."""
        now = time.perf_counter()
        if when == "before" and step == "prepare":
            self.loads.append({})
        elif when == "before":
            self._add("between", now)
        else:
            self._add(step, now)
        self._since = now

    def _add(self, step: str, now: float) -> None:
        taken = self.loads[-1]
        taken[step] = taken.get(step, 0.0) + now - self._since

    def steps(self, last: int) -> dict[str, float]:
        """The median of each step over the last loads."""
        loads = self.loads[-last:]
        names = sorted(loads[-1], key=lambda step: step == "between")
        return {step: statistics.median(load.get(step, 0.0) for load in loads) for step in names}


def load(source: str, day: date, watch: Callable[[str, str], None] | None = None, **options: Any) -> None:
    """Run the load of a day, with a key and every guard; options are the operator's."""
    from airflow_safe_ops import IdempotentLoadOperator, TimePartition

    where = "sale_date >= :partition_start AND sale_date < :partition_end"
    operator = IdempotentLoadOperator(
        task_id="load",
        conn_id="dwh",
        table="mart.sales",
        partition=TimePartition("sale_date"),
        sql=f"SELECT {LISTED} FROM {source} WHERE {where}",  # noqa: S608 - constants
        unique_key=[KEY],
        on_unledgered="replace",
        **options,
    )
    runner = operator.runner(context(day))
    if watch:
        runner.observe = watch
    runner.execute()


def context(day: date) -> dict[str, Any]:
    """What Airflow tells the run that owns a day."""
    end = datetime.combine(day + timedelta(days=1), time_of_day(), UTC)
    run = SimpleNamespace(
        run_id=f"scheduled__{end.isoformat()}",
        run_type="scheduled",
        logical_date=end,
        data_interval_start=end,
        data_interval_end=end,
    )
    ti = SimpleNamespace(dag_id="benchmark", task_id="load", map_index=-1, try_number=1)
    return {"ti": ti, "dag_run": run, "run_id": run.run_id}
