"""Faults by which a writer that is not ours doubles a partition under the guard, or the ledger hides what it left."""

from __future__ import annotations

from tests.sabotage.mutant import Mutant

GUARDS = "sabotage/test_state_guards.py"
GUARD = "execution/guard.py"

OF_GUARDS = (
    Mutant(
        "guard-without-a-look",
        "rows that are there before a guarded writer starts are no repeat",
        GUARD,
        'if self._found and on_repeat == "fail":',
        'if self._found < 0 and on_repeat == "fail":',
        f"{GUARDS}::test_a_repeat_writes_nothing",
    ),
    Mutant(
        "guard-without-clean-up",
        "the declared clean-up is left out",
        GUARD,
        'if on_repeat == "clean_up":',
        'if on_repeat == "clean":',
        f"{GUARDS}::test_a_repeat_after_the_clean_up_writes_one_copy",
    ),
    Mutant(
        "guard-without-a-claim",
        "the claim is given back before the writer starts",
        "execution/held.py",
        "            self._open = stack.pop_all()\n",
        "            self._open = ExitStack(); claims.release(tx, self._session.dialect.ledger, self.claim)\n",
        f"{GUARDS}::test_one_after_the_other",
    ),
    Mutant(
        "guard-never-unconfirmed",
        "the ledger does not say that a writer has begun",
        GUARD,
        "        store.put_unconfirmed(session, sql, self._claim.claim, task.scope)\n",
        "",
        f"{GUARDS}::test_a_writer_that_fails_leaves_a_unconfirmed_day",
    ),
    Mutant(
        "guard-unconfirmed-too-late",
        "that a writer has begun is rolled back at once",
        GUARD,
        "        store.put_unconfirmed(session, sql, self._claim.claim, task.scope)\n",
        "        store.put_unconfirmed(session, sql, self._claim.claim, task.scope); session.rollback()\n",
        f"{GUARDS}::test_while_it_writes_the_day_is_unconfirmed",
    ),
    Mutant(
        "guard-lost-claim-is-success",
        "a claim that was lost meanwhile is not told, and the partition recorded as whole",
        "ledger/store.py",
        '        tx.run(sql.end_attempt(claim.attempt_id, "unfenced", {**_failure(error, seconds), **counted}))\n',
        '        tx.run(sql.end_attempt(claim.attempt_id, "published", {}))\n',
        f"{GUARDS}::test_who_lost_the_claim_has_published_nothing",
    ),
)
