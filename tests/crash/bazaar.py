"""A source and a target on which a load takes every step that there is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

from airflow_safe_ops.definition.checks import RowCount, SqlCheck
from airflow_safe_ops.definition.load import Load, Strategy
from airflow_safe_ops.definition.partition import Partition
from tests.crash.warehouse import FIRST, STRATEGIES, Shop, day

_MOVED = 101
_TABLES = """
CREATE FUNCTION nothing_{tag}() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN NULL; END $$;
CREATE TABLE {source} (day date, id int, amount numeric(12, 2), note text, seen int, extra text);
CREATE TABLE {target} (day date, id int PRIMARY KEY, amount numeric(12, 2), note text, seen int);
CREATE TABLE of_{target} (id int REFERENCES {target} DEFERRABLE);
CREATE CONSTRAINT TRIGGER late AFTER INSERT ON {target} DEFERRABLE INITIALLY DEFERRED
  FOR EACH ROW EXECUTE FUNCTION nothing_{tag}();
CREATE TABLE before_{tag} AS SELECT true AS yes;
CREATE TABLE after_{tag} AS SELECT true AS yes
"""
# Of each key an older row too. The second version adds a column and brings a key of the second day to the first.
_ROWS = """
DELETE FROM {source};
INSERT INTO {source} SELECT DATE '{first}' + d, d * 100 + i + CASE i WHEN 4 THEN {v} ELSE 0 END,
  CASE i WHEN 0 THEN 1 ELSE {v} * 100 + i END, nullif('v{v} ' || i, 'v{v} 0'), seen, 'v{v}'
FROM generate_series(0, 1) AS d, generate_series(0, 4) AS i, generate_series(0, 1) AS seen;
UPDATE {source} SET note = 'older' WHERE seen = 0;
UPDATE {source} SET day = DATE '{first}' WHERE id = {moved} AND {v} > 1
"""


@dataclass
class Bazaar(Shop):
    """
    A shop of keys that move, duplicates, a new column, references that are checked late and a trigger.

    The table is referenced by rows that no version of the source takes away.
    """

    days: int = 2

    def __post_init__(self) -> None:
        names = {"source": self.source, "target": self.target, "tag": self.tag}
        self.db.execute(_TABLES.format(**names))
        self.new_version()

    def new_version(self) -> None:
        """The source changes: rows stay, come, go, differ, and one key moves."""
        self.versions += 1
        names = {"source": self.source, "first": FIRST, "v": self.versions, "moved": _MOVED}
        self.db.execute(_ROWS.format(**names))

    def load(
        self,
        partition: Partition | None = None,
        strategy: str = "delete_insert",
        *,
        table: str | None = None,
        pause: str = "",
        **more: Any,
    ) -> Load:
        """A load with everything that adds steps; from the second version of the source on it adds a column."""
        columns = "day, id, amount, note, seen" + (", extra" if self.versions > 1 else "")
        asks = [SqlCheck(f"SELECT bool_and(yes) FROM {when}_{self.tag}") for when in ("before", "after")]
        given: dict[str, Any] = {
            "unique_key": ("id",),
            "sequence_by": "seen",
            "on_duplicates": "keep_latest",
            "on_schema_change": "append_new_columns",
            "audits": (RowCount(min=1), asks[0]),
            "post_checks": (RowCount(min=1), asks[1]),
            **STRATEGIES[strategy].options,
            **more,
        }
        if strategy != "append_once":
            given |= {"on_key_moved": "move", "on_unledgered": "fail"}
        return Load(
            table=table or self.target,
            sql=f"SELECT {columns} FROM {self.source} WHERE day >= :partition_start AND day < :partition_end",
            partition=day() if partition is None else partition,
            strategy=cast("Strategy", strategy),
            **given,
        )

    def begin(self, strategy: str) -> None:
        """Both days, for the key that will move stands in the second; rows of another table point at two keys."""
        self.run(*(self.load(day(number), strategy) for number in (0, 1)))
        self.db.execute(f"INSERT INTO of_{self.target} VALUES (0), ({_MOVED})")

    def rows(self, table: str | None = None) -> list[tuple[Any, ...]]:
        """What a table holds, in whatever columns it has."""
        return self.db.execute(f"SELECT * FROM {table or self.target} ORDER BY day, id")
