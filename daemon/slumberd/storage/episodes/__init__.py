"""Store episodes: put, recent, windows of the episode log, erasure."""
