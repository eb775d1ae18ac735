"""Public names of the memory contract; `slumberd.integrations.contract` implements them."""

from slumberd.integrations.contract import (
    EpisodeMemoryStore,
    MemoryRecord,
    MemorySearchQuery,
    MemoryStore,
    MemoryWriteRecord,
)

__all__ = [
    "EpisodeMemoryStore",
    "MemoryRecord",
    "MemorySearchQuery",
    "MemoryStore",
    "MemoryWriteRecord",
]
