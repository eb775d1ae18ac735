"""Pure stages of a rule: which episodes are marked, and how. Reads no clock, file or network."""
