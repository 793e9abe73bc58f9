"""What PostgreSQL's catalog says of a target: which table it really is, its columns, keys and who points at it."""

from __future__ import annotations

import json
import re
from typing import Any, cast

from airflow_safe_ops.definition.target import Column, ForeignKey, Generation, Table
from airflow_safe_ops.errors import AmbiguousTarget, UnknownTable, UnsupportedTarget
from airflow_safe_ops.plan.model import Executor, Statement, bind
from airflow_safe_ops.sql.text import quoted

_KINDS = {"date": "date", "timestamp": "timestamp", "timestamptz": "timestamptz"}
_GENERATIONS = {"a": "identity_always", "d": "identity_default"}
_ON_DELETE = {"a": "NO ACTION", "r": "RESTRICT", "c": "CASCADE", "n": "SET NULL", "d": "SET DEFAULT"}
_TABLES = ("r", "p")
_COMPARABLE = (
    *("bool", "int2", "int4", "int8", "oid", "numeric", "float4", "float8", "money"),
    *("text", "varchar", "bpchar", "name", "char", "citext", "uuid", "date", "timestamp", "timestamptz"),
)
_WHAT = {
    "m": "a materialized view",
    "f": "a foreign table",
    "S": "a sequence",
    "i": "an index",
    "c": "a type",
}
_WRITABLE = 4 | 8 | 16  # update, insert, delete

_RELATION = """
SELECT c.oid::int8 AS oid, c.relkind::text AS kind, n.nspname AS schema_name, c.relname AS table_name,
       pg_catalog.pg_relation_is_updatable(c.oid, false) AS updatable, c.relrowsecurity AS row_security,
       c.relpersistence::text AS persistence
FROM pg_catalog.pg_class AS c JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
WHERE c.oid = """

_VIEW_BASE = """
SELECT DISTINCT d.refobjid::int8 AS oid
FROM pg_catalog.pg_rewrite AS r
JOIN pg_catalog.pg_depend AS d ON d.classid = 'pg_catalog.pg_rewrite'::regclass AND d.objid = r.oid
JOIN pg_catalog.pg_class AS c ON c.oid = d.refobjid AND d.refclassid = 'pg_catalog.pg_class'::regclass
WHERE r.ev_class = CAST({oid} AS oid) AND r.rulename = '_RETURN' AND d.refobjid <> r.ev_class
  AND c.relkind IN ('r', 'p', 'v', 'm', 'f')"""

_VIEW_TEXT = "SELECT pg_catalog.pg_get_viewdef(CAST({oid} AS oid)) AS text"

# Partitions and inheriting tables: a row of the child is a row of the parent.
_FAMILY = """
WITH RECURSIVE up AS (
  SELECT CAST({oid} AS oid) AS oid, 0 AS depth UNION
  SELECT i.inhparent, up.depth + 1 FROM up JOIN pg_catalog.pg_inherits AS i ON i.inhrelid = up.oid),
down AS (
  SELECT CAST({oid} AS oid) AS oid UNION
  SELECT i.inhrelid FROM down JOIN pg_catalog.pg_inherits AS i ON i.inhparent = down.oid)
SELECT oid::int8 AS oid, depth, NOT EXISTS (SELECT 1 FROM pg_catalog.pg_inherits AS i WHERE i.inhrelid = up.oid) AS top
FROM up UNION ALL SELECT oid::int8, -1, false FROM down WHERE oid <> CAST({oid} AS oid)"""

_COLUMNS = """
WITH RECURSIVE typed AS (
  SELECT a.attnum, a.atttypid AS type_oid FROM pg_catalog.pg_attribute AS a
  WHERE a.attrelid = CAST({oid} AS oid) AND a.attnum > 0 AND NOT a.attisdropped
  UNION ALL
  SELECT typed.attnum, CASE WHEN t.typtype = 'd' THEN t.typbasetype ELSE t.typelem END
  FROM typed JOIN pg_catalog.pg_type AS t ON t.oid = typed.type_oid
  WHERE t.typtype = 'd' OR (t.typcategory = 'A' AND t.typelem <> 0)),
leaf AS (
  SELECT typed.attnum, t.oid, t.typname, t.typtype, t.typcategory FROM typed
  JOIN pg_catalog.pg_type AS t ON t.oid = typed.type_oid
  WHERE t.typtype <> 'd' AND NOT (t.typcategory = 'A' AND t.typelem <> 0))
SELECT a.attname AS name, pg_catalog.format_type(a.atttypid, a.atttypmod) AS type, leaf.typname AS leaf,
  (SELECT count(*) FROM typed WHERE typed.attnum = a.attnum) = 1
    OR base.typtype = 'd' AND base.typcategory <> 'A' AS scalar,
  a.attgenerated::text AS generated,
  a.attidentity::text AS identity,
  leaf.typtype = 'e' AS is_enum,
  leaf.typtype IN ('e', 'r', 'm') OR leaf.typname = 'varchar' OR EXISTS (
    SELECT 1 FROM pg_catalog.pg_opclass AS o JOIN pg_catalog.pg_am AS m ON m.oid = o.opcmethod
    JOIN pg_catalog.pg_amproc AS p ON p.amprocfamily = o.opcfamily AND p.amproclefttype = o.opcintype
    WHERE m.amname = 'hash' AND p.amprocnum = 2 AND o.opcdefault AND o.opcintype = leaf.oid) AS hashable,
  coalesce(NOT co.collisdeterministic, false) AS loose_collation
FROM pg_catalog.pg_attribute AS a
JOIN leaf ON leaf.attnum = a.attnum JOIN pg_catalog.pg_type AS base ON base.oid = a.atttypid
LEFT JOIN pg_catalog.pg_collation AS co ON co.oid = a.attcollation
WHERE a.attrelid = CAST({oid} AS oid) AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum"""

