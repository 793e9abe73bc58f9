"""What a DAG author declares of one load."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from airflow_safe_ops.definition.checks import Aggregate, Check
from airflow_safe_ops.definition.partition import Partition
from airflow_safe_ops.errors import InvalidArgument

Strategy = Literal["delete_insert", "merge", "append_once"]
OnDuplicates = Literal["fail", "keep_latest"]
OnKeyMoved = Literal["fail", "move"]
NotMatchedBySource = Literal["keep", "delete"]
OnSchemaChange = Literal["fail", "append_new_columns", "ignore"]
OnEmpty = Literal["fail", "replace"]
OnUnledgered = Literal["fail", "replace", "adopt"]
OnChanged = Literal["fail", "skip"]
Checksum = Literal["auto", "off", "key", "full"]

CHOICES: dict[str, tuple[str, ...]] = {
    "strategy": get_args(Strategy),
    "on_duplicates": get_args(OnDuplicates),
    "on_key_moved": get_args(OnKeyMoved),
    "not_matched_by_source": get_args(NotMatchedBySource),
    "on_schema_change": get_args(OnSchemaChange),
    "on_empty": get_args(OnEmpty),
    "on_unledgered": get_args(OnUnledgered),
    "on_changed": get_args(OnChanged),
    "checksum": get_args(Checksum),
}


@dataclass(frozen=True)
class Load:
    """
    One load as declared; see :class:`~airflow_safe_ops.operators.load.IdempotentLoadOperator` for each field.

    :raises InvalidArgument: at construction, for a combination that cannot be run safely.
    """

    table: str
    sql: str
    partition: Partition
    strategy: Strategy = "delete_insert"
    columns: tuple[str, ...] | None = None
    unique_key: tuple[str, ...] | None = None
    sequence_by: str | None = None
    on_duplicates: OnDuplicates = "fail"
    on_key_moved: OnKeyMoved = "fail"
    not_matched_by_source: NotMatchedBySource = "keep"
    on_schema_change: OnSchemaChange = "fail"
    on_empty: OnEmpty = "fail"
    on_unledgered: OnUnledgered = "fail"
    on_changed: OnChanged = "fail"
    source_slice: str | None = None
    source_slice_column: str | None = None
    exclusive: bool = False
    checksum: Checksum = "auto"
    parameters: Mapping[str, Any] = field(default_factory=dict)
    audits: tuple[Check, ...] = ()
    post_checks: tuple[Check, ...] = ()

    def __post_init__(self) -> None:
        for name in CHOICES:
            check_choice(name, getattr(self, name))
        for name in ("unique_key", "columns"):
            check_names(name, getattr(self, name))
        if self.strategy == "merge" and not self.unique_key:
            raise InvalidArgument(
                'strategy="merge" needs a unique_key.',
                fix='Name the columns, or use strategy="delete_insert".',
            )
        if self.on_duplicates == "keep_latest" and not (self.unique_key and self.sequence_by):
            raise InvalidArgument(
                'on_duplicates="keep_latest" needs unique_key and sequence_by.',
                why="Without them the latest row cannot be told.",
            )
        if self.checksum == "key" and not self.unique_key:
            raise InvalidArgument('checksum="key" needs a unique_key.', fix='Name the columns, or use checksum="full".')
        if self.on_key_moved == "move" and not self.unique_key:
            raise InvalidArgument(
                'on_key_moved="move" needs a unique_key.',
                why="Without one nothing is looked for in other partitions.",
                fix="Name the columns, or leave on_key_moved out.",
            )
        refuse = _not_when_appending if self.appends else _only_when_appending
        refuse(self)
        own = [name for name in self.parameters if str(name).startswith("_")]
        if own:
            raise InvalidArgument(
                f"parameters name {', '.join(map(str, own))}.",
                why="Names that begin with an underscore are the package's own.",
                fix="Rename them.",
            )
        for check in (*self.audits, *self.post_checks):
            if isinstance(check, Aggregate) and check.table:
                raise InvalidArgument(
                    f"{check.name} names a table of its own.",
                    why="audits look at the staged rows, post_checks at the partition.",
                    fix="Leave table out, or use SqlCheck.",
                )

    @property
    def key(self) -> tuple[str, ...]:
        """The unique key's columns; empty without one."""
        return self.unique_key or ()

    @property
    def keeps_rows(self) -> bool:
        """Whether rows of the partition may stay as they are: what was there counts, and so does each change."""
        return self.strategy == "merge"

    @property
    def leaves_rows(self) -> bool:
        """Whether rows of the partition stay that the query does not return."""
        return self.keeps_rows and self.not_matched_by_source == "keep"

    @property
    def appends(self) -> bool:
        """Whether rows are only ever added, and once."""
        return self.strategy == "append_once"

    @property
    def deletes(self) -> bool:
        """Whether rows of the target are deleted, and not only inserted and updated in place."""
        updates_only = self.not_matched_by_source == "keep" and self.on_key_moved == "fail"
        return self.strategy == "delete_insert" or not updates_only


