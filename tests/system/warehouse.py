"""The warehouse of the system tests: a source with an event in each half hour, the targets, the ledger."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING, Any, LiteralString
from zoneinfo import ZoneInfo

import psycopg
from psycopg.sql import SQL, Identifier

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

NEW_YORK = ZoneInfo("America/New_York")
SPRING, AUTUMN = date(2013, 3, 10), date(2013, 11, 3)
STEP = timedelta(minutes=30)

SCHEMA = """
    CREATE SCHEMA raw;
    CREATE SCHEMA mart;
    CREATE TABLE raw.event (
        event_id bigint PRIMARY KEY, event_at timestamptz NOT NULL, flight_day date NOT NULL,
        region text NOT NULL, amount numeric NOT NULL
    );
    CREATE TABLE raw.pace (name text PRIMARY KEY, seconds float8 NOT NULL);
    CREATE INDEX ON raw.event (event_at);
"""
EVENTS = "CREATE TABLE mart.{} (event_id bigint, event_at timestamptz, region text, amount numeric)"
DAYS = "CREATE TABLE mart.{} (flight_day date, events bigint, amount numeric)"

Event = tuple[int, datetime, str, int]


def instant(day: date, hour: int = 0, minute: int = 0, zone: ZoneInfo = NEW_YORK) -> datetime:
    """Return the instant of a wall clock time, in UTC."""
    return datetime(day.year, day.month, day.day, hour, minute, tzinfo=zone).astimezone(UTC)


def days_around(day: date) -> list[date]:
    """Return a day with the day before and the day after."""
    return [day - timedelta(days=1), day, day + timedelta(days=1)]


def events_between(start: datetime, end: datetime) -> list[Event]:
    """Return what the source holds in a range; counted from the epoch, so no time zone is involved."""
    number = -(-int(start.timestamp()) // int(STEP.total_seconds()))
    last = -(-int(end.timestamp()) // int(STEP.total_seconds()))
    return [_event(n) for n in range(number, last)]


def events_of(day: date) -> list[Event]:
    """Return the events of one New York day: 48 of them, 46 and 50 on the days the clocks change."""
    return events_between(instant(day), instant(day + timedelta(days=1)))


def _event(number: int) -> Event:
    moment = datetime.fromtimestamp(number * STEP.total_seconds(), UTC)
    return number, moment, "EU" if number % 3 else "US", number % 97


class Warehouse:
    """One connection in autocommit mode; each question is a statement of its own."""

    def __init__(self, dsn: str) -> None:
        self._connection = psycopg.connect(dsn, autocommit=True, options="-c timezone=UTC")

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    def rows(self, query: LiteralString, *parameters: Any) -> list[tuple[Any, ...]]:
        """Run a statement; return its rows, none if it has none."""
        with self._connection.cursor() as cursor:
            cursor.execute(query, parameters or None)
            return cursor.fetchall() if cursor.description else []

    def create(self) -> None:
        """Create the source and fill it around both days on which New York changes its clocks."""
        self.rows(SCHEMA)
        with self._connection.cursor().copy("COPY raw.event FROM STDIN") as copy:
            for day in (SPRING, AUTUMN):
                start, end = instant(day - timedelta(days=9)), instant(day + timedelta(days=9))
                for number, moment, region, amount in events_between(start, end):
                    copy.write_row((number, moment, moment.astimezone(NEW_YORK).date(), region, amount))

    def create_target(self, name: str) -> None:
        """Create an empty target; its kind shows in the end of its name."""
        ddl = DAYS if name.endswith("_days") else EVENTS
        self._connection.execute(SQL(ddl).format(Identifier(name)))

    def events(self, table: str, start: datetime, end: datetime) -> list[Event]:
        """Read the rows of a target of events in a range."""
        query = SQL(
            "SELECT event_id, event_at, region, amount FROM mart.{} WHERE event_at >= %s AND event_at < %s ORDER BY 1"
        ).format(Identifier(table))
        rows = self._connection.execute(query, (start, end))
        return [(row[0], row[1], row[2], int(row[3])) for row in rows]

    def all_events(self, table: str) -> list[Event]:
        """Read a whole target of events."""
        return self.events(table, datetime(1970, 1, 1, tzinfo=UTC), datetime(2100, 1, 1, tzinfo=UTC))

    def all_days(self, table: str) -> list[tuple[date, int, int]]:
        """Read a whole target of days."""
        query = SQL("SELECT flight_day, events, amount FROM mart.{} ORDER BY 1, 2, 3")
        rows = self._connection.execute(query.format(Identifier(table)))
        return [(day, count, int(amount)) for day, count, amount in rows]

    def source_events(self) -> list[Event]:
        """Read the whole source."""
        rows = self.rows("SELECT event_id, event_at, region, amount FROM raw.event ORDER BY 1")
        return [(row[0], row[1], row[2], int(row[3])) for row in rows]

    def damage(self, table: str, day: date) -> None:
        """Do to one day what a load that appends does when it dies: copies of some rows, others missing."""
        name, (start, end) = Identifier(table), (instant(day), instant(day + timedelta(days=1)))
        within = SQL("event_at >= %s AND event_at < %s AND amount")
        copies = SQL("INSERT INTO mart.{0} SELECT * FROM mart.{0} WHERE {1} > 20").format(name, within)
        losses = SQL("DELETE FROM mart.{0} WHERE {1} < 10").format(name, within)
        for statement in (copies, losses):
            self._connection.execute(statement, (start, end))

    def outcomes(self, table: str) -> list[str]:
        """Read from the ledger how each attempt on a target ended, oldest first."""
        query = """
            SELECT CASE WHEN a.state = 'started' AND c.attempt_id IS NULL THEN 'lost' ELSE a.state END
            FROM safe_ops.safe_ops_attempt AS a JOIN safe_ops.safe_ops_target AS t USING (target_id)
            LEFT JOIN safe_ops.safe_ops_claim AS c USING (attempt_id)
            WHERE replace(t.identity, '"', '') = %s ORDER BY a.started_at
        """
        return [row[0] for row in self.rows(query, f"mart.{table}")]

    def partitions(self, table: str) -> dict[str, int]:
        """Read from the ledger which partitions of a target are published, with their rows."""
        query = """
            SELECT p.partition_key, p.row_count
            FROM safe_ops.safe_ops_partition AS p JOIN safe_ops.safe_ops_target AS t USING (target_id)
            WHERE replace(t.identity, '"', '') = %s AND p.state = 'published'
        """
        try:
            return dict(self.rows(query, f"mart.{table}"))
        except psycopg.errors.UndefinedTable:
            return {}

    def claims(self) -> list[tuple[Any, ...]]:
        """List the claims of all targets."""
        return self.rows("SELECT owner FROM safe_ops.safe_ops_claim")

    def backends(self) -> list[tuple[Any, ...]]:
        """List what the loads' own connections are doing in the server now."""
        return self.rows(
            "SELECT pid, state, query FROM pg_stat_activity WHERE application_name LIKE 'safe_ops%' AND state <> 'idle'"
        )

    def set_pace(self, name: str, seconds: float) -> None:
        """Make the next statement of the slow DAG last that long."""
        query = "INSERT INTO raw.pace VALUES (%s, %s) ON CONFLICT (name) DO UPDATE SET seconds = excluded.seconds"
        self.rows(query, name, seconds)


def expected_events(days: Sequence[date]) -> list[Event]:
    """Return what a target of events holds after these New York days were loaded."""
    return [event for day in days for event in events_of(day)]


def expected_days(days: Sequence[date]) -> list[tuple[date, int, int]]:
    """Return what a target of days holds after these New York days were loaded."""
    return list(_daily(days))


def _daily(days: Sequence[date]) -> Iterator[tuple[date, int, int]]:
    for day in days:
        events = events_of(day)
        yield day, len(events), sum(event[3] for event in events)


def expected_partitions(column: str, days: Sequence[date], suffix: str = "") -> dict[str, int]:
    """Return what the ledger knows after these New York days were loaded: partitions with their events."""
    ends = {day: day + timedelta(days=1) for day in days}
    return {f"{column}={day}..{end}{suffix}": len(events_of(day)) for day, end in ends.items()}
