"""What a test of `airflow safe-ops` needs: its answers, and a look at everything that a command could write."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tests.conftest import Database

CONN = ("--conn-id", "warehouse")
Said = tuple[int, str, str]


def everything(database: Database) -> list[Any]:
    """Every row of every relation, and every relation and schema: what a command that writes would change."""
    relations = database.execute(
        "SELECT format('%I.%I', n.nspname, c.relname), n.nspname, c.relkind::text, c.xmin::text FROM pg_class AS c "
        "JOIN pg_namespace AS n ON n.oid = c.relnamespace WHERE n.nspname !~ '^pg_toast' ORDER BY 1, 2"
    )
    schemas = database.execute("SELECT nspname, xmin::text FROM pg_namespace ORDER BY 1")
    rows = [
        database.execute(f"SELECT xmin::text, xmax::text, ctid::text, t::text FROM {name} AS t")
        for name, schema, kind, _ in relations
        if kind == "r" and schema not in ("pg_catalog", "information_schema")
    ]
    return [relations, schemas, rows]


def json_of(said: Said) -> Any:
    assert said[0] == 0, said[2]
    return json.loads(said[1])
