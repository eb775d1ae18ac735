"""The fact store: what hosts call, and its parts on one file. `ledger` resolves and writes rows."""
