"""Copy and compare all rows of a shard."""
