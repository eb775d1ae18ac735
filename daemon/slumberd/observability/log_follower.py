"""Follow a growing file, also when it is renamed, replaced or truncated."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import BinaryIO

_BLOCK = 64 * 1024
_LONGEST = 2**20
"""A longer line is split, so that it does not fill the memory."""


def follow(path: Path, wait: Callable[[], bool], *, last: int = 10) -> Iterator[bytes]:
    """Yield the last lines of a file, and then each new line.

    A file that replaces this one is read from its beginning. The old file is still read until the
    next replacement, because its writer may still have it open.

    Args:
        path: The file.
        wait: Waits a moment; returns False to end.
        last: The number of existing lines that are read.

    Raises:
        OSError: The file cannot be opened or read.
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
    """Return the file that replaced another one and is not empty; None without such a file."""
    try:
        status = path.stat()
    except FileNotFoundError:
        return None
    if (status.st_dev, status.st_ino) == reader.identity:
        reader.rewind_if_shorter(status.st_size)
        return None
    return path.open("rb") if status.st_size else None


class _Reader:
    """Reads the lines of one open file as they are appended."""

    def __init__(self, file: BinaryIO) -> None:
        status = os.fstat(file.fileno())
        self.identity = status.st_dev, status.st_ino
        self._file = file
        self._rest = b""

    def skip_to_last(self, count: int) -> None:
        """Move to the last `count` lines."""
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
        """Return to the beginning when the file was truncated."""
        if size < self._file.tell():
            self._file.seek(0)
            self._rest = b""

    def lines(self) -> Iterator[bytes]:
        """Yield the new lines that are complete."""
        while block := self._file.read(_BLOCK):
            *whole, self._rest = (self._rest + block).split(b"\n")
            yield from whole
            if len(self._rest) > _LONGEST:
                yield self._rest
                self._rest = b""
