"""The errors of the tiered memory API."""

from __future__ import annotations

from slumberd.errors import SlumberdError


class MemorySystemError(SlumberdError):
    """The base of the errors of the tiered memory API."""


class ConsolidationError(MemorySystemError):
    """Entries could not be summarised."""


class FactExtractionError(MemorySystemError):
    """Triples could not be extracted from an entry.

    Attributes:
        entry_id: The entry.
        problem: Why.
    """

    def __init__(self, entry_id: str, problem: str) -> None:
        super().__init__(f"triples of entry {entry_id!r} could not be extracted: {problem}")
        self.entry_id = entry_id
        self.problem = problem
