"""What the database's catalog says of a target."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from airflow_safe_ops.definition.scope import ColumnKind
from airflow_safe_ops.errors import UnknownColumn

Generation = Literal["", "always", "identity_always", "identity_default"]


@dataclass(frozen=True)
class Column:
    """
    One column of a target.

    :param type: the type as the database writes it, with length and precision: ``character varying(5)``.
    :param kind: what a time partition sees in it; None for any other type.
    :param generated: how the database fills it by itself, if it does.
    :param hashable: whether the database can hash its values by the type's own equality.
    :param comparable: whether two unequal texts of its values can be told from two ways to write one value.
    :param as_bytes: whether its equality is looser than its bytes (citext, non-deterministic collations).
    """

    name: str
    type: str
    kind: ColumnKind | None = None
    generated: Generation = ""
    hashable: bool = True
    as_bytes: bool = False
    comparable: bool = True

    @property
    def writable(self) -> bool:
        """Whether a statement may give it a value."""
        return self.generated not in ("always", "identity_always")


@dataclass(frozen=True)
class ForeignKey:
    """A foreign key of another table that points at the target."""

    name: str
    child: str
    on_delete: str
    deferrable: bool


@dataclass(frozen=True)
class Table:
    """
    A target as the catalog knows it.

    :param identity: schema and name of the table whose rows these are, quoted: the same for a view on it, a
        child partition of it and a search path that hides it. Claims and ledger go by it.
    :param name: schema and name, quoted, as statements write it.
    :param unique_keys: names of the unique indexes, with their columns.
    :param notes: what a reader of the plan should know: triggers, rules, row security.
    """

    identity: str
    name: str
    columns: tuple[Column, ...]
    unique_keys: tuple[tuple[str, tuple[str, ...]], ...] = ()
    referenced_by: tuple[ForeignKey, ...] = ()
    notes: tuple[str, ...] = ()
    server_version: str = ""

    def column(self, name: str, what: str) -> Column:
        """The column of that name, or a refusal that says which argument named it."""
        for column in self.columns:
            if column.name == name:
                return column
        close = [c.name for c in self.columns if c.name.casefold() == name.casefold()]
        raise UnknownColumn(
            f"{self.name} has no column {name!r} ({what}).",
            why=f"There is {close[0]!r}." if close else f"It has {', '.join(c.name for c in self.columns)}.",
            column=name,
        )
