"""Write lines to a new file, plain or gzip, that appears when it is complete."""

from __future__ import annotations

import gzip
import io
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

STANDARD_OUTPUT = "-"

_MODE = 0o640

Write = Callable[[Sequence[bytes]], None]
"""Writes lines, each with its newline."""


@contextmanager
def open_output(name: str) -> Iterator[Write]:
    """Yield the function that writes to a file, or to standard output for ``-``."""
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
        temporary.rename(path)
    finally:
        temporary.unlink(missing_ok=True)


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
