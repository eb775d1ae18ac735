"""Serve several shards of a database: which ones, and how requests reach them."""
