"""Follow a file that others append to, also when it is renamed, replaced or truncated."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import BinaryIO

_BLOCK = 64 * 1024
_LONGEST = 2**20
"""A line that is longer is cut into pieces: it must not fill the memory."""


def follow(path: Path, wait: Callable[[], bool], *, last: int = 10) -> Iterator[bytes]:
    """Yield the last lines of a file, and each line that comes.

    A file that takes the place of this one is read from its beginning. The one before is still
    read until another takes that place: whoever writes may not have noticed the change.

    Args:
        path: The file.
        wait: Waits a moment; returns False to end.
        last: How many of its lines are read that are there already.

    Raises:
        OSError: It cannot be opened, or read.
    """
    with ExitStack() as stack:
        current = _Reader(stack.enter_context(path.open("rb")))
        current.skip_to_last(last)
        readers = [current]
        while True:
            fresh = _replacement(path, readers[-1])
            for reader in readers:
                yield from reader.lines()
            if fresh is not None:
                stack.callback(fresh.close)
                readers = [readers[-1], _Reader(fresh)]
            elif not wait():
                return


def _replacement(path: Path, reader: _Reader) -> BinaryIO | None:
    """Return the file that has taken a place, once something is in it; None while none has."""
    try:
        found = path.stat()
    except FileNotFoundError:
        return None
    if (found.st_dev, found.st_ino) == reader.place:
        reader.rewind_if_shorter(found.st_size)
        return None
    return path.open("rb") if found.st_size else None


class _Reader:
    """The lines of one file that is open, as they come."""

    def __init__(self, file: BinaryIO) -> None:
        status = os.fstat(file.fileno())
        self.place = status.st_dev, status.st_ino
        self._file = file
        self._rest = b""

    def skip_to_last(self, count: int) -> None:
        """Begin with the last so many lines."""
        position, newlines = self._file.seek(0, os.SEEK_END), 0
        block = b""
        while position > 0 and newlines <= count:
            position = max(0, position - _BLOCK)
            self._file.seek(position)
            block = self._file.read(_BLOCK)
            newlines += block.count(b"\n")
        for _ in range(newlines - count):
            position += block.index(b"\n") + 1
            block = block[block.index(b"\n") + 1 :]
        self._file.seek(position)

    def rewind_if_shorter(self, size: int) -> None:
        """Begin again when the file was truncated."""
        if size < self._file.tell():
            self._file.seek(0)
            self._rest = b""

    def lines(self) -> Iterator[bytes]:
        """Yield the lines that are whole by now."""
        while block := self._file.read(_BLOCK):
            *whole, self._rest = (self._rest + block).split(b"\n")
            yield from whole
            if len(self._rest) > _LONGEST:
                yield self._rest
                self._rest = b""
