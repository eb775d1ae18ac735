"""Values and decisions. Nothing here reads a clock, a file, a database or the environment."""
