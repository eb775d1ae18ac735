"""Open a file of lines, plain or gzip, or standard input."""

from __future__ import annotations

import gzip
import io
import os
import stat
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from typing import BinaryIO, NamedTuple, cast

from slumberd.model.errors import InputError, NoInputError

STANDARD_INPUT = "-"

_GZIP = b"\x1f\x8b"
_BUFFER = 1024 * 1024


class Source(NamedTuple):
    """An input that is open.

    Attributes:
        stream: Its bytes, uncompressed.
        position: Returns how many bytes of the file are read.
        size: How many bytes the file has on disk; None when that is not known.
        modified: When the file was modified; None for an input without a file.
    """

    stream: BinaryIO
    position: Callable[[], int]
    size: int | None
    modified: datetime | None = None


@contextmanager
def open_input(name: str) -> Iterator[Source]:
    """Open a file, or standard input for ``-``; recognise gzip by its first bytes.

    Raises:
        NoInputError: The file does not exist.
        InputError: It is a directory, or a standard input that is closed.
        OSError: It cannot be opened.
    """
    with ExitStack() as stack:
        raw = io.BufferedReader(stack.enter_context(_open_raw(name)), _BUFFER)
        status = os.fstat(raw.fileno())
        if not stat.S_ISREG(status.st_mode):
            yield Source(_uncompress(raw), lambda: 0, None)
            return
        size, modified = status.st_size, datetime.fromtimestamp(status.st_mtime, UTC)
        yield Source(_uncompress(raw), raw.tell if size else lambda: 0, size, modified)


def _open_raw(name: str) -> io.FileIO:
    if name == STANDARD_INPUT:
        return _open_standard_input()
    try:
        return io.FileIO(name)
    except FileNotFoundError as error:
        remedy = "name a file of JSON lines, or - for standard input"
        raise NoInputError(name, remedy) from error
    except IsADirectoryError as error:
        raise InputError(f"{name!r} is a directory, not a file of JSON lines") from error


def _open_standard_input() -> io.FileIO:
    if sys.stdin is None:
        raise InputError("standard input is closed; name a file")
    return io.FileIO(sys.stdin.fileno(), closefd=False)


def _uncompress(raw: io.BufferedReader[io.FileIO]) -> BinaryIO:
    if raw.peek(len(_GZIP))[: len(_GZIP)] != _GZIP:
        return raw
    # A second buffer would lose the whole lines before the place where the data ends early.
    return cast("BinaryIO", gzip.GzipFile(fileobj=raw))
