"""Read settings and rule files strictly. Runs no rule."""
