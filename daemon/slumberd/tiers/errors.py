"""The errors of the tiered memory API."""

from __future__ import annotations

from slumberd.errors import SlumberdError


class MemorySystemError(SlumberdError):
    """The base of the errors of the tiered memory API."""


class MemoryStoreError(MemorySystemError):
    """A store of memories failed.

    Attributes:
        store: Its name, as ``database``; None when unknown.
    """

    def __init__(self, message: str, store: str | None = None) -> None:
        super().__init__(message)
        self.store = store


class MemoryCapacityError(MemorySystemError):
    """A store is full.

    Attributes:
        capacity: The most entries; None when the limit is of another kind.
    """

    def __init__(self, message: str, capacity: int | None = None) -> None:
        super().__init__(message)
        self.capacity = capacity


class EmbeddingError(MemorySystemError):
    """A text could not be embedded."""


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
