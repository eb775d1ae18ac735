"""The outbox: log lines wait here for whoever reads them, so that nobody else has to.

Where log lines end: a stream that takes them whole, and a file that they are appended to.
"""

from __future__ import annotations

import io
import os
import select
import stat
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from slumberd.errors import ConfigurationError, Mistake
from slumberd.file_modes import create_file

MOST_BYTES = 1 << 20
"""Lines of events that may wait; more are dropped and counted."""

MOST_KEPT_BYTES = 8 << 20
"""Lines of firings and checkpoints may wait beyond that; it takes thousands of them."""

PATIENCE_SECONDS = 1.0
"""How long who needs to know waits for a line to be written."""

DRAIN_SECONDS = 2.0
"""How long the end waits for what was not read yet."""


@dataclass(slots=True)
class WriteRequest:
    """Something for the writer to do, mostly the writing of lines.

    Attributes:
        do: Does it; raises OSError.
        size: How many bytes wait with it.
        lines: How many lines nobody repeats if it fails.
        done: Whether it was done, or failed.
        error: Why it failed.
    """

    do: Callable[[], None]
    size: int = 0
    lines: int = 0
    done: bool = False
    error: Exception | None = None


class Outbox:
    """Hands lines to a thread that writes them, in order; none of its callers waits for a reader.

    Attributes:
        dropped: How many lines there was no room for, ever.

    Args:
        write: Writes lines whole, and may take forever.
        dropped_line: Returns the line that tells of so many lines that were dropped.
    """

    def __init__(
        self,
        write: Callable[[bytes], None],
        dropped_line: Callable[[int], bytes],
        *,
        patience_seconds: float = PATIENCE_SECONDS,
    ) -> None:
        self.dropped = 0
        self._write = write
        self._dropped_line = dropped_line
        self._patience_seconds = patience_seconds
        self._letters: deque[WriteRequest] = deque()
        self._bytes = 0
        self._untold = 0
        self._stalled = False
        self._failing = False
        self._closed = False
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._work, name="outbox", daemon=True)
        self._thread.start()

    def tell(self, line: bytes) -> None:
        """Take a line when there is room, else drop it."""
        self._take(line, MOST_BYTES)

    def keep(self, lines: bytes) -> None:
        """Take lines, even when there is no room for others."""
        self._take(lines, MOST_BYTES + MOST_KEPT_BYTES)

    def _take(self, lines: bytes, most: int) -> None:
        with self._changed:
            if self._bytes + len(lines) <= most:
                request = self._lines(lines)
                request.lines = 1
                self._post(request)
            else:
                self._drop(1)

    def _drop(self, lines: int) -> None:
        self.dropped += lines
        self._untold += lines

    def deliver(self, lines: bytes) -> WriteRequest:
        """Take lines, and wait a moment for them to be written; the letter tells whether."""
        request = self._lines(lines)
        with self._changed:
            self._post(request)
            patience = 0.0 if self._stalled else self._patience_seconds
            self._stalled = not self._changed.wait_for(lambda: request.done, patience)
        return request

    def do(self, action: Callable[[], None]) -> None:
        """Let the writer do something between two writes."""
        with self._changed:
            self._post(WriteRequest(action))

    def close(self, *, seconds: float = DRAIN_SECONDS) -> None:
        """Write what waits, and end; give up on a reader that does not read by then."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        self._thread.join(seconds)

    def _lines(self, lines: bytes) -> WriteRequest:
        return WriteRequest(lambda: self._write(lines), len(lines))

    def _post(self, request: WriteRequest) -> None:
        self._letters.append(request)
        self._bytes += request.size
        self._changed.notify_all()

    def _work(self) -> None:
        while request := self._next():
            try:
                request.do()
            except (OSError, ValueError) as error:  # a full disk, a reader that went away
                request.error = error
            with self._changed:
                self._failing = request.error is not None
                self._drop(request.lines if self._failing else 0)
                self._bytes -= request.size
                self._stalled = False
                request.done = True
                self._changed.notify_all()

    def _next(self) -> WriteRequest | None:
        with self._changed:
            self._changed.wait_for(lambda: self._letters or self._may_tell() or self._closed)
            if self._may_tell():
                return WriteRequest(self._tell_dropped)
            return self._letters.popleft() if self._letters else None

    def _may_tell(self) -> bool:
        # Not where the last write failed: the next that succeeds shows that there is room again.
        return self._untold > 0 and not self._failing and self._bytes <= MOST_BYTES // 2

    def _tell_dropped(self) -> None:
        told = self._untold
        self._write(self._dropped_line(told))
        with self._changed:
            self._untold -= told


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

    def deliver(self, lines: bytes) -> WriteRequest:
        """Write lines; raises as `write` does."""
        self.write(lines)
        return WriteRequest(lambda: None, done=True)

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
