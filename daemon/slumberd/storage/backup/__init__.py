"""Back up a state directory and restore it."""
