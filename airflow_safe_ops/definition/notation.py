"""Partitions in the forms that Airflow, a mapped task or the command line hands over."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from airflow_safe_ops.definition.grain import zone
from airflow_safe_ops.definition.partition import Partition, TimePartition, ValuePartition, WholeTable
from airflow_safe_ops.errors import InvalidPartition


def partition_from(given: Partition | Mapping[str, Any] | str) -> Partition:
    """
    A partition from what Airflow or the command line hands over.

    :param given: a partition, what its ``serialize()`` gave, a dict of a TimePartition's arguments (it has
        ``column``) or of column values, or the command line's form: ``order_date=2026-01-01..2026-02-01@Zone``,
        ``region=EU``, ``*``.
    """
    if isinstance(given, TimePartition | ValuePartition | WholeTable):
        return given
    if isinstance(given, str):
        return parse_partition(given)
    if not isinstance(given, Mapping):
        raise InvalidPartition(
            f"{given!r} is not a partition.",
            fix="Use TimePartition, ValuePartition, WholeTable, or their dict.",
        )
    data = dict(given)
    kind = data.pop("type", "time" if "column" in data else "values")
    try:
        if kind == "time":
            return TimePartition(**data)
        if kind == "values":
            return ValuePartition(data["values"] if isinstance(data.get("values"), Mapping) else data)
        if kind == "table":
            return WholeTable(**data)
    except TypeError as error:
        raise InvalidPartition(f"{dict(given)!r} is not a partition: {error}.") from error
    raise InvalidPartition(f"{dict(given)!r} is not a partition: unknown type {kind!r}.")


# A word that holds one of the form's own characters stands in double quotes, as JSON writes it.
_WORD = r'\s*(?P<{}>"(?:[^"\\]|\\.)*"|[^{}]*?)\s*'
_COLUMN = _WORD.format("column", '",=')
_RANGE = re.compile(_COLUMN + r"=\s*(?P<start>[^=\"]+?)\.\.(?P<end>[^=@\"]+?)(?:@(?P<zone>\S+))?", re.DOTALL)
_VALUE = re.compile(_COLUMN + "=" + _WORD.format("value", ",") + "(?:,|$)", re.DOTALL)


def parse_partition(text: str) -> Partition:
    """A partition from the command line's form; see :func:`partition_from`."""
    text = text.strip()
    if text == "*":
        return WholeTable()
    if found := _RANGE.fullmatch(text):
        name = found["zone"] or "UTC"
        start, end = (_wall_clock(found[bound].strip(), name) for bound in ("start", "end"))
        return TimePartition(_unquoted(found["column"]), timezone=name, start=start, end=end)
    pairs, at = {}, 0
    while at < len(text) and (found := _VALUE.match(text, at)):
        pairs[_unquoted(found["column"])] = None if found["value"] == "NULL" else _unquoted(found["value"])
        at = found.end()
    if not pairs or at < len(text) or text.endswith(","):
        raise InvalidPartition(
            f"{text!r} is not a partition.",
            fix="Write order_date=2026-01-01..2026-02-01@America/New_York, region=EU, or *.",
        )
    return ValuePartition(pairs)


def _unquoted(word: str) -> str:
    if not word.startswith('"'):
        return word
    try:
        return str(json.loads(word, strict=False))
    except ValueError as error:
        raise InvalidPartition(f"{word} is no quoted text.", fix='Quote as JSON does: "a\\"b".') from error


def _wall_clock(bound: str, timezone: str) -> str:
    """The command line names the zone once, behind the @: it holds for a time without offset too."""
    try:
        moment = datetime.fromisoformat(bound)
    except ValueError:
        return bound
    if len(bound) <= len("2026-01-01") or moment.tzinfo:
        return bound
    return moment.replace(tzinfo=zone(timezone)).astimezone(UTC).isoformat()
