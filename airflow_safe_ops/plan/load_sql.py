"""The statements of a load, as the plan asks a dialect for them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from airflow_safe_ops.definition.checks import Check
from airflow_safe_ops.definition.scope import Scope
from airflow_safe_ops.plan.model import LoadTask, Statement


class LoadSql(Protocol):
    """The statements of a load, as one dialect writes them."""

    def lock_table(self, task: LoadTask) -> Statement:
        """Keep every other writer out until the transaction ends."""

    def add_column(self, task: LoadTask, name: str, type_: str) -> Statement:
        """Add one column to the target."""

    def create_stage(self, task: LoadTask) -> Statement:
        """An empty stage with the types of the target's columns, gone with the transaction."""

    def fill_stage(self, task: LoadTask) -> Statement:
        """What the author's query returns, into the stage."""

    def keep_latest(self, task: LoadTask) -> Statement:
        """Of each key only the row that comes last by ``sequence_by``."""

    def tied_keys(self, task: LoadTask) -> Statement:
        """How many keys have two latest rows (``duplicate_keys``)."""

    def tied_sample(self, task: LoadTask) -> Statement:
        """Some of those keys."""

    def look_at_stage(self, task: LoadTask) -> Statement:
        """``rows_staged, null_in_partition, rows_outside, null_key_0 …`` in one pass."""

    def odd_rows(self, task: LoadTask) -> Statement:
        """Some staged rows that are outside, or NULL where they must not be."""

    def look_at_target(self, task: LoadTask, unknown: Sequence[Scope]) -> Statement:
        """``rows_before, unledgered``: rows of the partition, and whether any lies in the unknown parts."""

    def unique_stage(self, task: LoadTask) -> Statement:
        """A unique index on the stage's key: it fails where a key stands twice."""

    def duplicate_sample(self, task: LoadTask) -> Statement:
        """Some keys that stand twice in the stage."""

    def analyze_stage(self, task: LoadTask) -> Statement:
        """Tell the planner how large the stage is."""

    def moved_keys(self, task: LoadTask) -> Statement:
        """``keys_moved``: staged keys that stand in another partition of the target."""

    def moved_sample(self, task: LoadTask) -> Statement:
        """Where those keys stand: values of the partition's columns, with counts."""

    def delete_moved(self, task: LoadTask) -> Statement:
        """Take the rows of those keys out of the other partitions."""

    def aggregates(self, task: LoadTask, checks: Sequence[tuple[str, Check]], staged: bool) -> Sequence[Statement]:
        """Queries that give each check's value under its fact's name."""

    def delete_partition(self, task: LoadTask) -> Statement:
        """All rows of the partition."""

    def insert_stage(self, task: LoadTask) -> Statement:
        """All rows of the stage."""

    def delete_unmatched(self, task: LoadTask) -> Statement:
        """Rows of the partition whose key is not staged."""

    def update_changed(self, task: LoadTask) -> Statement:
        """Rows of the partition whose key is staged with other values."""

    def insert_missing(self, task: LoadTask) -> Statement:
        """Staged rows whose key is not in the partition."""

    def arrived(self, task: LoadTask) -> Statement:
        """``rows_arrived``: rows of the partition whose key is staged."""

    def count_copies(self, task: LoadTask) -> Statement:
        """``rows_there, keys_there``: the partition's rows of staged keys, and how many such keys there are."""

    def look_for_appended(self, task: LoadTask) -> Statement:
        """``rows_there, content_there, content_staged``: the load's rows in the target, and a hash of each side."""

    def append_stage(self, task: LoadTask) -> Statement:
        """All rows of the stage, if the target holds none of the load's rows."""

    def look_after(self, task: LoadTask) -> Statement:
        """``rows_after, checksum`` of the rows that the load owns."""

    def defer_constraints(self) -> Statement:
        """Check deferrable constraints at the end: rows that go and come back break none."""

    def settle_constraints(self) -> Statement:
        """Check deferred constraints now."""
