"""Graphs: stores of triples, and what of Cypher may be asked of them."""