_KEYS = """
SELECT c.relname AS name, (SELECT pg_catalog.json_agg(a.attname ORDER BY a.attname) FROM pg_catalog.pg_attribute AS a
        WHERE a.attrelid = i.indrelid AND a.attnum = ANY ((i.indkey::int2[])[0:i.indnkeyatts - 1]))::text AS names
FROM pg_catalog.pg_index AS i JOIN pg_catalog.pg_class AS c ON c.oid = i.indexrelid
WHERE i.indrelid = CAST({oid} AS oid) AND i.indisunique AND i.indisvalid AND i.indimmediate
  AND i.indpred IS NULL AND i.indexprs IS NULL"""

_POINTING = """
SELECT k.conname AS name, k.conrelid::regclass::text AS child, k.confdeltype::text AS on_delete,
       k.condeferrable AS deferrable
FROM pg_catalog.pg_constraint AS k
WHERE k.contype = 'f' AND k.confrelid::int8 = ANY (CAST({family} AS int8[])) AND k.conparentid = 0 ORDER BY 2, 1"""

_NOTES = """
SELECT 'trigger ' || t.tgname AS note FROM pg_catalog.pg_trigger AS t
WHERE t.tgrelid::int8 = ANY (CAST({family} AS int8[])) AND NOT t.tgisinternal AND t.tgenabled <> 'D'
UNION SELECT 'rule ' || r.rulename FROM pg_catalog.pg_rewrite AS r
WHERE r.ev_class::int8 = ANY (CAST({family} AS int8[])) AND r.rulename <> '_RETURN' ORDER BY 1"""


def describe(executor: Executor, name: str) -> Table:
    """
    What the catalog says of a target.

    :param name: ``table``, ``schema.table`` or with double quotes; taken as written first, in lower case
        where nothing is found.
    :raises UnknownTable: there is none.
    :raises UnsupportedTarget: it cannot be written as a table.
    :raises AmbiguousTarget: which table stands behind it cannot be told.
    """
    relation = _find(executor, name)
    written = f"{quoted(relation['schema_name'])}.{quoted(relation['table_name'])}"
    base = _base(executor, relation, written)
    family = _family(executor, base["oid"], written)
    root = _relation(executor, family[0])
    if root["oid"] != base["oid"]:
        whole = f"{root['schema_name']}.{root['table_name']}"
        raise UnsupportedTarget(
            f"{written} is a part of {whole}.",
            why="What the ledger knows of a part would be taken for known of the whole.",
            fix=f"Load {whole}: the database puts each row where it belongs.",
        )
    columns = _columns(executor, relation["oid"], base["oid"])
    everyone = "{" + ",".join(map(str, {*family, relation["oid"], base["oid"]})) + "}"
    return Table(
        identity=f"{quoted(root['schema_name'])}.{quoted(root['table_name'])}",
        name=written,
        columns=columns,
        # An index on a table that others inherit from does not see their rows; one on a partitioned table does.
        unique_keys=_keys(executor, base["oid"]) if base["kind"] == "p" or len(family) == 1 else (),
        referenced_by=_pointing(executor, everyone),
        notes=_notes(executor, everyone, base),
    )


def split_name(name: str) -> tuple[str, ...]:
    """The parts of a dotted name; a part in double quotes may hold dots, blanks and quotes."""
    parts = re.findall(r'\s*(?:"((?:[^"]|"")*)"|([^".]+))\s*(?:\.|$)', name)
    rebuilt = ".".join((q and f'"{q}"') or plain for q, plain in parts)
    if not parts or len(re.sub(r"\s", "", rebuilt)) != len(re.sub(r"\s", "", name)):
        raise UnknownTable(f"{name!r} is not the name of a table.", table=name)
    return tuple(q.replace('""', '"') or plain.strip() for q, plain in parts)


