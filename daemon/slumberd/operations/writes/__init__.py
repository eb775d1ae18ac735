"""Change facts and episodes: firings, corrections, undos and erasures, one at a time."""
