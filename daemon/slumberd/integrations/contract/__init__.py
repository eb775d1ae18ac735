"""The synchronous memory contract: its values, its protocol, and a store that keeps episodes."""

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
