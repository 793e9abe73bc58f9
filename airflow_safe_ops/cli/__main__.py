"""``python -m airflow_safe_ops.cli``: the same commands where Airflow asks no provider for its own (before 3.2)."""

from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

from airflow.cli.cli_config import ActionCommand, DefaultHelpParser

from airflow_safe_ops.cli.definition import get_safe_ops_cli_commands


def safe_ops_parser(prog: str = "python -m airflow_safe_ops.cli") -> ArgumentParser:
    """A parser of these commands alone."""
    (group,) = get_safe_ops_cli_commands()
    parser = DefaultHelpParser(prog=prog, description=group.description)
    _add(parser, group)
    return parser


def main() -> None:
    """Parse the command line and run the command."""
    args = safe_ops_parser().parse_args()
    args.func(args)


def _add(parser: ArgumentParser, command: Any) -> None:
    if isinstance(command, ActionCommand):
        for arg in command.args:
            arg.add_to_parser(parser)
        parser.set_defaults(func=command.func)
        return
    inner = parser.add_subparsers(dest="subcommand", metavar="COMMAND", required=True)
    for sub in command.subcommands:
        _add(inner.add_parser(sub.name, help=sub.help, description=sub.description or sub.help), sub)


if __name__ == "__main__":
    main()
