"""Public names of the memory contract; `slumberd.integrations.contract` implements them."""

from slumberd.integrations.contract.records import (
    MemoryRecord,
    MemorySearchQuery,
    MemoryWriteRecord,
)
from slumberd.integrations.contract.store import EpisodeMemoryStore, MemoryStore

__all__ = [
    "EpisodeMemoryStore",
    "MemoryRecord",
    "MemorySearchQuery",
    "MemoryStore",
    "MemoryWriteRecord",
]
