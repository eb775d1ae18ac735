"""Install the episode log beside a table of episodes, and notice when it is no longer there."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from slumberd.errors import SchemaError
from slumberd.storage.episodes import log
from slumberd.storage.sqlite.connection import transaction


class Installation:
    """Knows whether one file has the episode log, its indexes and its triggers.

    The whole schema is compared only after the file's schema version has changed.

    Args:
        path: The file.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._complete_at: int | None = None

    def forget(self) -> None:
        """Compare the whole schema at the next call: another file may lie there then."""
        self._complete_at = None

    def is_complete(self, connection: sqlite3.Connection) -> bool:
        """Return whether nothing is missing."""
        version = log.schema_version(connection)
        if version != self._complete_at and log.installed(connection):
            self._complete_at = version
        return version == self._complete_at

    def ensure(self, connection: sqlite3.Connection) -> None:
        """Install what is missing, in a transaction of its own.

        Raises:
            SchemaError: The table of episodes has another form.
        """
        if not self.is_complete(connection):
            with transaction(connection):
                self.complete(connection)

    def complete(self, connection: sqlite3.Connection) -> None:
        """Install what is missing, within the caller's transaction.

        Raises:
            SchemaError: The table of episodes has another form.
        """
        if self.is_complete(connection):
            return
        try:
            log.install(connection)
        except sqlite3.OperationalError as error:
            if getattr(error, "sqlite_errorcode", None) != sqlite3.SQLITE_ERROR:
                raise
            raise SchemaError(
                self._path, f"'episodes' is not the table we know: {error}"
            ) from error


def warnings_of(connection: sqlite3.Connection) -> list[str]:
    """Return what the health of a store has to say about its episode log."""
    if log.installed(connection):
        return []
    return ["the episode log is not installed: the next call of the store installs it"]
