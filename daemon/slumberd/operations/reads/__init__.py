"""Read what the stores keep: facts and their histories, the ledger, rules, and reports."""
