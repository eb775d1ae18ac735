"""The open stores that operations work on."""

from __future__ import annotations

from dataclasses import dataclass

from slumberd.operations.protocols import Episodes, Facts


@dataclass(frozen=True, slots=True)
class Stores:
    """The stores of a state directory.

    Attributes:
        memory: The episodes.
        facts: The facts.
        scope_key: The key that hashes users and agents in log lines; empty without hashing.
    """

    memory: Episodes
    facts: Facts
    scope_key: bytes = b""
