"""Store episodes and facts in a PostgreSQL database, which many hosts share."""
