"""Copy the databases of a state directory; implements `StoreCopies`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from slumberd.errors import StoreError
from slumberd.storage.closed_stores import StoreName
from slumberd.storage.sqlite import backup


class SQLiteCopies:
    """Copies the SQLite files of a state directory; implements `StoreCopies`.

    Args:
        paths: The file of each store.
    """

    def __init__(self, paths: Mapping[StoreName, Path]) -> None:
        self._paths = paths

    def copy(self, store: StoreName, target: Path) -> None:
        """Copy one file as of one moment.

        Raises:
            StoreError: The file cannot be read, or there is no space for the copy.
        """
        backup.copy_database(self._paths[store], target)

    def copy_together(self, targets: Mapping[StoreName, Path]) -> None:
        """Copy several files as of one moment: no commit to any of them lies in between.

        Raises:
            StoreError: As `copy`.
        """
        backup.copy_together([(self._paths[store], target) for store, target in targets.items()])

    def check_not_in_use(self, store: StoreName) -> None:
        """Check that no program has a file open, and move its write-ahead log into it.

        Raises:
            StoreBusyError: A program has it open.
        """
        if self._paths[store].exists():
            backup.check_not_in_use(self._paths[store])

    def is_full(self, error: StoreError) -> bool:
        """Return whether an error means that a disk is full."""
        return backup.is_full(error)
