"""The back ends of the tiered memory API: in memory, SQLite, Redis and vectors."""
