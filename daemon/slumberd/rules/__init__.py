"""Read settings and rule files strictly, and check their filters. Runs no rule."""
