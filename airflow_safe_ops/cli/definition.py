"""The ``airflow safe-ops`` commands as Airflow's parser reads them; every ``airflow`` command imports this file."""

from __future__ import annotations

import re
from argparse import ArgumentTypeError
from datetime import timedelta

from airflow.cli.cli_config import (
    ARG_BUNDLE_NAME,
    ARG_DAG_ID,
    ARG_LOGICAL_DATE,
    ARG_MAP_INDEX,
    ARG_OUTPUT,
    ARG_TASK_ID,
    ARG_VERBOSE,
    ARG_YES,
    ActionCommand,
    Arg,
    CLICommand,
    GroupCommand,
    lazy_load_command,
    positive_int,
)

_HOURS = {"h": 1, "d": 24, "w": 7 * 24}
_GRAINS = ("hour", "day", "week", "month", "quarter", "year")  # not imported: every `airflow` command would pay for it


def keep_type(text: str) -> timedelta:
    """An age such as ``90d``, ``12w`` or ``36h``."""
    found = re.fullmatch(r"(\d+)([hdw])", text.strip())
    if not found:
        raise ArgumentTypeError(f"{text!r} is no age; write a whole number with h, d or w, for example 90d")
    return timedelta(hours=int(found[1]) * _HOURS[found[2]])


_LOGICAL_DATE = Arg(
    ("-l", "--logical-date"),
    help=(
        "The logical date of the run, for example 2026-01-02T00:00:00+00:00. A run that exists is taken as it is; "
        "else the run that the Dag's timetable would make. Left out: a run without a date"
    ),
    type=ARG_LOGICAL_DATE.kwargs["type"],
)
_CONF = Arg(("-c", "--conf"), help='The run\'s conf, a JSON object, for example \'{"region": "EU"}\'')
_TEXT_OUTPUT = Arg(
    ("-o", "--output"), help="Output format: text (default) or json", choices=("text", "json"), default="text"
)
_CONN_ID = Arg(
    ("--conn-id",), help="The connection of the database that holds the targets and their ledger", required=True
)
_SCHEMA = Arg(("--schema",), help="The ledger's schema (default: the setting ledger_schema of section safe_ops)")
_PRINT_SQL = Arg(
    ("--print-sql",),
    help="Print the SQL that makes the ledger instead of running it, for somebody with more rights",
    action="store_true",
)
_TABLE = Arg(("-t", "--table"), help="Only this table, written as in the load: schema.table")
_PARTITION = Arg(
    ("-p", "--partition"),
    help="Tell the attempts on this partition, for example order_date=2026-01-01..2026-01-02 or a part of that",
)
_LIMIT = Arg(
    ("--limit",),
    help="Show the last N partitions or attempts (default: 100; 0: all)",
    type=positive_int(allow_zero=True),
    default=100,
)
_KEEP = Arg(("--keep",), help="Keep the attempts of this age or younger: 90d, 12w, 36h", type=keep_type, required=True)
_DRY_RUN = Arg(("--dry-run",), help="Say how many attempts would be deleted, and delete none", action="store_true")

_WHICH_TABLE = Arg(("-t", "--table"), help="The table, written as in the load: schema.table", required=True)
_PARTITIONS = Arg(
    ("-p", "--partitions"),
    help=(
        "The partitions, one or more: order_date=2026-01-01..2026-02-01@America/New_York (the end does not belong to "
        "it), region=EU, or '*' for the whole table"
    ),
    nargs="+",
    required=True,
    metavar="PARTITION",
)
_GRAIN = Arg(
    ("--grain",),
    help="Record each hour, day, week, … of a range on its own (default: the range as one partition)",
    choices=_GRAINS,
)
_WHY = Arg(("--reason",), help="Why; kept in the ledger")
_REASON = Arg(("--reason",), help="What was done to the rows, and why; kept in the ledger", required=True)
_SLICE = Arg(("--source-slice",), help="Only what append_once loaded of this slice of the source")
_RECORD_NOTHING = Arg(("--dry-run",), help="Say what would be recorded, and record nothing", action="store_true")

