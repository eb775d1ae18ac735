"""Daemons on one PostgreSQL database, killed and suspended at random, against an oracle."""
