"""What the author or the run says does not name a partition and a query: refused before anything is read."""

from __future__ import annotations

from airflow_safe_ops.errors.base import SafeOpsError
from airflow_safe_ops.errors.failure import FailureClass


class InvalidArgument(SafeOpsError):
    """An argument of an operator, a check or a command is not usable."""

    code = "SO-201"
    failure = FailureClass.CONTRACT
    fix = "Correct the argument; the docstring of the operator or check says what it takes."


class InvalidPartition(SafeOpsError):
    """A partition is declared in a way that names no rows."""

    code = "SO-202"
    failure = FailureClass.CONTRACT
    fix = "Correct it; the docstrings of TimePartition and ValuePartition say what they take."


class NoLogicalDate(SafeOpsError):
    """The run has no date that could name a time partition."""

    code = "SO-203"
    failure = FailureClass.CONTRACT
    why = "A time partition is named by the run's data interval, logical date or partition date; this run has none."
    fix = (
        "Trigger the run with a logical date, use a ValuePartition or WholeTable, or name the partition in the "
        "DAG run's conf and template it."
    )


class ZeroLengthInterval(SafeOpsError):
    """The run's data interval has no length."""

    code = "SO-204"
    failure = FailureClass.CONTRACT
    why = 'period="data_interval" owns exactly that interval, and there is nothing in it.'
    fix = (
        'Use period="auto" (the last complete grain before the logical date), or schedule the DAG with '
        "CronDataIntervalTimetable."
    )


class MisalignedInterval(SafeOpsError):
    """The run's data interval cuts through days of a DATE column."""

    code = "SO-205"
    failure = FailureClass.CONTRACT
    why = "A DATE column knows whole days only."
    fix = 'Use period="auto", or a schedule in the partition\'s time zone whose intervals begin at midnight.'


class OpenPartition(SafeOpsError):
    """The partition ends in the future."""

    code = "SO-206"
    failure = FailureClass.CONTRACT
    why = "What is loaded now is not complete, and whatever arrives later would be missed silently."
    fix = "Run it after the partition has ended, or declare allow_open=True if every later run replaces it."


class NaiveDatetime(SafeOpsError):
    """A date and time without a zone was given where an instant is meant."""

    code = "SO-207"
    failure = FailureClass.CONTRACT
    why = "The same wall clock is another instant in another zone."
    fix = "Give it a zone, for example 2026-01-01T00:00:00+00:00."


class UnsupportedPartitionColumn(SafeOpsError):
    """The partition's column has a type that the partition cannot be drawn on."""

    code = "SO-208"
    failure = FailureClass.CONTRACT
    fix = "Use a DATE or timestamp column, or a ValuePartition."


class NotOneSelect(SafeOpsError):
    """The SQL is not one SELECT."""

    code = "SO-209"
    failure = FailureClass.CONTRACT
    why = "The operator owns the writing: it stages what one SELECT returns, audits it, and publishes it."
    fix = "Give one SELECT (or WITH … SELECT, VALUES, TABLE) that only reads."


class UnknownBind(SafeOpsError):
    """The SQL uses a :name that nobody declared."""

    code = "SO-210"
    failure = FailureClass.CONTRACT
    fix = "Declare it in parameters={…}, or correct the name."


class DuplicateOutput(SafeOpsError):
    """The query returns two columns of one name, or one without a name."""

    code = "SO-211"
    failure = FailureClass.CONTRACT
    why = "Columns are matched by name."
    fix = "Give every output column a name of its own (AS …)."


class QueryRefused(SafeOpsError):
    """The database refuses the query as it stands."""

    code = "SO-212"
    failure = FailureClass.CONTRACT
    asks_cause = True
    why = "Nothing was published."
    fix = "Correct the SQL; `airflow safe-ops plan` shows the statement as it is sent."
