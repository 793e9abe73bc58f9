"""Faults by which a side effect outside the database happens twice, or never."""

from __future__ import annotations

from tests.sabotage.mutant import Mutant

PUBLICATIONS = "sabotage/test_state_publications.py"

OF_PUBLICATIONS = (
    Mutant(
        "publish-without-asking",
        "a receiver that could be looked up is not asked before a repeat",
        "execution/courier.py",
        "        if self.lookup is None:\n            return None\n        try:",
        "        if self.lookup is not None:\n            return None\n        try:",
        f"{PUBLICATIONS}::test_it_is_looked_up_after_a_lost_answer",
    ),
    Mutant(
        "publish-with-a-new-key",
        "a repeat of a send of unknown outcome has a new Idempotency-Key",
        "plan/publication.py",
        "return known.state == State.REFUSED or known.intent_hash",
        "return known.state != State.DONE or known.intent_hash",
        f"{PUBLICATIONS}::test_it_has_one_key_while_its_outcome_is_unknown",
    ),
    Mutant(
        "undecided-is-sent-again",
        "what nobody can find out is sent once more",
        "plan/publication.py",
        "return not known.is_unknown or was_asked or is_key_known(known, publication)",
        "return known is not None or was_asked or is_key_known(known, publication)",
        f"{PUBLICATIONS}::test_nobody_sends_again_what_nobody_can_tell",
    ),
    Mutant(
        "refused-key-again",
        "a key that was answered with a refusal is used again",
        "plan/publication.py",
        "return known.state == State.REFUSED or known.intent_hash",
        "return known.intent_hash",
        f"{PUBLICATIONS}::test_a_refused_key_is_not_used_again",
    ),
    Mutant(
        "refusal-ends-the-doubt",
        "a refusal gives up the key of the send before it, whose answer was lost",
        "plan/publication.py",
        "return known.is_unknown and not (was_asked and not is_key_known(known, publication))",
        "return known.is_unknown and was_asked and not is_key_known(known, publication)",
        f"{PUBLICATIONS}::test_a_refusal_says_nothing_of_the_send_before_it",
    ),
    Mutant(
        "refusal-of-a-repeat-counts",
        "a repeat that is refused is recorded as refused, and so is the send before it",
        "execution/courier.py",
        "        if not known.in_doubt:\n            return Answer(state, error=wrong)",
        "        if known is not None:\n            return Answer(state, error=wrong)",
        f"{PUBLICATIONS}::test_a_refusal_says_nothing_of_the_send_before_it",
    ),
    Mutant(
        "publishers-without-a-lock",
        "two publishers have one key at once",
        "sql/ledger_publication.py",
        'return Statement(f"{read.text} FOR UPDATE", read.binds)',
        "return Statement(read.text, read.binds)",
        f"{PUBLICATIONS}::test_one_publisher_at_a_time",
    ),
    Mutant(
        "send-before-its-record",
        "a send is on record only after it was made",
        "sql/ledger_publication.py",
        "\"state = 'sending', sends = sends + 1,",
        '"sends = sends + 1,',
        f"{PUBLICATIONS}::test_a_send_is_on_record_before_it_is_made",
    ),
)
