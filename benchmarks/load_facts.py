"""What is told beside the ratios: the fixed cost of a load, its worker's memory, and what its DAG file costs."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
from collections.abc import Iterator
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.harness import Fact, Times
from benchmarks.load_tables import BASE, LARGE, SMALL
from benchmarks.load_task import load

if TYPE_CHECKING:
    from benchmarks.load_tables import Tables

PARSE_AIM = 50.0
_PEAK = Path("/proc/self/clear_refs")
_MEMORY = "from benchmarks import load_facts; load_facts.print_memory({day!r})"

_DAG = """
import pendulum
from airflow.sdk import DAG
{imports}

with DAG(dag_id="parsed", schedule="@daily", start_date=pendulum.datetime(2026, 1, 1), catchup=False):
    {task}
"""
_OURS = _DAG.format(
    imports="from airflow_safe_ops import IdempotentLoadOperator, TimePartition",
    task='IdempotentLoadOperator(task_id="load", conn_id="dwh", table="mart.sales", unique_key=["order_id"], '
    'partition=TimePartition("sale_date"), sql="SELECT * FROM raw.sales WHERE sale_date >= :partition_start")',
)
_PEER = _DAG.format(
    imports="from airflow.providers.common.sql.operators.sql import SQLExecuteQueryOperator",
    task='SQLExecuteQueryOperator(task_id="load", conn_id="dwh", sql=["DELETE FROM mart.sales", '
    '"INSERT INTO mart.sales SELECT * FROM raw.sales"], split_statements=False)',
)
# Airflow itself is there when a DAG file is read; a later reading finds every module imported. Processor time: it is
# the same beside other work.
_PARSE = """
import json, runpy, sys, time
import airflow
from airflow.sdk import DAG

def read():
    began = time.process_time()
    runpy.run_path(sys.argv[1])
    return (time.process_time() - began) * 1000

print(json.dumps({"first": read(), "again": sorted(read() for _ in range(21))[10]}))
"""


def checksum_price(whole: Times, without: Times) -> Fact:
    """What the checksum adds to a load."""
    price = whole.median - without.median
    return Fact("price of the checksum", price * 1000, "ms", f"{price / whole.median:.1%} of the load")


def fixed_cost(ours: Times, peer: Times) -> Fact:
    """What a load of few rows costs: nearly all of it is fixed."""
    said = f"the bare SQL {peer.median * 1000:.1f} ms; each {len(ours.seconds)} times"
    return Fact("a load of 1,000 rows", ours.median * 1000, "ms", said)


def memory(made: Tables) -> Iterator[Fact]:
    """How far the worker's memory rises during a load: the rows never pass through it."""
    if not _PEAK.exists():
        return
    for rows, day in ((10_000, SMALL[10_000]), (made.large, LARGE)):
        found = float(_child(_MEMORY.format(day=day.isoformat()))[-1])
        yield Fact(f"worker memory above its start at {rows:,} rows", found, "MB")


def print_memory(day: str) -> None:
    """In a fresh process: load a day, print how far the peak lies above the start."""
    from airflow_safe_ops import IdempotentLoadOperator  # noqa: F401 - Airflow is there before the load begins

    _PEAK.write_text("5", encoding="ascii")
    start = _status("VmRSS")
    load(BASE, date.fromisoformat(day))
    print(f"{(_status('VmHWM') - start) / 1024:.1f}")  # noqa: T201 - the parent reads it


def dag_files(folder: Path, processes: int) -> Iterator[Fact]:
    """What a DAG file with our operator costs above one with common.sql's; each reading in a fresh process."""
    files = {"ours": folder / "ours.py", "peer": folder / "peer.py"}
    files["ours"].write_text(_OURS, encoding="utf-8")
    files["peer"].write_text(_PEER, encoding="utf-8")
    read: dict[str, list[dict[str, Any]]] = {name: [] for name in files}
    for n in range(processes):
        for name in files if n % 2 else reversed(files):
            read[name].append(json.loads(_child(_PARSE, str(files[name]))[-1]))
    for reading, what in (("first", "a DAG file, imports and parse"), ("again", "a DAG file, parse alone")):
        ours, peer = (statistics.median(one[reading] for one in read[name]) for name in ("ours", "peer"))
        said = f"{ours:.1f} ms, with SQLExecuteQueryOperator {peer:.1f} ms"
        yield Fact(f"{what}, above common.sql's", ours - peer, "ms", said, PARSE_AIM)


def _child(code: str, *arguments: str) -> list[str]:
    command = [sys.executable, "-c", code, *arguments]
    mine = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    ran = subprocess.run(command, capture_output=True, text=True, check=False, env=mine)  # noqa: S603 - our own code
    if ran.returncode:
        raise RuntimeError(ran.stderr)
    return ran.stdout.splitlines()


def _status(name: str) -> int:
    """A line of what Linux says of this process, in kB."""
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(name))
