"""Running a plan: one connection, one worker thread, one transaction for data and ledger."""
