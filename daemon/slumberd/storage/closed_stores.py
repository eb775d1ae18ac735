"""Protocols for stores that this process has not opened: look at them, and copy them.

Another process may have them open, or none. Nothing here leaves a trace in them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Literal, NamedTuple, Protocol

from slumberd.errors import StoreError
from slumberd.model.episode import EpisodeVersion
from slumberd.model.erasures import ErasedList, ErasedRows, RecordedErasures
from slumberd.model.extraction import ModelUsage, Turn
from slumberd.model.record import Shrinkage
from slumberd.model.rule import ConsolidationRule
from slumberd.model.scope import ErasedScopes
from slumberd.model.store_status import (
    EpisodeStoreStatus,
    FactStoreStatus,
    LogRange,
    StoreLocation,
    StoreSizes,
)

StoreName = Literal["memory", "facts"]
"""Names a store of a state directory: that of the episodes, or that of the facts."""

STORES: tuple[StoreName, ...] = ("memory", "facts")
"""All stores of a state directory."""


class StoreFiles(Protocol):
    """Looks at the files of one store that keeps its content in files of this host.

    Errors are those of `StoreInspection`.
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


class StoreInspection(Protocol):
    """Looks at one store. Each method reads one moment of it.

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

    def erased_scopes(self) -> ErasedScopes | None:
        """Return the erased scopes that the store records; None when it never had an erasure."""
        ...

    def erased_list(self) -> ErasedList:
        """Return the list of erased scopes of the store; an empty one when it has none."""
        ...

    def count_erased_content(
        self, pasts: Sequence[ErasedScopes], seconds: float | None
    ) -> Counter[str] | None:
        """Count the episodes or facts of erased scopes, by user.

        Args:
            pasts: The erased scopes of all stores of the state directory.
            seconds: The time limit; None sets none.

        Returns:
            The counts; None when the time was over.
        """
        ...

    def users(self, limit: int) -> list[str]:
        """Return the first users who have something in the store, in order."""
        ...


class EpisodeInspection(StoreInspection, Protocol):
    """Looks at a store of episodes."""

    def has_log(self) -> bool:
        """Return whether the store has slumberd's episode log, indexes and triggers."""
        ...

    def last_log_row(self) -> int | None:
        """Return the number of the last row of the episode log; None when there is none."""
        ...

    def status(self, wanted: Collection[LogRange]) -> EpisodeStoreStatus | None:
        """Return how many episodes there are, and what lies in some ranges of the log.

        The result is None when slumberd never opened the store.
        """
        ...

    def future_episodes(
        self, latest: datetime, seconds: float | None
    ) -> list[EpisodeVersion] | None:
        """Return episodes with an instant later than a given one, the latest first.

        Args:
            latest: The given instant, in UTC.
            seconds: The time limit; None sets none.

        Returns:
            The episodes; None when the time was over.
        """
        ...

    def latest_versions(self, limit: int) -> list[EpisodeVersion]:
        """Return what the last rows of the episode log hold, oldest first.

        Args:
            limit: At most this many rows of the log.
        """
        ...

    def model_usage(self, day: str) -> ModelUsage:
        """Return what the calls of language models cost on a day, as ``2026-03-09``."""
        ...

    def first_unanswered(self, rule: ConsolidationRule, *, after: int, limit: int) -> Turn | None:
        """Return the first turn in a window of the log that waits for an answer.

        Args:
            rule: The rule that asks a language model.
            after: The number of the log row before the window.
            limit: About this many log rows.

        Returns:
            The turn; None when there is none, or when an older slumberd wrote the store.

        Raises:
            FilterError: The rule's filter must not run, or ran over its time limit.
        """
        ...


class FactInspection(StoreInspection, Protocol):
    """Looks at a store of facts."""

    def has_ledger(self) -> bool:
        """Return whether slumberd has written to the store."""
        ...

    def check_version(self) -> None:
        """Check that this slumberd can read the ledger.

        Raises:
            SchemaError: A newer slumberd wrote it.
        """
        ...

    def status(self) -> FactStoreStatus | None:
        """Return the state of the store; None when slumberd has never written to it."""
        ...

    def unreached_retractions(self, seconds: float | None) -> list[str] | None:
        """Return episodes whose retraction has covered nothing so far, oldest first.

        Args:
            seconds: The time limit; None sets none.

        Returns:
            At most 100 ids; None when the time was over.
        """
        ...

    def disagreeing_facts(self, seconds: float | None) -> list[tuple[str, str]] | None:
        """Return pairs of current facts that have different objects for a single-valued key.

        The first fact of a pair is declared, the second comes from a rule or a person.

        Args:
            seconds: The time limit; None sets none.

        Returns:
            At most 100 pairs, by key; None when the time was over.
        """
        ...

    def shrinkage(self, since: int) -> Shrinkage | None:
        """Return how the number of facts changed since an instant, microseconds since 1970 UTC.

        The result is None when slumberd has never written to the store.
        """
        ...

    def damaged_values(self, seconds: float | None) -> list[str] | None:
        """Return the values in slumberd's tables that slumberd never writes, in words.

        Args:
            seconds: The time limit; None sets none.

        Returns:
            At most 100 values; None when the time was over.
        """
        ...

    def count_erasures(self, after: int) -> int:
        """Count the erasures after a row of the ledger."""
        ...

    def recorded_erasures(self) -> tuple[RecordedErasures, ErasedRows] | None:
        """Return the erased scopes that the ledger records, and its blank rows.

        The result is None when slumberd has never written to the store.
        """
        ...

    def has_facts_of(self, user: str) -> bool:
        """Return whether a user has facts."""
        ...


class StoreInspections(NamedTuple):
    """Looks at the two stores of a state directory."""

    episodes: EpisodeInspection
    facts: FactInspection

    def of(self, store: StoreName) -> StoreInspection:
        """Return what looks at one of them."""
        return self.episodes if store == "memory" else self.facts


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
