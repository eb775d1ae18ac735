"""Compare texts: word embeddings and salience scorers. Reads no store."""
