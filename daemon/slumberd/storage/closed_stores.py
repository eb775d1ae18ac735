"""Protocols for stores that this process has not opened: read them, and copy them.

Another process may have them open, or none. Nothing here leaves a trace in them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal, NamedTuple, Protocol, TypeVar

from slumberd.model.errors import StoreError
from slumberd.model.store_status import StoreLocation, StoreSizes
from slumberd.storage.engine import Session, Work

T = TypeVar("T")

StoreName = Literal["memory", "facts"]
"""Names a store of a state directory: that of the episodes, or that of the facts."""

STORES: tuple[StoreName, ...] = ("memory", "facts")
"""All stores of a state directory."""


class StoreFiles(Protocol):
    """Looks at the files of one store that keeps its content in files of this host.

    Errors are those of `ClosedStore`.
    """

    def is_missing(self) -> bool:
        """Return whether nothing is in its place, not even a link that leads nowhere."""
        ...

    def paths(self) -> list[Path]:
        """Return the paths of all files of the store, of which some may not exist."""
        ...

    def location(self) -> StoreLocation:
        """Return where the store keeps its files."""
        ...

    def writes_ahead(self) -> bool:
        """Return whether readers and writers of the store do not wait for each other."""
        ...

    def older_schema(self) -> tuple[int, int] | None:
        """Return the number of the store's schema and the newest one; None when they are equal.

        Raises:
            SchemaError: The store has an unknown schema.
        """
        ...

    def damage(self, seconds: float | None) -> str | None:
        """Return the first problem that a pass over the whole store finds.

        Args:
            seconds: The time limit; None sets none.

        Returns:
            An empty text without a problem; None when the time was over.
        """
        ...

    def has_foreign_log(self) -> bool:
        """Return whether the write-ahead log seems to belong to another store."""
        ...


class ClosedStore(Protocol):
    """Opens one store read-only, for one read of one moment.

    Where a method says nothing else, it raises `StoreError` when the store does not exist or cannot
    be read, and `SchemaError` when it is damaged.
    """

    @property
    def where(self) -> str:
        """Where the store is, for people to read."""
        ...

    @property
    def on_disk(self) -> StoreFiles | None:
        """What looks at the files of the store; None when a database server keeps them."""
        ...

    def exists(self) -> bool:
        """Return whether the store exists."""
        ...

    def sizes(self) -> StoreSizes:
        """Return how many bytes the store takes; none when it does not exist."""
        ...

    def is_begun(self) -> bool:
        """Return whether the store has slumberd's tables, indexes and triggers."""
        ...

    def check_version(self) -> None:
        """Check that this slumberd can read the store.

        Raises:
            SchemaError: A newer slumberd wrote it.
        """
        ...

    def look(self, work: Work[T], seconds: float | None = None) -> T:
        """Run `work`, which only reads, on one snapshot; return its result.

        Args:
            work: May be called twice.
            seconds: The time limit; None means the usual one of the server, if any.

        Raises:
            StoppedError: The time was over.
        """
        ...

    def look_if_begun(self, work: Work[T], seconds: float | None = None) -> T | None:
        """Run `work` as `look` does; return None when the store has no tables of slumberd."""
        ...

    def open_snapshots(self, session: Session) -> Sequence[str]:
        """Return the transactions that may keep erased bytes, in words, the oldest first."""
        ...


class ClosedStores(NamedTuple):
    """The two stores of a state directory."""

    episodes: ClosedStore
    facts: ClosedStore


class StoreCopies(Protocol):
    """Copies the stores of a state directory into files, while other programs write them."""

    def copy(self, store: StoreName, target: Path) -> None:
        """Copy one store as of one moment.

        Args:
            store: The store; it may be in use.
            target: The new file; only this user may read it.

        Raises:
            StoreError: The store cannot be read, or there is no space for the copy.
        """
        ...

    def copy_together(self, targets: Mapping[StoreName, Path]) -> None:
        """Copy several stores as of one moment: no commit to any of them lies in between.

        Args:
            targets: Each store, and the new file for its copy.

        Raises:
            StoreError: As `copy`.
        """
        ...

    def check_not_in_use(self, store: StoreName) -> None:
        """Check that no program has a store open, before it is replaced.

        Raises:
            StoreBusyError: A program has it open.
        """
        ...

    def is_full(self, error: StoreError) -> bool:
        """Return whether an error means that the disk of the copies is full."""
        ...
