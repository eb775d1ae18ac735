"""Watch a SQLite file for commits, its own processes' and others', for next to no time."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path
from threading import Lock, Thread
from typing import Self

from slumberd.errors import StoreError
from slumberd.storage.sqlite.connection import Pragmas, connect, data_version

_QUIET_LOOKS = 200
"""After so many looks that found nothing, each rests for longer."""

_LONGER = 1.6
"""By how much: what comes then waits for 40 ms in the middle and for 80 at most, by default."""


class Watch:
    """Calls back, from any thread, at first and soon after any connection has committed.

    The number that SQLite keeps for this is asked for each time anew: a hint of the file
    system would come before the commit can be seen. A file that cannot be read for a while is
    tried again at the next turn, and then counts as changed. A store of this process that has
    committed says so by `tell_here`, and nobody has to look.

    Args:
        path: The file; must exist.
        tell: Called from the watching thread, or the one that has committed.
        poll_seconds: How long a commit of others may go unnoticed, while some come.

    Attributes:
        told: How many times it has called back.
    """

    def __init__(self, path: Path, tell: Callable[[], object], *, poll_seconds: float) -> None:
        self._path = path
        self._tell_them = tell
        self.told = 0
        self._poll_seconds = poll_seconds
        self._looks = 0
        # Held as long as it watches: to wait for a lock costs half of what it does for an event.
        self._watching = Lock()
        self._thread = Thread(target=self._run, name="slumberd-watch", daemon=True)

    def __enter__(self) -> Self:
        """Begin to watch."""
        self._watching.acquire()
        _HERE.append(self)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Watch no more; nobody is told anything from here on."""
        _HERE.remove(self)
        self._watching.release()
        self._thread.join()

    def _run(self) -> None:
        while self._watching.locked():
            with suppress(StoreError, sqlite3.Error):
                self._watch()
            if self._rested():
                self._tell()

    def _rested(self) -> bool:
        """Rest between two looks; say whether there is to be another."""
        self._looks += 1
        longer = _LONGER if self._looks > _QUIET_LOOKS else 1
        if self._watching.acquire(timeout=self._poll_seconds * longer):
            self._watching.release()
            return False
        return True

    def hear(self, path: Path) -> None:
        """Call back when it is this file that was committed to."""
        if path.absolute() == self._path.absolute():
            with suppress(RuntimeError):  # a loop that has just ended: nobody watches any more
                self._tell()

    def _tell(self) -> None:
        self.told += 1
        self._looks = 0
        self._tell_them()

    def _watch(self) -> None:
        with closing(connect(self._path, Pragmas(), access="read")) as connection:
            seen = data_version(connection)
            # Whatever was committed before this first look may have been seen by nobody.
            self._tell()
            while self._rested():
                now = data_version(connection)
                if now != seen:
                    seen = now
                    self._tell()


_HERE: list[Watch] = []
"""The watches of this process: a host's store and the daemon's, on one file, share nothing else."""


def tell_here(path: Path) -> None:
    """Let whoever watches a file in this process know at once that it was committed to."""
    for watch in tuple(_HERE):
        watch.hear(path)
