"""Copy the stores of a shard into SQLite files; implements `StoreCopies`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from slumberd.errors import StoreError, UnsupportedByStoreError
from slumberd.storage.closed_stores import StoreName
from slumberd.storage.postgres import installation
from slumberd.storage.postgres.address import where
from slumberd.storage.postgres.connection import connect, translate_errors
from slumberd.storage.postgres.row_copies import (
    number_waiting,
    write_facts_file,
    write_memory_file,
)
from slumberd.storage.sqlite import backup

_WRITE = {"memory": write_memory_file, "facts": write_facts_file}


class PostgresCopies:
    """Copies the stores of a shard into SQLite files; implements `StoreCopies`.

    Args:
        address: The address of the database.
        shard: The shard.
    """

    def __init__(self, address: str, shard: int) -> None:
        self._address = address
        self._shard = shard

    def copy(self, store: StoreName, target: Path) -> None:
        """Copy one store as of one moment."""
        self.copy_together({store: target})

    def copy_together(self, targets: Mapping[StoreName, Path]) -> None:
        """Copy several stores as of one moment.

        Raises:
            StoreError: The database cannot be read, or there is no space for the copy.
        """
        place = where(self._address)
        with translate_errors(place):
            with connect(self._address) as connection:
                installation.check(connection, place=place)
                number_waiting(connection, self._shard)
            with connect(self._address, read_only=True) as connection:
                for store, target in targets.items():
                    _WRITE[store](connection, self._shard, target, lambda *_: None)

    def check_not_in_use(self, store: StoreName) -> None:
        """Refuse: a database is restored by its own means.

        Raises:
            UnsupportedByStoreError: Always.
        """
        del store
        problem = "slumberd does not replace the content of a database"
        remedy = "restore it by the backups of PostgreSQL"
        raise UnsupportedByStoreError(where(self._address), problem, remedy)

    def is_full(self, error: StoreError) -> bool:
        """Return whether an error means that the disk of the copies is full."""
        return backup.is_full(error)
