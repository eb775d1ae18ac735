"""Watch a SQLite file for commits of this process and of others, at almost no cost."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path
from threading import Lock, Thread
from typing import Self

from slumberd.model.errors import StoreError
from slumberd.storage.sqlite.connection import connect
from slumberd.storage.sqlite.session import Pragmas, data_version

POLLS_BEFORE_SLOWING = 200
"""After so many polls without a commit, the watch waits longer between two polls."""

_SLOWER_BY = 1.6
"""How many times longer. By default a commit then waits for 40 ms on average, and 80 at most."""


class Watch:
    """Calls back once at the start, and soon after any connection commits; implements `Watch`.

    The watch polls SQLite's data version: a notification of the file system would come before the
    commit is visible. It polls in its own thread: a poll through the event loop takes 2.4 times the
    processor time. When the file cannot be read, the watch tries again at its next poll, and
    then counts it as changed. A store of this process calls `notify_watches` after a commit.

    Args:
        path: The file; must exist.
        on_commit: The callback; called from the watching thread, or from the one that committed.
        poll_seconds: How long a commit of another process may go unnoticed.
        polls_before_slowing: After so many polls without a commit, the watch polls less often.

    Attributes:
        calls: How many times the watch has called back.
    """

    def __init__(
        self,
        path: Path,
        on_commit: Callable[[], object],
        *,
        poll_seconds: float,
        polls_before_slowing: int = POLLS_BEFORE_SLOWING,
    ) -> None:
        self._path = path
        self._on_commit = on_commit
        self.calls = 0
        self._poll_seconds = poll_seconds
        self._polls = 0
        self._polls_before_slowing = polls_before_slowing
        # Held while the watch runs. Waiting for a lock costs half as much as for an event.
        self._watching = Lock()
        self._thread = Thread(target=self._run, name="slumberd-watch", daemon=True)

    async def __aenter__(self) -> Self:
        """Start the watch."""
        self._watching.acquire()
        _WATCHES.append(self)
        self._thread.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        """End the watch; it calls back no more."""
        _WATCHES.remove(self)
        self._watching.release()
        self._thread.join()

    def _run(self) -> None:
        while self._watching.locked():
            with suppress(StoreError, sqlite3.Error):
                self._watch()
            if self._wait():
                self._call_back()

    def _wait(self) -> bool:
        """Wait between two polls; return whether there is another."""
        self._polls += 1
        longer = _SLOWER_BY if self._polls > self._polls_before_slowing else 1
        if self._watching.acquire(timeout=self._poll_seconds * longer):
            self._watching.release()
            return False
        return True

    def notify(self, path: Path) -> None:
        """Call back when the file of a commit is this watch's file."""
        if path.absolute() == self._path.absolute():
            with suppress(RuntimeError):  # the callback's event loop has just ended
                self._call_back()

    def _call_back(self) -> None:
        self.calls += 1
        self._polls = 0
        self._on_commit()

    def _watch(self) -> None:
        with closing(connect(self._path, Pragmas(), access="read")) as connection:
            seen = data_version(connection)
            # A commit before this first poll was not noticed.
            self._call_back()
            while self._wait():
                now = data_version(connection)
                if now != seen:
                    seen = now
                    self._call_back()


_WATCHES: list[Watch] = []
"""All watches of this process. Two stores on one file share nothing else."""


def notify_watches(path: Path) -> None:
    """Notify the watches of this process about a commit to a file."""
    for watch in tuple(_WATCHES):
        watch.notify(path)
