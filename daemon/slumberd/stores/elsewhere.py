"""Compare the facts of some keys in a process of its own, for a ledger that is long enough.

``python -m slumberd.stores.elsewhere PATH DEPTH ABOVE`` does, for the keys with numbers above one,
and writes what comes of it to its standard output, for the process that began it.
"""

from __future__ import annotations

import gc
import os
import pickle
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from slumberd.stores.matching import EVERY_KEY, Pages, Share, compared
from slumberd.stores.queries import statements
from slumberd.stores.sqlite import KeyedConnection, Pragmas, connect, snapshot
from slumberd.stores.traceless import UNCHANGING

MANY = 50_000
"""Rows of a ledger from which on another process is worth its start."""

_HERE = 3
"""One key in so many is compared by whoever also recomputes the chain: both end together."""

_FILE = statements("migrations")["file"]
_LAST = statements("ledger")["last_row"]


class Helper:
    """Another process at work; `above` says on which keys.

    Attributes:
        above: Their numbers are above this one.
    """

    def __init__(self, path: str, depth: int, above: int) -> None:
        self.above = above
        # -P: nothing that lies in the directory of whoever audits is imported.
        words = [sys.executable, "-P", "-m", __name__, path, str(depth), str(above)]
        self._process = subprocess.Popen(  # noqa: S603 # our own words
            words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )

    def share(self) -> Share | None:
        """Wait for what comes of it; None when nothing does."""
        told, _ = self._process.communicate()
        # Whatever stopped it will stop whoever does it instead, and can be told from there.
        return None if self._process.returncode else pickle.loads(told)  # noqa: S301 # by us

    def end(self) -> None:
        """End it, done or not."""
        with self._process as process:
            process.kill()


@contextmanager
def helping(connection: sqlite3.Connection, depth: int) -> Iterator[Helper | None]:
    """Yield a process that compares the facts of most keys; None where it would not pay.

    Both must see the same, so it is only for files that cannot change meanwhile.
    """
    last = connection.execute(_LAST).fetchone()
    unchanging = isinstance(connection, KeyedConnection) and connection.unchanging
    if not unchanging or not last or last[0] < MANY or len(os.sched_getaffinity(0)) < 2:
        yield None
        return
    helper = Helper(connection.execute(_FILE).fetchone()[0], depth, last[0] // _HERE)
    try:
        yield helper
    finally:
        helper.end()


def main(path: str, depth: str, above: str) -> None:
    """Compare, and write what comes of it."""
    gc.disable()  # what is held is let go of page by page, and holds nothing of itself
    with (
        closing(connect(Path(path), Pragmas(), access="read", how=UNCHANGING)) as connection,
        snapshot(connection),
    ):
        pages = Pages(connection, int(depth), (int(above), EVERY_KEY[1]))
        pickle.dump(compared(connection, pages), sys.stdout.buffer)


if __name__ == "__main__":
    main(*sys.argv[1:])
