"""The stores: episodes in memory.db, facts and their ledger in facts.db."""
