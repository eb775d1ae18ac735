"""The synchronous memory contract: its values, its protocol, and a store that keeps episodes."""

from slumberd.contract.protocols import MemoryStore
from slumberd.contract.store import EpisodeMemoryStore
from slumberd.contract.values import MemoryRecord, MemorySearchQuery, MemoryWriteRecord

__all__ = [
    "EpisodeMemoryStore",
    "MemoryRecord",
    "MemorySearchQuery",
    "MemoryStore",
    "MemoryWriteRecord",
]
