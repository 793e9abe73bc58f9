"""What a load did, for log, XCom, asset events and lineage."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

COUNTS = (
    "rows_read",
    "rows_deleted",
    "rows_inserted",
    "rows_updated",
    "rows_unchanged",
    "rows_moved",
    "rows_after",
)


@dataclass(frozen=True)
class PartitionResult:
    """
    One partition, published.

    :param changed: whether its rows differ from what the ledger last recorded as published; True where that
        cannot be told.
    :param seconds: from the claim's start to the ledger's record, waiting included.
    :param waited: seconds spent waiting for the claim.
    """

    partition: str
    attempt_id: str
    rows_read: int
    rows_deleted: int
    rows_inserted: int
    rows_updated: int
    rows_unchanged: int
    rows_moved: int
    rows_after: int
    changed: bool
    seconds: float
    waited: float = 0.0

    @classmethod
    def from_facts(
        cls, partition: str, attempt_id: str, facts: Mapping[str, Any], waited: float = 0.0
    ) -> PartitionResult:
        """From what the plan's steps counted, or what the ledger kept of it."""
        counts = {name: int(facts.get(name) or 0) for name in COUNTS}
        changed, seconds = bool(facts.get("changed", True)), round(float(facts.get("seconds") or 0), 3)
        return cls(partition, attempt_id, **counts, changed=changed, seconds=seconds, waited=round(waited, 3))


@dataclass(frozen=True)
class LoadResult:
    """
    All partitions of one run of one load.

    :param changed_in_run: whether this try or an earlier one of the same run changed anything.
    """

    target: str
    strategy: str
    partitions: tuple[PartitionResult, ...]
    changed_in_run: bool = True

    @property
    def changed(self) -> bool:
        """Whether any partition changed."""
        return any(p.changed for p in self.partitions)

    def as_dict(self) -> dict[str, Any]:
        """Plain data: totals, and each partition."""
        totals = {name: sum(getattr(p, name) for p in self.partitions) for name in COUNTS}
        seconds = round(sum(p.seconds for p in self.partitions), 3)
        parts = [asdict(p) for p in self.partitions]
        head = {"target": self.target, "strategy": self.strategy, "changed": self.changed, "seconds": seconds}
        return {**head, **totals, "partitions": parts}

    def __str__(self) -> str:
        return "; ".join(_line(self.target, self.strategy, p) for p in self.partitions)


def _line(target: str, strategy: str, p: PartitionResult) -> str:
    counts = {
        "read": p.rows_read,
        "deleted": p.rows_deleted,
        "inserted": p.rows_inserted,
        "updated": p.rows_updated,
        "unchanged": p.rows_unchanged,
        "moved": p.rows_moved,
    }
    shown = ", ".join(f"{name} {rows:,}" for name, rows in counts.items() if rows or name in ("read", "inserted"))
    same = "" if p.changed else ", nothing changed"
    waited = f" ({p.waited:.1f} s waiting for the claim)" if p.waited >= 0.1 else ""
    head = f"{target} {p.partition}: {strategy} published: {shown}{same}"
    return f"{head}; {p.rows_after:,} rows now; {p.seconds:.2f} s{waited}"
