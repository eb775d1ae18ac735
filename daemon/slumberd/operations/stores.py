"""The open stores that operations work on."""

from __future__ import annotations

from dataclasses import dataclass

from slumberd.storage.episodes.store import EngineMemoryStore
from slumberd.storage.facts.store import EngineFactStore


@dataclass(frozen=True, slots=True)
class Stores:
    """The stores of a state directory.

    Attributes:
        memory: The episodes.
        scope_key: The key that hashes users and agents in log lines; empty without hashing.
    """

    memory: EngineMemoryStore
    facts: EngineFactStore
    scope_key: bytes = b""


@dataclass(frozen=True, slots=True)
class StoresThere:
    """The stores of a state directory that exist, for reading.

    Attributes:
        memory: The episodes; None when none was ever put.
        facts: The facts; None when slumberd has not made them yet.
    """

    memory: EngineMemoryStore | None
    facts: EngineFactStore | None