def _only_when_appending(load: Load) -> None:
    """Refuse what says something about appending where nothing is appended."""
    _refuse_any(
        {
            "source_slice": load.source_slice is not None,
            "source_slice_column": load.source_slice_column is not None,
            "on_changed": load.on_changed != "fail",
            'on_unledgered="adopt"': load.on_unledgered == "adopt",
        },
        f'for strategy="append_once" alone; this is {load.strategy!r}.',
    )


def _not_when_appending(load: Load) -> None:
    """Refuse what would replace or delete rows, and slices whose rows could not be told from others."""
    _refuse_any(
        {
            'on_empty="replace"': load.on_empty == "replace",
            'on_unledgered="replace"': load.on_unledgered == "replace",
            'on_key_moved="move"': load.on_key_moved == "move",
            'not_matched_by_source="delete"': load.not_matched_by_source == "delete",
        },
        'not for strategy="append_once", which only adds rows.',
    )
    if load.source_slice is not None and not (load.unique_key or load.source_slice_column):
        raise InvalidArgument(
            "source_slice needs a unique_key or a source_slice_column.",
            why="Without one, the rows of a slice could not be found again if the ledger were lost.",
            fix="Name the key's columns, or a column of the target that keeps the slice.",
        )
    if load.source_slice_column is not None and load.source_slice is None:
        raise InvalidArgument("source_slice_column needs a source_slice.", fix="Say what the column is filled with.")
    if load.source_slice is not None and not str(load.source_slice).strip():
        raise InvalidArgument(
            f"source_slice={load.source_slice!r} names nothing.",
            fix="Give the slice's name, for example a file's.",
        )
    if load.source_slice_column in (*load.key, *load.partition.columns):
        raise InvalidArgument(
            f"source_slice_column={load.source_slice_column!r} is a column of the unique key or the partition.",
            why="The operator fills it; keys and partitions are made of what the query returns.",
            fix="Name another column.",
        )


def _refuse_any(given: Mapping[str, bool], why: str) -> None:
    named = [name for name, is_given in given.items() if is_given]
    if named:
        raise InvalidArgument(f"{', '.join(named)}: {why}", fix="Leave it out, or use another strategy.")


def check_choice(name: str, value: object) -> None:
    """Refuse a word that the argument of that name does not know."""
    if value not in CHOICES[name]:
        raise InvalidArgument(f"{name}={value!r} is not one of {', '.join(CHOICES[name])}.")


def check_names(name: str, value: object) -> None:
    """Refuse a list of columns that is empty, holds a name twice or is a bare string."""
    if value is None:
        return
    if isinstance(value, str) or not isinstance(value, list | tuple):
        raise InvalidArgument(f"{name}={value!r} is not a list of column names.")
    if not value:
        raise InvalidArgument(
            f"{name}=[] names no column.",
            why="An empty list would switch the protection off silently.",
            fix=f"Name the columns, or leave {name} out.",
        )
    if not all(isinstance(column, str) and column for column in value) or len(set(value)) != len(value):
        raise InvalidArgument(
            f"{name}={list(value)!r} names a column twice or not at all.", fix="Name each column once, as text."
        )
