"""What Airflow knows, as the package's own facts: who runs, and which database a connection leads to."""

from __future__ import annotations

import getpass
import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from airflow_safe_ops.definition.identity import RunIdentity
from airflow_safe_ops.errors import UnsupportedConnection
from airflow_safe_ops.settings import load_settings

if TYPE_CHECKING:
    from airflow_safe_ops.sql.dialect import Dialect


def run_identity(
    context: Mapping[str, Any], *, instance: str = "", params: Mapping[str, Any] | None = None
) -> RunIdentity:
    """
    The facts of the running try.

    :param instance: the name of this Airflow.
    :param params: the load's parameters, as they go to the ledger; values that Airflow masks are masked.
    """
    from airflow.providers.common.compat.sdk import redact

    ti, run = context["ti"], context["dag_run"]
    bundle = getattr(ti, "bundle_instance", None)
    return RunIdentity(
        dag_id=str(ti.dag_id),
        task_id=str(ti.task_id),
        run_id=str(context.get("run_id") or run.run_id),
        map_index=-1 if getattr(ti, "map_index", None) is None else int(ti.map_index),
        run_type=str(getattr(run.run_type, "value", run.run_type)),
        try_number=int(ti.try_number),
        clear_number=int(getattr(run, "clear_number", 0) or 0),
        logical_date=run.logical_date,
        data_interval_start=run.data_interval_start,
        data_interval_end=run.data_interval_end,
        partition_date=context.get("partition_date") or getattr(run, "partition_date", None),
        user=getattr(run, "triggering_user_name", None),
        code_version=getattr(bundle, "version", None),
        instance=instance,
        params={name: redact(value, name) for name, value in (params or {}).items()},
    )


def user_name() -> str:
    """Who runs this process, for the ledger; the number of a container's user that has no name."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # the latter since Python 3.13
        return str(os.getuid())


def database_of(
    conn_id: str, ledger_schema: str | None = None, *, get_hook: Callable[[], Any] | None = None
) -> tuple[Any, Dialect]:
    """
    The connection's hook and the dialect of its database; nothing is connected yet.

    :param ledger_schema: default: ``[safe_ops] ledger_schema``.
    :param get_hook: for an operator that has arguments for its hook; default: the connection's.
    :raises UnsupportedConnection: there is no dialect for such a connection.
    """
    from airflow.providers.common.compat.sdk import AirflowException, BaseHook

    from airflow_safe_ops.sql.dialect import dialect_for

    connection = BaseHook.get_connection(conn_id)
    try:
        hook = (get_hook or connection.get_hook)()
    except AirflowException as error:
        raise UnsupportedConnection(f"Connection {conn_id!r}: {error}.") from error
    name = getattr(hook, "dialect_name", None) or connection.conn_type
    return hook, dialect_for(str(name), ledger_schema or load_settings().ledger_schema)