_KEY = Arg(("key",), help="The business key, as the task gives it")
_ONLY_KEY = Arg(("--key",), help="Only this business key")
_RECEIVER = Arg(("--receiver",), help="The receiver, where the task names one (list: only this one)")
_STATE = Arg(
    ("--state",),
    help="Only these: undecided wants a person, unknown is asked for by the next try",
    choices=("intended", "sending", "unknown", "done", "refused", "undecided"),
)
_PUBLICATIONS_LIMIT = Arg(
    ("--limit",),
    help="Show the last N publications (default: 100; 0: all; of thousands, --output plain is the fastest)",
    type=positive_int(allow_zero=True),
    default=100,
)
_SETTLED_AS = Arg(
    ("--as",),
    dest="settled_as",
    help="done: the receiver has it, it is never sent again. not-sent: it has not, the next try sends it, unless a "
    "lookup finds it there",
    choices=("done", "not-sent"),
    required=True,
)
_HOW_KNOWN = Arg(("--reason",), help="How you know, and why; kept in the ledger", required=True)

_ONE_DAG = Arg(("-d", "--dag-id"), help="Only this Dag")

_ERROR = Arg(
    ("text",),
    help="The error as it was printed: one line, or a whole traceback; - reads it from standard input",
    nargs="?",
    metavar="ERROR",
)
_RUN = Arg(
    ("--run",),
    help="Explain the last failed try of this task in this run, from the ledger; needs --conn-id",
    nargs=3,
    metavar=("DAG", "RUN", "TASK"),
)
_ANY_CONN_ID = Arg(("--conn-id",), help="The connection of the database that holds the ledger")

_LEDGER = "airflow_safe_ops.cli.ledger_command"
_RECORD = "airflow_safe_ops.cli.record_command"
_PUBLICATION = "airflow_safe_ops.cli.publication_command"

_PUBLICATION_COMMANDS = (
    ActionCommand(
        name="list",
        help="Show what was sent outside the database, and what became of it",
        description="A line a publication, newest last: its state, how often it was sent, by whom. Reads only.",
        func=lazy_load_command(f"{_PUBLICATION}.list_publications"),
        args=(_CONN_ID, _STATE, _RECEIVER, _ONLY_KEY, _PUBLICATIONS_LIMIT, _SCHEMA, ARG_OUTPUT, ARG_VERBOSE),
    ),
    ActionCommand(
        name="settle",
        help="Say whether a publication was sent",
        description=(
            "For one that is undecided: ask the receiver, then record what it said. done is never sent again; "
            "not-sent is sent by the next try, with a new Idempotency-Key. A lookup that finds it keeps it from that: "
            "have the receiver drop it first, or use a new key. Waits for a task that publishes it now."
        ),
        func=lazy_load_command(f"{_PUBLICATION}.settle"),
        args=(_KEY, _CONN_ID, _RECEIVER, _SETTLED_AS, _HOW_KNOWN, _SCHEMA, ARG_VERBOSE),
    ),
)

_LEDGER_COMMANDS = (
    ActionCommand(
        name="init",
        help="Make the ledger, or bring it up to date",
        description=(
            "Make the ledger in a target database, or bring it up to date. Harmless when it is there. The first "
            "load does the same, if its login may make a schema."
        ),
        func=lazy_load_command(f"{_LEDGER}.init"),
        args=(_CONN_ID, _SCHEMA, _PRINT_SQL, ARG_VERBOSE),
    ),
    ActionCommand(
        name="show",
        help="Show what was loaded, and what happened on the way",
        description=(
            "Without --partition: a line a partition, with its state, its rows and how its attempts ended. "
            "With it: the attempts on that partition in their order. Reads only; works on a standby."
        ),
        func=lazy_load_command(f"{_LEDGER}.show"),
        args=(_CONN_ID, _TABLE, _PARTITION, _LIMIT, _SCHEMA, ARG_OUTPUT, ARG_VERBOSE),
    ),
    ActionCommand(
        name="prune",
        help="Delete old attempts",
        description=(
            "Delete attempts that are older than --keep, with the results of their checks. What is known of each "
            "partition stays: its state, and the attempt that published it. Asks before it deletes."
        ),
        func=lazy_load_command(f"{_LEDGER}.prune"),
        args=(_CONN_ID, _KEEP, _DRY_RUN, ARG_YES, _SCHEMA, ARG_VERBOSE),
    ),
    ActionCommand(
        name="invalidate",
        help="Say that partitions have to be loaded again",
        description=(
            "After rows were changed or deleted by hand: every recorded partition that lies in one of --partitions "
            "becomes missing and loses its counts. The rows are not touched. The next load replaces them, and "
            "append_once appends again what is not there. Waits for loads that run."
        ),
        func=lazy_load_command(f"{_RECORD}.invalidate"),
        args=(_CONN_ID, _WHICH_TABLE, _PARTITIONS, _SLICE, _REASON, _RECORD_NOTHING, _SCHEMA, ARG_OUTPUT, ARG_VERBOSE),
    ),
)

