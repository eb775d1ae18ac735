"""The protocol of a memory store."""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType
from typing import Protocol, Self, runtime_checkable

from slumberd.contract.values import MemoryRecord, MemorySearchQuery, MemoryWriteRecord


@runtime_checkable
class MemoryStore(Protocol):
    """A synchronous store of records in namespaces."""

    def write(
        self, records: Sequence[MemoryWriteRecord], *, namespace: str = "default"
    ) -> list[MemoryRecord]:
        """Write all of the records or none; return them as they are stored, in the same order."""
        ...

    def search(self, query: MemorySearchQuery) -> list[MemoryRecord]:
        """Return the records that answer a question, best first."""
        ...

    def close(self) -> None:
        """Release what the store holds; a store that holds nothing does nothing."""
        return

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        tb: TracebackType | None,
    ) -> bool | None:
        self.close()
        return None
