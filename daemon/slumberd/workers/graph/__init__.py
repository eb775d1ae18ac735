"""Lint Cypher, query graph stores, and promote triples into facts.

Rules that promote a graph are parsed in `config` and scheduled in `scheduling`, not here.
"""