_COMMANDS = (
    ActionCommand(
        name="plan",
        help="Show what a load would do, and do nothing",
        description=(
            "Print the plan of an IdempotentLoadOperator: the partitions that a run owns, each statement with its "
            "bound values, and what it would be refused for. Nothing is written. Exit code 1: the load is refused "
            "as it stands."
        ),
        func=lazy_load_command("airflow_safe_ops.cli.plan_command.plan"),
        args=(ARG_DAG_ID, ARG_TASK_ID, _LOGICAL_DATE, ARG_MAP_INDEX, _CONF, _TEXT_OUTPUT, ARG_BUNDLE_NAME, ARG_VERBOSE),
    ),
    ActionCommand(
        name="adopt",
        help="Record a table's rows as they stand, without loading them",
        description=(
            "For a table that has rows and no ledger: counts the rows of each partition, takes their checksum and "
            "records them as adopted. No row is written. Loads then replace or merge these partitions like their "
            "own. Partitions that a load recorded stay as they are, empty ones are left out."
        ),
        func=lazy_load_command(f"{_RECORD}.adopt"),
        args=(_CONN_ID, _WHICH_TABLE, _PARTITIONS, _GRAIN, _WHY, _RECORD_NOTHING, _SCHEMA, ARG_OUTPUT, ARG_VERBOSE),
    ),
    GroupCommand(
        name="publications",
        help="Show and settle what was sent outside the database",
        description="What publish_once and PublishOnceOperator sent, and what is not known of it.",
        subcommands=_PUBLICATION_COMMANDS,
    ),
    ActionCommand(
        name="policies",
        help="Show what the cluster policy says of the Dags",
        description=(
            "Parse the Dags and print what each rule of the cluster policy says of them: what it warns of, what it "
            "sets right, what it leaves alone and why. A rule that is off says nothing. Nothing is written."
        ),
        func=lazy_load_command("airflow_safe_ops.cli.policies_command.policies"),
        args=(_ONE_DAG, ARG_OUTPUT, ARG_BUNDLE_NAME, ARG_VERBOSE),
    ),
    ActionCommand(
        name="explain",
        help="Say of which class a failure is, and what follows",
        description=(
            "Say what kind of failure an error is (transient, contention, resource, late_input, permission, contract, "
            "data, cancelled), what that means, whether and when it is tried again by SafeRetryPolicy's defaults, and "
            "what to do. Knows exceptions by name, SQLSTATEs, codes of MySQL and SQLite, Databricks' error conditions, "
            "HTTP statuses, errno names and SO-codes. Exit code 1: nothing is known of it."
        ),
        func=lazy_load_command("airflow_safe_ops.cli.explain_command.explain"),
        args=(_ERROR, _RUN, ARG_MAP_INDEX, _ANY_CONN_ID, _SCHEMA, ARG_OUTPUT, ARG_VERBOSE),
    ),
    GroupCommand(
        name="ledger",
        help="Make, show, correct and prune the ledger",
        description="The ledger records, in the target's own database, who loaded which partition and how it ended.",
        subcommands=_LEDGER_COMMANDS,
    ),
)


def get_safe_ops_cli_commands() -> list[CLICommand]:
    """The command group, as Airflow's parser asks for it."""
    return [
        GroupCommand(
            name="safe-ops",
            help="Plan loads that can be repeated, and read their ledger",
            description="Loads that can be run again any number of times, and the ledger that proves it.",
            subcommands=_COMMANDS,
        )
    ]
