"""Hold the right to write a state directory: its lock, and the epoch of its facts."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Self

from slumberd.service.file_exchange import finish
from slumberd.service.state_lock import StateLock
from slumberd.storage.protocols import Epoch


class DirectoryTenure:
    """Locks a state directory in the file system; implements `Tenure`.

    The lock refuses a second daemon. The epoch in the facts refuses a writer that the lock did not
    see, such as a daemon of another state directory that shares the database.

    Args:
        directory: The state directory.
        files: By name, the files that a restore replaces.

    Attributes:
        name: This process, for people.
    """

    def __init__(self, directory: Path, files: Mapping[str, Path]) -> None:
        self.name = f"pid {os.getpid()}"
        self._lock = StateLock(directory)
        self._files = files
        self._held = ExitStack()

    def describe(
        self, details: Callable[[], dict[str, Any]], notice_rules: Callable[[int], None]
    ) -> None:
        """Do nothing: the lock shows its process only, and files have no published rules."""
        del details, notice_rules

    async def wait(
        self,
        stop: asyncio.Event,
        begin_waiting: Callable[[str], None],
        still_waiting: Callable[[str], None],
    ) -> bool:
        """Return True: a second daemon of a directory does not wait; entering refuses it."""
        del stop, begin_waiting, still_waiting
        return True

    async def __aenter__(self) -> Self:
        """Lock the directory, and finish a restore that was begun in it.

        Raises:
            StateDirectoryLockedError: Another slumberd holds the lock.
            PermissionDeniedError: The user may not create the directory, or write to it.
            StoreError: The directory is on a network file system, or the restore cannot be
                finished.
        """
        with ExitStack() as entered:
            entered.enter_context(self._lock)
            finish(self._lock.directory, self._files)
            self._held = entered.pop_all()
        return self

    async def __aexit__(self, *_: object) -> None:
        """Unlock the directory."""
        self._held.close()

    async def hold(self, stop: asyncio.Event) -> None:
        """Return at once: the lock stays until it is given back."""
        del stop

    async def fence(self, epoch: Epoch) -> None:
        """Begin a new epoch, in which earlier writers of the facts can commit no more."""
        await epoch.take_over()
