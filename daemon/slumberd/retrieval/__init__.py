"""Compare texts: expressions, word embeddings and salience scorers. Reads no store."""
