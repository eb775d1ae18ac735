"""Store the ledger: rows, batches, manual edits, undo, erasure."""
