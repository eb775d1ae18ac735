"""Publish promotions to a provenance sink, at least once."""