def _find(executor: Executor, name: str) -> dict[str, Any]:
    parts = split_name(name)
    if len(parts) > 2:
        raise UnknownTable(f"{name!r} has {len(parts)} parts; a table's name is schema.table.", table=name)
    for spelled in dict.fromkeys((parts, tuple(p.lower() for p in parts))):
        text = ".".join(quoted(part) for part in spelled)
        # In a long transaction names are remembered; the first lock on a catalog makes the server look again.
        found = executor.run(
            Statement(
                f"SELECT pg_catalog.to_regclass({bind('name')})::oid::int8 AS oid FROM pg_catalog.pg_class LIMIT 1",
                {"name": text},
            )
        ).rows[0][0]
        if found is not None:
            return _relation(executor, found)
    raise UnknownTable(f"There is no table {name} in this database, or this login may not see it.", table=name)


def _relation(executor: Executor, oid: int) -> dict[str, Any]:
    return _all(executor, _RELATION + "{oid}", oid=oid)[0]


def _base(executor: Executor, relation: dict[str, Any], written: str) -> dict[str, Any]:
    """The table behind a view, through views on views; the relation itself if it is a table."""
    while relation["kind"] == "v":
        if relation["updatable"] & _WRITABLE != _WRITABLE:
            raise UnsupportedTarget(
                f"{written} is a view that the database cannot write through.",
                why="Only a view on one table, without grouping, DISTINCT or INSTEAD OF triggers, takes rows.",
            )
        behind = _all(executor, _VIEW_BASE, oid=relation["oid"])
        if len(behind) != 1:
            raise AmbiguousTarget(f"{written} is a view that reads {len(behind)} relations.")
        definition = _all(executor, _VIEW_TEXT, oid=relation["oid"])[0]["text"]
        if found := re.search(r"\b(?:WHERE|AS)\b", definition):
            raise UnsupportedTarget(
                f"{written} is a view that {'filters' if found.group() == 'WHERE' else 'renames or computes'}.",
                why="Its rows or columns are not the table's, so two loads could not see that they overlap.",
            )
        relation = _relation(executor, behind[0]["oid"])
    if relation["kind"] not in _TABLES:
        raise UnsupportedTarget(f"{written} is {_WHAT.get(relation['kind'], 'no table')}.")
    if relation["persistence"] == "t":
        raise UnsupportedTarget(f"{written} is a temporary table.", why="No other session can see it.")
    return relation


def _family(executor: Executor, oid: int, written: str) -> list[int]:
    """The table at the top of the inheritance tree first, then all others that share its rows."""
    rows = _all(executor, _FAMILY, oid=oid)
    tops = [row["oid"] for row in rows if row["top"]]
    if len(set(tops)) != 1:
        raise AmbiguousTarget(f"{written} inherits from {len(tops)} tables.")
    return list(dict.fromkeys([tops[0], *(row["oid"] for row in rows)]))


def _columns(executor: Executor, oid: int, base_oid: int) -> tuple[Column, ...]:
    behind = {row["name"]: row for row in _all(executor, _COLUMNS, oid=base_oid)}
    rows = behind.values() if oid == base_oid else _all(executor, _COLUMNS, oid=oid)
    return tuple(_column(row, behind.get(row["name"], row)) for row in rows)


def _column(row: dict[str, Any], base: dict[str, Any]) -> Column:
    """A view's column knows its type; how the table fills it, the table's column knows."""
    as_bytes = row["loose_collation"] or (row["scalar"] and row["leaf"] in ("citext", "json"))
    generation = "always" if base["generated"] else _GENERATIONS.get(base["identity"], "")
    return Column(
        name=row["name"],
        type=row["type"],
        kind=cast("Any", _KINDS.get(row["leaf"]) if row["scalar"] else None),
        generated=cast("Generation", generation),
        hashable=row["hashable"] or as_bytes,
        as_bytes=as_bytes,
        comparable=row["scalar"] and (row["leaf"] in _COMPARABLE or row["is_enum"]),
    )


def _keys(executor: Executor, oid: int) -> tuple[tuple[str, tuple[str, ...]], ...]:
    return tuple((row["name"], tuple(json.loads(row["names"]))) for row in _all(executor, _KEYS, oid=oid))


def _pointing(executor: Executor, family: str) -> tuple[ForeignKey, ...]:
    return tuple(
        ForeignKey(row["name"], row["child"], _ON_DELETE[row["on_delete"]], row["deferrable"])
        for row in _all(executor, _POINTING, family=family)
    )


def _notes(executor: Executor, family: str, base: dict[str, Any]) -> tuple[str, ...]:
    notes = [
        f"{row['note']} may change rows on their way: counts are the database's, a difference rolls back"
        for row in _all(executor, _NOTES, family=family)
    ]
    if base["persistence"] == "u":
        notes.append("the table is unlogged: a crash of the server empties it, and the ledger does not know")
    if base["row_security"]:
        notes.append("row security may hide rows from this login: hidden rows are neither replaced nor counted")
    return tuple(notes)


def _all(executor: Executor, sql: str, **binds: Any) -> list[dict[str, Any]]:
    text = sql
    for name in binds:
        text = text.replace("{" + name + "}", bind(name))
    return executor.run(Statement(text, binds)).named
