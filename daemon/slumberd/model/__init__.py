"""Values and errors: episodes, facts, rules, deltas, firings, patterns. Does no I/O."""
