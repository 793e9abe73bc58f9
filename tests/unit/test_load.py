"""What an author may declare of one load, and what is refused before anything runs."""

from __future__ import annotations

from typing import Any

import pytest

from airflow_safe_ops.definition.checks import RowCount, SqlCheck
from airflow_safe_ops.definition.load import Load, check_choice, check_names
from airflow_safe_ops.definition.partition import TimePartition
from airflow_safe_ops.errors import InvalidArgument

CHOICES = (
    "strategy",
    "on_duplicates",
    "on_key_moved",
    "not_matched_by_source",
    "on_schema_change",
    "on_empty",
    "on_unledgered",
    "checksum",
)


def load(**declared: Any) -> Load:
    return Load(table="t", sql="SELECT 1", partition=TimePartition("d"), **declared)


def test_the_least_that_can_be_declared() -> None:
    assert (load().strategy, load().key, load().on_empty, load().on_unledgered) == ("delete_insert", (), "fail", "fail")


@pytest.mark.parametrize(
    "declared",
    [
        {"strategy": "merge", "unique_key": ("a",)},
        {"strategy": "merge", "unique_key": ("a", "b"), "not_matched_by_source": "delete"},
        {"unique_key": ("a",), "sequence_by": "s", "on_duplicates": "keep_latest"},
        {"unique_key": ("a",), "on_key_moved": "move"},
        {"unique_key": ("a",), "checksum": "key"},
        {"columns": ("a", "A", "ä")},
        {"audits": (RowCount(),), "post_checks": (SqlCheck("SELECT true"),)},
        {"parameters": {"region": "EU", "Größe": None}},
    ],
    ids=str,
)
def test_what_is_accepted(declared: dict[str, Any]) -> None:
    assert load(**declared).key == declared.get("unique_key", ())


@pytest.mark.parametrize(
    "declared",
    [
        {"strategy": "merge"},
        {"strategy": "merge", "unique_key": ()},
        {"unique_key": ()},
        {"unique_key": []},
        {"unique_key": "order_id"},
        {"unique_key": ("a", "a")},
        {"unique_key": ("a", "")},
        {"unique_key": ("a", None)},
        {"unique_key": (["a"],)},
        {"unique_key": {"a"}},
        {"columns": ()},
        {"columns": "a"},
        {"columns": ("a", "a")},
        {"on_duplicates": "keep_latest"},
        {"on_duplicates": "keep_latest", "unique_key": ("a",)},
        {"on_duplicates": "keep_latest", "sequence_by": "s"},
        {"on_key_moved": "move"},
        {"checksum": "key"},
        {"audits": (RowCount(table="other"),)},
        {"post_checks": (RowCount(table="other"),)},
        {"parameters": {"_start": 1}},
        *({name: "perhaps"} for name in CHOICES),
        *({name: None} for name in CHOICES),
        *({name: ["fail"]} for name in CHOICES),
    ],
    ids=str,
)
def test_what_is_refused(declared: dict[str, Any]) -> None:
    """dlt-hub/dlt#971: an empty key list must not switch deduplication off without a word."""
    with pytest.raises(InvalidArgument, match=r"^SO-201 ") as refused:
        load(**declared)
    assert refused.value.fix


def test_a_wrong_word_is_answered_with_the_right_ones() -> None:
    with pytest.raises(InvalidArgument, match=r"strategy='upsert' is not one of delete_insert, merge, append_once\."):
        check_choice("strategy", "upsert")


def test_no_list_is_no_empty_list() -> None:
    check_names("unique_key", None)
    with pytest.raises(InvalidArgument, match="An empty list would switch the protection off silently"):
        check_names("unique_key", ())
