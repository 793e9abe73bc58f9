"""``python -m airflow_safe_ops.demo``: one incident, two DAGs, and a comparison at the end."""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from airflow_safe_ops.demo.folder import DemoError, Folder, airflow_environment, write_env_file
from airflow_safe_ops.demo.server import running_server
from airflow_safe_ops.demo.story import FEWEST_DAYS, MOST_DAYS

if TYPE_CHECKING:
    from collections.abc import Sequence

_INTERRUPTED = 130


def main(argv: Sequence[str] | None = None) -> int:
    """
    Play, compare again, or open a shell.

    :return: 0 well; 1 the safe twin differs from its source by a row, or the appending DAG does not; 2 the demo
        could not go on.
    """
    args = _parser().parse_args(argv)
    for deadly in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(deadly, _stop)
    folder = Folder(Path(args.dir).expanduser().resolve())
    try:
        if args.command == "play":
            folder.prepare()
        else:
            folder.expect_demo()
        with folder.held():
            return _run(args, folder)
    except DemoError as error:
        print(f"\nThe demo stopped: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("\nInterrupted. Nothing is left running; start it again when you like.", file=sys.stderr)
        return _INTERRUPTED


def _run(args: argparse.Namespace, folder: Folder) -> int:
    from airflow_safe_ops.demo import play, show

    out = show.console()
    if args.command == "play":
        return play.play(out, folder, args.days, args.seed)
    with running_server(folder) as socket:
        if args.command == "compare":
            return play.conclude(out, folder, socket)
        environment = airflow_environment(folder, socket)
        write_env_file(folder, environment)
        return _shell(args.words, folder, environment)


def _shell(words: list[str], folder: Folder, environment: dict[str, str]) -> int:
    """Run a command, or the user's shell, in the demo's environment."""
    command = words or [os.environ.get("SHELL") or "sh"]
    if not words:
        print(f"A shell with the demo's Airflow and databases; `exit` stops PostgreSQL. Elsewhere: . {folder.env_file}")
    found = shutil.which(command[0], path=environment["PATH"])
    if found is None:
        raise DemoError(f"There is no command {command[0]!r}.")
    try:
        return subprocess.run([found, *command[1:]], env=environment, check=False).returncode
    finally:
        folder.env_file.unlink(missing_ok=True)


def _stop(*_: object) -> NoReturn:
    raise KeyboardInterrupt


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m airflow_safe_ops.demo", description=__doc__)
    commands = parser.add_subparsers(dest="command", metavar="COMMAND")
    parser.set_defaults(command="play")
    compare = commands.add_parser("compare", help="compare the tables of the last demo again")
    shell = commands.add_parser("shell", help="a shell, or one command, with the demo's Airflow and databases")
    for each in (parser, compare, shell):
        fallback = ".demo" if each is parser else argparse.SUPPRESS
        each.add_argument("--dir", default=fallback, help="the demo's own folder (default: .demo)")
    shell.add_argument("words", nargs=argparse.REMAINDER, metavar="...", help="the command")
    parser.add_argument("--days", type=_days, default=90, help="days to load, from 2013-01-01 on (default: 90)")
    parser.add_argument("--seed", type=int, default=13, help="which days suffer what (default: 13)")
    return parser


def _days(text: str) -> int:
    days = int(text)
    if not FEWEST_DAYS <= days <= MOST_DAYS:
        raise argparse.ArgumentTypeError(f"between {FEWEST_DAYS} and {MOST_DAYS}")
    return days


if __name__ == "__main__":
    sys.exit(main())
