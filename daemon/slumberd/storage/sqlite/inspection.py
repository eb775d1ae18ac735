"""Look at databases that this process has not opened; implements ``closed_stores``' protocols."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Self, TypeVar

from slumberd.model.episode import PERSON, EpisodeVersion, NaiveTimestamps
from slumberd.model.erasures import ErasedList, ErasedRows, RecordedErasures
from slumberd.model.extraction import ModelUsage, Turn
from slumberd.model.record import Shrinkage
from slumberd.model.rule import ConsolidationRule
from slumberd.model.scope import ErasedScopes, ScopeMismatch
from slumberd.model.store_status import (
    EpisodeStoreStatus,
    FactStoreStatus,
    LogRange,
    StoreLocation,
    StoreSizes,
)
from slumberd.storage.sqlite import (
    episode_installation,
    ledger_schema,
    offline_answers,
    offline_status,
    recovery,
)
from slumberd.storage.sqlite.connection import Pragmas, translate_errors
from slumberd.storage.sqlite.file_schema import FileSchema, find_number
from slumberd.storage.sqlite.health import fs_type
from slumberd.storage.sqlite.recovery import look

T = TypeVar("T")


class SQLiteInspection:
    """Looks at one SQLite file; implements `StoreFiles`, and what both `StoreInspection`s share.

    Args:
        path: The file.
        schema: The schemas of such a file.
    """

    def __init__(self, path: Path, schema: FileSchema) -> None:
        self._path = path
        self._schema = schema
        self._log = path.with_name(path.name + "-wal")

    @property
    def where(self) -> str:
        """The path of the file."""
        return str(self._path)

    @property
    def on_disk(self) -> Self:
        """What looks at the file."""
        return self

    def exists(self) -> bool:
        """Return whether the file exists."""
        return self._path.exists()

    def is_missing(self) -> bool:
        """Return whether nothing is in its place, not even a link that leads nowhere."""
        return not self._path.exists() and not self._path.is_symlink()

    def sizes(self) -> StoreSizes:
        """Return the bytes of the file and of its write-ahead log; 0 for one that is missing."""
        with translate_errors(self._path, Pragmas()):
            found = [
                file.stat().st_size if file.exists() else 0 for file in (self._path, self._log)
            ]
        return StoreSizes(*found)

    def paths(self) -> list[Path]:
        """Return the paths of the file, its write-ahead log, and the index of the log."""
        return [self._path, self._log, self._path.with_name(self._path.name + "-shm")]

    def location(self) -> StoreLocation:
        """Return the file system of the file, and its write-ahead log."""
        return StoreLocation(fs_type(self._path), str(self._log))

    def writes_ahead(self) -> bool:
        """Return whether the file is written with a write-ahead log."""
        return recovery.writes_ahead(self._path)

    def older_schema(self) -> tuple[int, int] | None:
        """Return the number of the file's schema and the newest one; None when they are equal.

        Raises:
            SchemaError: The file has an unknown schema, or tables that do not fit its number.
        """
        number = self._look(partial(find_number, schema=self._schema))
        return None if number in (0, self._schema.newest) else (number, self._schema.newest)

    def damage(self, seconds: float | None) -> str | None:
        """Return the first problem that SQLite's ``quick_check`` finds.

        Args:
            seconds: The time limit; None sets none.

        Returns:
            An empty text without a problem; None when the time was over.
        """
        return self._look(partial(recovery.damage_in, seconds=seconds))

    def has_foreign_log(self) -> bool:
        """Return whether the write-ahead log seems to belong to another file."""
        return self._look(partial(recovery.has_foreign_log, path=self._path))

    def erased_scopes(self) -> ErasedScopes | None:
        """Return the erased scopes that the file records; None when it never had an erasure."""
        return self._look(offline_status.read_erased_scopes)

    def erased_list(self) -> ErasedList:
        """Return the list of erased scopes of the file; an empty one when it has none."""
        return self._look(offline_status.read_erased_list)

    def count_erased_content(
        self, pasts: Sequence[ErasedScopes], seconds: float | None
    ) -> Counter[str] | None:
        """Count the episodes or facts of erased scopes, by user.

        Args:
            pasts: The erased scopes of all databases of the state directory.
            seconds: The time limit; None sets none.

        Returns:
            The counts; None when the time was over.
        """
        count = partial(offline_status.count_erased_content, pasts=pasts, seconds=seconds)
        return self._look(count)

    def _look(self, work: Callable[[sqlite3.Connection], T]) -> T:
        return look(self._path, work)


class SQLiteEpisodeInspection(SQLiteInspection):
    """Looks at a database of episodes; implements `EpisodeInspection`.

    Args:
        path: The file.
        naive: How to read a timestamp without an offset.
        mismatch: Which of scope key and content names the owner, when they differ.
        person: The speakers whose words are those of the user.
    """

    def __init__(
        self,
        path: Path,
        naive: NaiveTimestamps,
        mismatch: ScopeMismatch = "quarantine",
        person: Collection[str] = PERSON,
    ) -> None:
        super().__init__(path, episode_installation.SCHEMA)
        self._person = person
        self._naive = naive
        self._mismatch = mismatch

    def users(self, limit: int) -> list[str]:
        """Return the first users with episodes, in order of their scope keys."""
        return self._look(partial(offline_status.users_with_episodes, limit=limit))

    def has_log(self) -> bool:
        """Return whether the file has slumberd's episode log, indexes and triggers."""
        return self._look(offline_status.logs_episodes)

    def last_log_row(self) -> int | None:
        """Return the number of the last row of the episode log; None when there is none."""
        return self._look(offline_status.last_log_row)

    def status(self, wanted: Collection[LogRange]) -> EpisodeStoreStatus | None:
        """Return how many episodes there are, and what lies in some ranges of the log."""
        return self._look(partial(offline_status.read_backlogs, wanted=wanted))

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
        find = partial(offline_status.find_future_episodes, naive=self._naive, seconds=seconds)
        return self._look(partial(find, latest=latest))

    def latest_versions(self, limit: int) -> list[EpisodeVersion]:
        """Return what the last rows of the episode log hold, oldest first."""
        find = partial(offline_status.find_latest_versions, naive=self._naive, limit=limit)
        return self._look(find)

    def model_usage(self, day: str) -> ModelUsage:
        """Return what the calls of language models cost on a day, as ``2026-03-09``."""
        return self._look(partial(offline_answers.read_model_usage, day=day))

    def first_unanswered(self, rule: ConsolidationRule, *, after: int, limit: int) -> Turn | None:
        """Return the first turn in a window of the log that waits for an answer.

        Args:
            rule: The rule that asks a language model.
            after: The number of the log row before the window.
            limit: About this many log rows.

        Raises:
            FilterError: The rule's filter must not run, or ran over its time limit.
        """
        find = partial(
            offline_answers.find_unanswered,
            mismatch=self._mismatch,
            naive=self._naive,
            person=self._person,
        )
        return self._look(partial(find, rule=rule, after=after, limit=limit))


