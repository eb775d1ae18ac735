"""Find texts: the indexes of scopes, search, contexts, word embeddings and salience scorers."""
