"""What an author declares of a write that is not ours."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from airflow_safe_ops.definition.checks import Aggregate, Check
from airflow_safe_ops.definition.load import OnEmpty
from airflow_safe_ops.definition.partition import Partition, TimePartition
from airflow_safe_ops.errors import InvalidArgument

OnRepeat = Literal["fail", "allow", "clean_up"]


@dataclass(frozen=True)
class GuardedTarget:
    """
    What a foreign writer writes, and what to do where rows are there already.

    :param table: the target as the user writes it.
    :param partition: the part of it that one run owns.
    :param on_repeat: the partition holds rows before the writer starts: ``fail``, ``allow``, or ``clean_up``, which
        deletes them first.
    :param on_empty: the writer leaves no row where there were some: ``fail`` or ``replace``.
    :param post_checks: checks on the partition after the writer has ended.
    """

    table: str
    partition: Partition
    on_repeat: OnRepeat = "fail"
    on_empty: OnEmpty = "fail"
    post_checks: tuple[Check, ...] = ()

    def __post_init__(self) -> None:
        for name, words in (("on_repeat", get_args(OnRepeat)), ("on_empty", get_args(OnEmpty))):
            if getattr(self, name) not in words:
                raise InvalidArgument(f"{name}={getattr(self, name)!r} is not one of {', '.join(words)}.")
        if self.on_repeat == "fail" and isinstance(self.partition, TimePartition) and self.partition.lookback:
            raise InvalidArgument(
                'lookback needs on_repeat="clean_up" or "allow".',
                why="Each run meets the rows of the one before it.",
                fix="Leave lookback out, or say what to do with those rows.",
            )
        for check in self.post_checks:
            if isinstance(check, Aggregate) and check.table:
                raise InvalidArgument(
                    f"{check.name} names a table of its own.",
                    why="post_checks look at the partition.",
                    fix="Leave table out, or use SqlCheck.",
                )
