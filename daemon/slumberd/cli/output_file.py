"""Write lines to a new file, plain or gzip, that appears when it is complete."""

from __future__ import annotations

import gzip
import io
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from slumberd.model.errors import OutputExistsError

STANDARD_OUTPUT = "-"

_MODE = 0o640

Write = Callable[[Sequence[bytes]], None]
"""Writes lines, each with its newline."""


@contextmanager
def open_output(name: str, *, replace: bool = True) -> Iterator[Write]:
    """Yield the function that writes to a file, or to standard output for ``-``.

    The file appears when the block ends, whole; after an error it does not appear.

    Args:
        name: The file.
        replace: Whether the new file replaces an older one.

    Raises:
        OutputExistsError: The file exists when the block ends, and may not be replaced.
    """
    if name == STANDARD_OUTPUT:
        yield _print_lines
        return
    path = Path(name)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    try:
        with io.FileIO(os.open(temporary, flags, _MODE), "wb") as raw:
            with _compress(raw, path) as stream:
                yield stream.writelines
            os.fsync(raw.fileno())
        if replace:
            temporary.rename(path)
        else:
            _rename_to_new(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def _rename_to_new(temporary: Path, path: Path) -> None:
    """Give a file its name, unless the name is taken; the file may keep its old name, too."""
    try:
        os.link(temporary, path)
    except FileExistsError:
        raise OutputExistsError(str(path)) from None
    except OSError:  # no hard links on this file system
        _reserve(path)
        temporary.rename(path)


def _reserve(path: Path) -> None:
    """Create an empty file, which a rename may replace."""
    try:
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, _MODE))
    except FileExistsError:
        raise OutputExistsError(str(path)) from None


def _print_lines(lines: Sequence[bytes]) -> None:
    sys.stdout.write(b"".join(lines).decode())


@contextmanager
def _compress(raw: io.FileIO, path: Path) -> Iterator[io.BufferedIOBase]:
    """Yield the stream of a new file, compressed when its name ends in ``.gz``."""
    if path.suffix == ".gz":
        # Without a name and a time in its header, the same rows make the same file.
        with gzip.GzipFile("", "wb", fileobj=raw, mtime=0) as stream:
            yield stream
        return
    buffer = io.BufferedWriter(raw)
    yield buffer
    buffer.flush()
