"""Store facts: life cycle of the file, reads, search, watermarks."""
