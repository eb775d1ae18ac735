"""Answer an operation from several shards: ask each, and join their answers."""
