"""Copy the stores of a shard into SQLite files; implements `StoreCopies`."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from slumberd.errors import OutputExistsError, StoreError, UnsupportedByStoreError
from slumberd.storage.closed_stores import StoreName
from slumberd.storage.postgres.address import where
from slumberd.storage.postgres.copies.row_copies import OnProgress, copy_rows
from slumberd.storage.postgres.copies.shard_rows import ShardRows, reading_shard
from slumberd.storage.postgres.shard_map import Shard
from slumberd.storage.sqlite import backup
from slumberd.storage.sqlite.file_rows import writing_files


def write_files(
    source: ShardRows, targets: Mapping[StoreName, Path], on_progress: OnProgress
) -> dict[str, int]:
    """Write stores into new files; return how many rows, by table.

    Args:
        source: The rows of these stores.
        targets: The new file of each store. When the copy fails, they are deleted.
        on_progress: Called after each page.

    Raises:
        OutputExistsError: A file exists already.
        StoreError: A file cannot be written.
    """
    for path in targets.values():
        if path.exists():
            raise OutputExistsError(str(path))
    try:
        with writing_files(targets) as files:
            return copy_rows(source, files, on_progress)
    except BaseException:
        for path in targets.values():
            _delete(path)
        raise


def _delete(path: Path) -> None:
    for end in ("", "-wal", "-shm", "-journal"):
        with suppress(FileNotFoundError):
            path.with_name(path.name + end).unlink()


class PostgresCopies:
    """Copies the stores of a shard into SQLite files; implements `StoreCopies`.

    Args:
        shard: The shard.
    """

    def __init__(self, shard: Shard) -> None:
        self._shard = shard

    def copy(self, store: StoreName, target: Path) -> None:
        """Copy one store as of one moment.

        Raises:
            StoreError: As `copy_together`.
        """
        self.copy_together({store: target})

    def copy_together(self, targets: Mapping[StoreName, Path]) -> None:
        """Copy several stores as of one moment.

        Raises:
            StoreError: The database cannot be read, or there is no space for the copy.
        """
        with reading_shard(self._shard, [*targets]) as source:
            write_files(source, targets, lambda *_: None)

    def check_not_in_use(self, store: StoreName) -> None:
        """Refuse: a database is restored by its own means.

        Raises:
            UnsupportedByStoreError: Always.
        """
        del store
        problem = "slumberd does not replace the content of a database"
        remedy = "restore it by the backups of PostgreSQL"
        raise UnsupportedByStoreError(where(self._shard.address), problem, remedy)

    def is_full(self, error: StoreError) -> bool:
        """Return whether an error means that the disk of the copies is full."""
        return backup.is_full(error)
