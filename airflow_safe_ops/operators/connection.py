"""From a connection's name to its hook and the dialect of its database."""

from __future__ import annotations

from typing import Any

from airflow_safe_ops.errors import UnsupportedConnection
from airflow_safe_ops.settings import load_settings
from airflow_safe_ops.sql.dialect import Dialect, dialect_for


def database_of(conn_id: str, ledger_schema: str | None = None) -> tuple[Any, Dialect]:
    """
    The connection's hook and the dialect of its database; nothing is connected yet.

    :param ledger_schema: default: ``[safe_ops] ledger_schema``.
    :raises UnsupportedConnection: there is no dialect for such a connection.
    """
    from airflow.providers.common.compat.sdk import AirflowException, BaseHook

    connection = BaseHook.get_connection(conn_id)
    try:
        hook = connection.get_hook()
    except AirflowException as error:
        raise UnsupportedConnection(f"Connection {conn_id!r}: {error}.") from error
    name = getattr(hook, "dialect_name", None) or connection.conn_type
    return hook, dialect_for(str(name), ledger_schema or load_settings().ledger_schema)
