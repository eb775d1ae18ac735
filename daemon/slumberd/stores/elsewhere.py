"""Judge some keys of a ledger in a process of its own, where the ledger is long enough.

``python -m slumberd.stores.elsewhere WORK PATH DEPTH ABOVE`` does the work, one of `WORKS`, for the
keys with numbers above one, and writes what comes of it to its standard output, for the process
that began it.
"""

from __future__ import annotations

import gc
import os
import pickle
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from sqlite3 import Connection
from tempfile import TemporaryFile
from typing import Any

from slumberd.stores.matching import EVERY_KEY, Pages, Share, compared
from slumberd.stores.parting import Parts
from slumberd.stores.resettling import Findings, Resettling, Settled
from slumberd.stores.sqlite import Pragmas, connect, snapshot
from slumberd.stores.traceless import UNCHANGING

MANY = 50_000
"""Rows of a ledger from which on another process is worth its start."""


def _compare(connection: Connection, depth: int, above: int) -> Iterator[Share]:
    yield compared(connection, Pages(connection, depth, (above, EVERY_KEY[1])))


def _settle(connection: Connection, depth: int, above: int) -> Iterator[tuple[Settled, Findings]]:
    resettling = Resettling(connection, depth)
    return map(resettling.settle, Parts(connection).of_keys(above, EVERY_KEY[1]))


WORKS: dict[str, Callable[[Connection, int, int], Iterator[Any]]] = {
    "compare": _compare,
    "settle": _settle,
}
"""What can be done elsewhere; each yields what comes of it."""


class Helper:
    """Another process at work; `above` says on which keys.

    Attributes:
        above: Their numbers are above this one.
    """

    def __init__(self, work: str, path: Path, depth: int, above: int) -> None:
        self.above = above
        # A file, not a pipe: nobody reads before all of it is there.
        self._told = TemporaryFile()  # noqa: SIM115 # closed by end()
        # -P: nothing that lies in the directory of whoever audits is imported.
        words = [sys.executable, "-P", "-m", __name__, work, str(path), str(depth), str(above)]
        self._process = subprocess.Popen(  # noqa: S603 # our own words
            words, stdin=subprocess.DEVNULL, stdout=self._told, stderr=subprocess.DEVNULL
        )

    def share(self) -> Share | None:
        """Wait for what comes of comparing; None when nothing does."""
        found = self._found()
        return None if found is None else next(found)

    def settled(self) -> Iterator[tuple[Settled, Findings]] | None:
        """Wait for what comes of settling; None when nothing does."""
        return self._found()

    def _found(self) -> Iterator[Any] | None:
        # Whatever stopped it will stop whoever does it instead, and can be told from there.
        if self._process.wait():
            return None
        self._told.seek(0)
        return self._loaded()

    def _loaded(self) -> Iterator[Any]:
        size = os.fstat(self._told.fileno()).st_size
        while self._told.tell() < size:
            yield pickle.load(self._told)  # noqa: S301 # by us

    def end(self) -> None:
        """End it, done or not."""
        with self._told, self._process as process:
            process.kill()


@contextmanager
def helping(
    work: str, path: Path, depth: int, *, rows: int, above: int, unchanging: bool
) -> Iterator[Helper | None]:
    """Yield a process that judges the keys with numbers above one; None where it would not pay.

    Args:
        work: What it does.
        path: The database of the ledger.
        depth: Links of lineage.
        rows: Of the ledger.
        above: Its keys have numbers above this one.
        unchanging: Whether the file cannot change meanwhile: both must see the same.
    """
    if not unchanging or rows < MANY or len(os.sched_getaffinity(0)) < 2:
        yield None
        return
    helper = Helper(work, path, depth, above)
    try:
        yield helper
    finally:
        helper.end()


def main(work: str, path: str, depth: str, above: str) -> None:
    """Do some work, and write what comes of it."""
    gc.disable()  # what is held is let go of page by page, and holds nothing of itself
    with (
        closing(connect(Path(path), Pragmas(), access="read", how=UNCHANGING)) as connection,
        snapshot(connection),
    ):
        for one in WORKS[work](connection, int(depth), int(above)):
            pickle.dump(one, sys.stdout.buffer, pickle.HIGHEST_PROTOCOL)
    sys.stdout.buffer.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])
