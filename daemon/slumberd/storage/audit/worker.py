"""Judge some keys of a ledger in a process of its own, where the ledger is long enough.

``python -m slumberd.storage.audit.worker NAME PATH DEPTH ABOVE`` does one of `WORKS`
for the keys with
numbers above one, and writes what comes of it to its standard output, for whoever began it.
"""

from __future__ import annotations

import gc
import os
import pickle
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from sqlite3 import Connection
from tempfile import TemporaryFile
from typing import Any, NamedTuple

from slumberd.storage.audit.fact_check import EVERY_KEY, Pages, Share, compared
from slumberd.storage.audit.partition import Parts
from slumberd.storage.audit.recompute import Findings, Resettling, Settled
from slumberd.storage.sqlite.connection import Pragmas, connect, snapshot
from slumberd.storage.sqlite.database import UNCHANGING

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


_LENGTH = struct.Struct(">Q")
_LOOK_SECONDS = 0.01


class Work(NamedTuple):
    """Something to do elsewhere.

    Attributes:
        name: One of `WORKS`.
        path: The database of the ledger.
        depth: Links of lineage.
        above: It is done for the keys with numbers above this one.
    """

    name: str
    path: Path
    depth: int
    above: int


class HelperError(Exception):
    """Another process ended before its work did; a control flow of the stores."""


class Helper:
    """Another process at work; `above` says on which keys.

    Attributes:
        above: Their numbers are above this one.
    """

    def __init__(self, work: Work, folder: Path | None) -> None:
        self.above = work.above
        # A file, not a pipe: it need not wait for us, nor we for it.
        self._told = TemporaryFile(dir=folder)  # noqa: SIM115 # closed by end()
        # -P: nothing that lies in the directory of whoever audits is imported.
        words = [sys.executable, "-P", "-m", __name__, *map(str, work)]
        self._process = subprocess.Popen(  # noqa: S603 # our own words
            words, stdin=subprocess.DEVNULL, stdout=self._told, stderr=subprocess.DEVNULL
        )

    def share(self) -> Share | None:
        """Wait for what comes of comparing; None when nothing does."""
        try:
            share: Share | None = next(self._found(), None)
        except HelperError:
            return None
        return share

    def settled(self) -> Iterator[tuple[Settled, Findings]]:
        """Yield what comes of settling, as it comes.

        Raises:
            HelperError: It ended before its work did.
        """
        return self._found()

    def _found(self) -> Iterator[Any]:
        place = 0
        while True:
            ended = self._process.poll() is not None
            while (told := self._read(place, _LENGTH.size)) and (
                found := self._read(place + _LENGTH.size, length := _LENGTH.unpack(told)[0])
            ):
                yield pickle.loads(found)  # noqa: S301 # by us
                place += _LENGTH.size + length
            if ended:
                break
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(_LOOK_SECONDS)
        # Whatever stopped it will stop whoever does it instead, and can be told from there.
        if self._process.returncode:
            raise HelperError

    def _read(self, place: int, length: int) -> bytes | None:
        # Not read(): where that goes on is where the other process writes.
        found = os.pread(self._told.fileno(), length, place)
        return found if len(found) == length else None

    def end(self) -> None:
        """End it, done or not."""
        with self._told, self._process as process:
            process.kill()


@contextmanager
def helping(
    work: Work, *, rows: int, unchanging: bool, folder: Path | None = None
) -> Iterator[Helper | None]:
    """Yield a process at work; None where it would not pay.

    Args:
        work: What it does.
        rows: Of the ledger.
        unchanging: Whether the file cannot change meanwhile: both must see the same.
        folder: Where there is room for what comes of it; None for where temporary files are.
    """
    if not unchanging or rows < MANY or len(os.sched_getaffinity(0)) < 2:
        yield None
        return
    helper = Helper(work, folder)
    try:
        yield helper
    finally:
        helper.end()


def main(name: str, path: str, depth: str, above: str) -> None:
    """Do some work, and write what comes of it."""
    gc.disable()  # what is held is let go of page by page, and holds nothing of itself
    with (
        closing(connect(Path(path), Pragmas(), access="read", how=UNCHANGING)) as connection,
        snapshot(connection),
    ):
        for one in WORKS[name](connection, int(depth), int(above)):
            told = pickle.dumps(one, pickle.HIGHEST_PROTOCOL)
            sys.stdout.buffer.write(_LENGTH.pack(len(told)) + told)
    sys.stdout.buffer.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])
