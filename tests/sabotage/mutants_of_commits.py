"""Faults by which data and ledger say two things, or something outlives its load."""

from __future__ import annotations

from tests.sabotage.mutant import Mutant

COMMIT = "sabotage/test_state_commit.py"
CONTRACT = "contract/test_postgres.py"
LOST = f"{COMMIT}::test_a_lost_commit_is_loaded_again_only_if_it_did_not_take_place"

OF_COMMITS = (
    Mutant(
        "ledger-after-the-commit",
        "the data are committed first, their record in a transaction of its own",
        "execution/transaction.py",
        "        store.publish(self.session, ",
        "        self.session._connection.commit(); store.publish(self.session, ",
        f"{COMMIT}::test_killed_while_it_writes_its_record",
    ),
    Mutant(
        "lost-answer-is-failure",
        "a COMMIT whose answer was lost counts as failed, and all is loaded a second time",
        "execution/runner.py",
        'if found["state"] == "published":',
        'if found["state"] == "unknown":',
        f"{LOST}[answer]",
    ),
    Mutant(
        "lost-answer-not-awaited",
        "the ledger is asked while the COMMIT is still under way",
        "ledger/store.py",
        "        tx.run(sql.lock_claim(attempt_id, held=False))\n",
        "",
        f"{LOST}[not_awaited]",
    ),
    Mutant(
        "lost-answer-is-success",
        "a COMMIT whose answer was lost counts as done, though it never arrived",
        "execution/runner.py",
        'if found["state"] == "published":',
        "if found:",
        f"{LOST}[request]",
    ),
    Mutant(
        "failed-recorded-as-published",
        "an attempt that failed is recorded as published",
        "ledger/store.py",
        'tx.run(sql.end_attempt(claim.attempt_id, "failed", what))',
        'tx.run(sql.end_attempt(claim.attempt_id, "published", what))',
        f"{CONTRACT}::TestDeleteInsert::test_a_query_that_fails_leaves_the_old_rows[psycopg]",
    ),
    Mutant(
        "published-recorded-as-failed",
        "what ends a task just after its COMMIT turns the published attempt into a failed one",
        "sql/ledger.py",
        "AS uuid) AND state = 'started'\",",
        'AS uuid)",',
        f"{COMMIT}::test_a_task_that_ends_just_after_its_commit",
    ),
    Mutant(
        "no-count-after-the-load",
        "rows that another writer added meanwhile are published along",
        "plan/refusals.py",
        'if facts["rows_after"] == expected:',
        'if facts["rows_after"] >= 0:',
        f"{COMMIT}::test_rows_that_another_writer_added_meanwhile",
    ),
    Mutant(
        "deferred-not-settled",
        "deferred triggers and constraints wait for the COMMIT, after the count",
        "plan/load.py",
        "*([settle] if deferrable or task.table.notes else []),",
        "*([settle] if deferrable and task.table.notes else []),",
        f"{COMMIT}::test_a_deferred_trigger_that_deletes_rows",
    ),
    Mutant(
        "target-not-looked-at-again",
        "a view that shows another table since the claim is written all the same",
        "execution/runner.py",
        "if replace(now, columns=tuple(c for c in now.columns if c.name not in new)) != task.table:",
        "if now is None:",
        f"{COMMIT}::test_a_view_that_shows_another_table_meanwhile",
    ),
    Mutant(
        "stage-outlives-the-commit",
        "the stage stays for as long as its session does",
        "sql/stage.py",
        "ON COMMIT DROP",
        "ON COMMIT PRESERVE ROWS",
        f"{COMMIT}::test_no_stage_outlives_the_commit",
    ),
    Mutant(
        "dead-clients-not-noticed",
        "the statement of a killed task runs to its end and keeps its claim",
        "sql/postgres.py",
        "SET LOCAL client_connection_check_interval = 1000",
        "SET LOCAL client_connection_check_interval = 0",
        f"{COMMIT}::test_a_statement_whose_client_is_gone_ends",
    ),
    Mutant(
        "ledger-race-not-tried-again",
        "two first loads that make the ledger at once: one of them fails",
        "ledger/migrations.py",
        "if state not in _RACES or attempt == _TRIES - 1:",
        "if state in _RACES or attempt == _TRIES - 1:",
        f"{COMMIT}::test_a_ledger_that_somebody_makes_meanwhile",
    ),
    Mutant(
        "two-ledgers",
        "a second ledger stays where two were made at the same moment",
        "ledger/migrations.py",
        "if schemas == [sql.schema]:",
        "if sql.schema in schemas:",
        f"{COMMIT}::test_a_second_ledger_is_not_made",
    ),
    Mutant(
        "prune-without-its-scope",
        "pruning deletes the attempts that published what stands there",
        "sql/ledger_history.py",
        "FROM {self._t('partition')} AS p WHERE p.attempt_id = a.attempt_id) \"",
        "FROM {self._t('partition')} AS p WHERE p.attempt_id IS NULL) \"",
        f"{COMMIT}::test_pruning_keeps_who_published",
    ),
    Mutant(
        "counts-of-others-kept",
        "a day written into a month leaves the month's recorded count and checksum as they were",
        "ledger/store.py",
        'tx.run(sql.forget_counts(claim.target_id, key, record.state if stays else "published"))',
        'sql.forget_counts(claim.target_id, key, record.state if stays else "published")',
        f"{CONTRACT}::TestTimePartitions::test_a_day_in_a_recorded_month[psycopg]",
    ),
    Mutant(
        "partitions-without-a-range-forgotten",
        "a day written into a whole table leaves the table's recorded count as it was (`<>` for `IS DISTINCT FROM`)",
        "sql/ledger.py",
        "(range_of IS DISTINCT FROM {bind('range_of')} OR",
        "(range_of <> {bind('range_of')} OR",
        "sabotage/test_state_rows.py::test_a_day_takes_back_what_was_counted_of_the_table",
    ),
    Mutant(
        "never-changed",
        "every load is recorded as one that changed nothing",
        "execution/transaction.py",
        'facts["changed"] = is_changed(task, facts, before)',
        'facts["changed"] = False',
        f"{CONTRACT}::TestLedger::test_who_loaded_what",
    ),
)
