"""Where log lines end: a stream that takes them whole, and a file that they are appended to."""

from __future__ import annotations

import io
import os
import select
import stat
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO

from slumberd.errors import ConfigurationError, Mistake
from slumberd.file_modes import create_file
from slumberd.outbox import Letter


class LogFile(io.FileIO):
    """A file that lines are appended to.

    Attributes:
        torn: Whether it ends within a line: whoever wrote there last was killed meanwhile.
    """

    torn = False


def open_file(path: Path) -> BinaryIO:
    """Open a log file to append to, unbuffered; create it where there is none.

    Raises:
        ConfigurationError: It cannot be opened.
    """
    # Without O_NONBLOCK, a FIFO would hold us until somebody reads from it.
    flags = os.O_WRONLY | os.O_APPEND | os.O_NONBLOCK
    try:
        descriptor = _opened(path, flags)
    except OSError as error:
        problem = f"cannot be opened to append to: {error.strerror}"
        raise ConfigurationError([Mistake(str(path), 0, 0, "logging.file", problem)]) from error
    os.set_blocking(descriptor, True)
    file = LogFile(descriptor, "ab")
    file.torn = stat.S_ISREG(os.fstat(descriptor).st_mode) and _ends_within_a_line(path)
    return file


def _opened(path: Path, flags: int) -> int:
    with suppress(FileExistsError):
        return create_file(path, flags)
    # A link that leads nowhere is there, too: what it leads to is created.
    return os.open(path, flags | os.O_CREAT | os.O_CLOEXEC, 0o640)


def _ends_within_a_line(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            file.seek(-1, os.SEEK_END)
            return file.read() != b"\n"
    except OSError:  # it is empty, or not for us to read
        return False


def _is_torn(stream: BinaryIO) -> bool:
    return isinstance(stream, LogFile) and stream.torn


class Sink:
    """Writes whole lines to a stream, from any thread.

    After a write that failed half-way, here or in a process before, the next begins a new line.

    Attributes:
        dropped: None is ever dropped for want of room.
    """

    def __init__(self, stream: BinaryIO) -> None:
        # A buffer would keep lines from a reader, and hide how much of a write was done.
        self._stream: Any = getattr(stream, "raw", stream)
        self.dropped = 0
        self._lock = threading.Lock()
        self._torn = _is_torn(stream)

    def tell(self, line: bytes) -> None:
        """Write a line, or lose it."""
        # A full disk or a reader that went away must not stop what the line is about.
        with suppress(OSError):
            self.write(line)

    def keep(self, lines: bytes) -> None:
        """Write lines; raises as `write` does."""
        self.write(lines)

    def deliver(self, lines: bytes) -> Letter:
        """Write lines; raises as `write` does."""
        self.write(lines)
        return Letter(lambda: None, done=True)

    def write(self, lines: bytes | bytearray) -> None:
        """Write lines, in one system call where the system lets us.

        Raises:
            OSError: They could not be written whole.
        """
        with self._lock:
            self._write(memoryview(b"\n" + lines if self._torn else lines))

    def replace(self, stream: BinaryIO) -> None:
        """Write to another stream from now on, and close the one before."""
        with self._lock:
            self._stream.close()
            self._stream, self._torn = stream, _is_torn(stream)

    def close(self) -> None:
        """Close the stream, unless it is being written to: a reader may have left us alone."""
        if self._lock.acquire(blocking=False):
            self._stream.close()
            self._lock.release()

    def _write(self, rest: memoryview) -> None:
        while rest:
            written = self._stream.write(rest)
            if written is None:
                self._wait()
            else:
                rest = rest[written:]
                self._torn = len(rest) > 0

    def _wait(self) -> None:
        """Wait until a stream that somebody made non-blocking takes more."""
        poll = select.poll()
        poll.register(self._stream, select.POLLOUT)
        poll.poll()
