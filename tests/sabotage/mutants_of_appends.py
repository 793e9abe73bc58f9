"""Faults by which `append_once` appends twice, never, or takes other rows for its own."""

from __future__ import annotations

from tests.sabotage.mutant import Mutant

APPENDS = "sabotage/test_state_appends.py"

OF_APPENDS = (
    Mutant(
        "append-over-rows",
        "`append_once` inserts its rows beside those that it was to adopt",
        "sql/append.py",
        'f"WHERE NOT EXISTS (SELECT 1 {owned_rows(task)})",',
        '"WHERE TRUE",',
        f"{APPENDS}::test_the_same_rows_are_adopted_after_the_ledger_was_lost",
    ),
    Mutant(
        "append-takes-any-rows",
        "`append_once` takes rows that nobody recorded for its own",
        "plan/append.py",
        "        refuses = [_nothing_unrecorded(task)]",
        "        refuses = []",
        f"{APPENDS}::test_rows_that_nobody_recorded_are_not_its_own",
    ),
    Mutant(
        "append-compares-numbers-only",
        "`append_once` does not see that the source has other rows than those it appended",
        "plan/append.py",
        'if there == staged and facts["content_there"] == facts["content_staged"] and once in (None, staged):',
        "if there == staged and once in (None, staged):",
        f"{APPENDS}::test_other_rows_of_the_same_number_are_told",
    ),
    Mutant(
        "slices-share-a-record",
        "one appended slice of a partition passes for all of them",
        "plan/model.py",
        "return self.scope.key if self.load.source_slice is None else",
        "return self.scope.key if self.load.source_slice is not None else",
        f"{APPENDS}::test_each_slice_is_appended",
    ),
    Mutant(
        "slices-without-their-column",
        "the rows of one slice are taken for those of another",
        "sql/text.py",
        'return scope if column is None else f"({scope} AND {dot}{quoted(column)} = {slice_value(task)})"',
        'return scope if column is None else f"({scope} AND {dot}{quoted(column)} IS NOT NULL)"',
        f"{APPENDS}::test_each_slice_is_appended",
    ),
    Mutant(
        "a-slice-is-all-of-its-partition",
        "a replacement takes all rows for known because one slice is",
        "plan/load.py",
        "whole = [record.scope for record in known if record.source_slice is None]",
        "whole = [record.scope for record in known]",
        f"{APPENDS}::test_rows_beside_a_slice_are_not_replaced",
    ),
    Mutant(
        "invalid-still-counts",
        "what somebody declared invalid is not appended again",
        "plan/append.py",
        'if record.key == task.key and record.state not in ("missing", "unconfirmed") and record.row_count != 0:',
        "if record.key == task.key and record.row_count != 0:",
        f"{APPENDS}::test_what_was_declared_invalid_is_appended_again",
    ),
    Mutant(
        "adopted-turns-into-published",
        "rows that were taken as they stood read as loaded once a part of them was",
        "ledger/store.py",
        'stays = record.state in ("missing", "adopted", "unconfirmed") and not covers(scope, record.scope)',
        'stays = record.state == "missing" and not covers(scope, record.scope)',
        "contract/test_cli_record_postgres.py::test_a_whole_table_at_once[*]",
    ),
)
