"""Stores of conversations: a buffer, sessions, entities and summaries."""
