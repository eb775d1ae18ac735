"""Lint Cypher, query graph stores, and promote triples into facts.

Rules that promote a graph are parsed in `rules` and scheduled in `workers.scheduling`, not here.
"""
