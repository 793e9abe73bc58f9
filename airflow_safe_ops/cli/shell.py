"""What all commands share: how they speak, and how they reach a database."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any, NoReturn, TypeVar

from airflow_safe_ops.errors import SafeOpsError
from airflow_safe_ops.execution.session import ConnectionLostError, Session
from airflow_safe_ops.sql.dialect import Dialect

Command = TypeVar("Command", bound=Callable[..., None])


def say(message: str) -> None:
    """A message for the person, apart from the output that a program may read."""
    print(message, file=sys.stderr)


def fail(message: str) -> NoReturn:
    """Say what is wrong and end with exit code 1."""
    say(message)
    raise SystemExit(1)


def speaks(command: Command) -> Command:
    """What goes wrong in a command is one message and exit code 1, never a traceback."""

    @wraps(command)
    def spoken(*args: Any, **kwargs: Any) -> None:
        try:
            command(*args, **kwargs)
        except SafeOpsError as error:
            fail(str(error))
        except ConnectionLostError as error:
            fail(f"The connection was lost ({error}).")
        except Exception as error:
            if not _is_expected(error):
                raise
            fail(str(error).strip())

    return spoken  # type: ignore[return-value]


def logged(command: Command) -> Command:
    """A command that changes something stands in Airflow's own audit log, as far as that can be written."""
    from airflow.utils.cli import action_cli

    return action_cli(check_db=False)(command)  # type: ignore[no-any-return]


def _is_expected(error: Exception) -> bool:
    """A fault of what was asked, or of the way to the database; any other exception is ours."""
    from airflow.providers.common.compat.sdk import AirflowException

    return isinstance(error, AirflowException) or any(c.__name__ == "OperationalError" for c in type(error).__mro__)


@contextmanager
def session_of(hook: Any, dialect: Dialect, command: str) -> Iterator[Session]:
    """A session that the database shows as this command's."""
    session = Session(hook.get_conn, dialect, label=f"safe_ops cli {command}", comment=f"/* safe_ops cli={command} */ ")
    try:
        session.open()
        session.doing(command)
        yield session
    finally:
        session.close()
