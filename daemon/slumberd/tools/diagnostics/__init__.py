"""Find what is wrong with a state directory or its host, each with a remedy."""