class SQLiteFactInspection(SQLiteInspection):
    """Looks at a database of facts; implements `FactInspection`.

    Args:
        path: The file.
    """

    def __init__(self, path: Path) -> None:
        super().__init__(path, ledger_schema.SCHEMA)

    def users(self, limit: int) -> list[str]:
        """Return the first users with facts, in order."""
        return self._look(partial(offline_status.users_with_facts, limit=limit))

    def has_ledger(self) -> bool:
        """Return whether slumberd has written to the file."""
        return self._look(ledger_schema.has_ledger)

    def check_version(self) -> None:
        """Check that this slumberd can read the ledger.

        Raises:
            SchemaError: A newer slumberd wrote it.
        """
        self._look(ledger_schema.check_version)

    def status(self) -> FactStoreStatus | None:
        """Return the state of the file; None when slumberd has never written to it."""
        return self._look(offline_status.read_fact_store)

    def unreached_retractions(self, seconds: float | None) -> list[str] | None:
        """Return episodes whose retraction has covered nothing so far, oldest first.

        Args:
            seconds: The time limit; None sets none.

        Returns:
            At most 100 ids; None when the time was over.
        """
        return self._look(partial(offline_status.find_unreached_retractions, seconds=seconds))

    def disagreeing_facts(self, seconds: float | None) -> list[tuple[str, str]] | None:
        """Return pairs of current facts that have different objects for a single-valued key.

        Args:
            seconds: The time limit; None sets none.

        Returns:
            At most 100 pairs, by key; None when the time was over.
        """
        return self._look(partial(offline_status.find_disagreeing_facts, seconds=seconds))

    def shrinkage(self, since: int) -> Shrinkage | None:
        """Return how the number of facts changed since an instant, microseconds since 1970 UTC.

        The result is None when slumberd has never written to the file.
        """
        return self._look(partial(offline_status.read_shrinkage, since=since))

    def damaged_values(self, seconds: float | None) -> list[str] | None:
        """Return the values in slumberd's tables that slumberd never writes, in words.

        Args:
            seconds: The time limit; None sets none.

        Returns:
            At most 100 values; None when the time was over.
        """
        return self._look(partial(offline_status.find_damaged_values, seconds=seconds))

    def count_erasures(self, after: int) -> int:
        """Count the erasures after a row of the ledger."""
        return self._look(partial(offline_status.count_erasures, after=after))

    def recorded_erasures(self) -> tuple[RecordedErasures, ErasedRows] | None:
        """Return the erased scopes that the ledger records, and its blank rows.

        The result is None when slumberd has never written to the file.
        """
        return self._look(offline_status.read_recorded_erasures)

    def has_facts_of(self, user: str) -> bool:
        """Return whether a user has facts."""
        return self._look(partial(offline_status.has_facts_of, user=user))
