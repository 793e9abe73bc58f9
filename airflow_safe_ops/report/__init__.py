"""What people read: plans, the ledger's story."""
