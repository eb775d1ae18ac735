"""Publish promotions to a provenance sink, at least once.

`model.provenance` defines the values that a sink stores; `storage` reads the ledger.
"""
