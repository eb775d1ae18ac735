"""Store episodes, facts and the ledger."""
