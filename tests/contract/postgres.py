"""PostgreSQL as the contract sees it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import psycopg

from tests.contract.harness import Row, Warehouse

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from tests.conftest import Database

_RELATIONS = """
SELECT n.nspname, c.relname, c.relkind::text,
  (SELECT array_agg(a.attname || ' ' || format_type(a.atttypid, a.atttypmod) ORDER BY a.attnum)
   FROM pg_attribute AS a WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped)
FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace
WHERE n.nspname NOT IN ('pg_catalog', 'information_schema', %(ledger)s) AND n.nspname !~ '^pg_(toast|temp)'
  AND c.relkind IN ('r', 'p', 'v', 'm', 'S') ORDER BY 1, 2"""


class PostgresWarehouse(Warehouse):
    """
    A database of the embedded server. Its own statements run on one connection.

    :param ledger_schema: where its ledger is.
    """

    types: ClassVar[Mapping[str, str]] = {"float": "float8", "bool": "boolean"}

    def __init__(self, database: Database, ledger_schema: str = "safe_ops") -> None:
        self.database = database
        self.ledger_schema = ledger_schema
        self._connection = database.connect()

    def reset(self) -> None:
        """An empty database but for the ledger's tables; these are empty too."""
        for table in self._ledger_tables():
            self.execute(f"DELETE FROM {table}")
        own = "NOT IN ('pg_catalog', 'information_schema', 'pg_toast', 'public', 'safe_ops') AND nspname !~ '^pg_'"
        for (schema,) in self.execute(f"SELECT nspname FROM pg_namespace WHERE nspname {own}"):
            self.execute(f"DROP SCHEMA {self.quote(schema)} CASCADE")
        self.execute("DROP SCHEMA public CASCADE; CREATE SCHEMA public")

    def execute(self, sql: str) -> list[Row]:
        """Run and commit SQL that is not part of a load."""
        cursor = self._connection.execute(sql.encode())
        while cursor.nextset():
            pass
        return cursor.fetchall() if cursor.description else []

    def quote(self, name: str) -> str:
        """One identifier."""
        return '"' + name.replace('"', '""') + '"'

    def in_schema(self, schema: str, table: str) -> str:
        """Make a schema if need be; the name of a table in it."""
        self.execute(f"CREATE SCHEMA IF NOT EXISTS {self.quote(schema)}")
        return f"{self.quote(schema)}.{self.quote(table)}"

    def create(
        self, table: str, columns: Mapping[str, str], rows: Iterable[Sequence[Any]] = (), *, key: Sequence[str] = ()
    ) -> str:
        """A new table with these rows; an older one of that name is gone."""
        parts = [f"{self.quote(name)} {self.types.get(type_, type_)}" for name, type_ in columns.items()]
        if key:
            parts.append(f"PRIMARY KEY ({', '.join(map(self.quote, key))})")
        self.execute(f"DROP TABLE IF EXISTS {table} CASCADE; CREATE TABLE {table} ({', '.join(parts)})")
        self.insert(table, rows)
        return table

    def insert(self, table: str, rows: Iterable[Sequence[Any]]) -> None:
        """Rows in the order of the table's columns."""
        given = [tuple(row) for row in rows]
        if not given:
            return
        values = ", ".join(["%s"] * len(given[0]))
        text = f"INSERT INTO {table.replace('%', '%%')} VALUES ({values})"
        with self._connection.transaction():
            self._connection.cursor().executemany(text.encode(), given)

    def snapshot(self) -> dict[str, Any]:
        """Every relation that is not the ledger's, with its columns and rows."""
        found = self._connection.execute(_RELATIONS.encode(), {"ledger": self.ledger_schema}).fetchall()
        return {
            f"{schema}.{name}": (columns, self._contents(schema, name, kind)) for schema, name, kind, columns in found
        }

    def _contents(self, schema: str, name: str, kind: str) -> list[Row]:
        relation = f"{self.quote(schema)}.{self.quote(name)}"
        if kind == "v":
            return []
        columns = "last_value, is_called" if kind == "S" else "t::text"
        return sorted(self.execute(f"SELECT {columns} FROM {relation} AS t"))

    def ledger(self, table: str, columns: str, rest: str = "") -> list[Row]:
        """Rows of the ledger; none where there is no ledger."""
        return self.execute(f"SELECT {columns} FROM {self._ledger(table)} {rest}") if self._has_ledger() else []

    def lose_ledger(self) -> None:
        """Drop its schema."""
        self.execute(f"DROP SCHEMA {self.quote(self.ledger_schema)} CASCADE")

    def backup_ledger(self) -> dict[str, bytes]:
        """Each table's rows, as COPY writes them."""
        return {table: self._copied(table) for table in self._ledger_tables()}

    def restore_ledger(self, backup: dict[str, bytes]) -> None:
        """Sequences go on from where they are: a restored one would give numbers again that are gone with the rows."""
        for table, rows in backup.items():
            self.execute(f"DELETE FROM {table}")
            with self._connection.cursor().copy(f"COPY {table} FROM STDIN".encode()) as into:
                into.write(rows)

    def another_writer(self, sql: str, timeout: float = 0.5) -> bool:
        """Run SQL on another connection; False if it had to wait longer than that for a lock."""
        try:
            self.database.execute(f"SET lock_timeout = {int(timeout * 1000)}; {sql}")
        except psycopg.errors.LockNotAvailable:
            return False
        return True

    def types_call_equal(self, type_: str, one: str, other: str) -> bool:
        """Whether two values are equal by their type's `=`; not so for a type without one."""
        try:
            return self.execute(f"SELECT CAST($v${one}$v$ AS {type_}) = CAST($v${other}$v$ AS {type_})") == [(True,)]
        except psycopg.errors.UndefinedFunction:
            return False

    def _copied(self, table: str) -> bytes:
        with self._connection.cursor().copy(f"COPY {table} TO STDOUT".encode()) as rows:
            return b"".join(map(bytes, rows))

    def _ledger_tables(self) -> list[str]:
        """The ledger's tables but that of its migrations, as SQL writes their names."""
        found = self.execute(
            "SELECT relname FROM pg_class "
            "WHERE relname ~ '^safe_ops_' AND relkind = 'r' AND relname <> 'safe_ops_schema'"
        )
        return [f"{self.quote(self.ledger_schema)}.{self.quote(table)}" for (table,) in found]

    def _ledger(self, table: str) -> str:
        return f"{self.quote(self.ledger_schema)}.safe_ops_{table}"

    def _has_ledger(self) -> bool:
        return self.execute(f"SELECT to_regclass($name${self._ledger('target')}$name$)") != [(None,)]
