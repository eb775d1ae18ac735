"""Find triples in text, by patterns or in plain sentences. Reads no clock, file or network."""
