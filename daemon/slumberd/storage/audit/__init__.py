"""Examine a ledger: verify, replay, export, explain. Changes no fact."""
