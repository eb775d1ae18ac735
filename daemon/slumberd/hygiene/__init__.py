"""Pure stages of a rule: what they decide about episodes. Reads no clock, file or network."""
