"""Render events as lines, and write whole lines: directly, or through a queue with a thread.

A line is JSON for programs, or escaped text for people.
"""

from __future__ import annotations

import hmac
import io
import os
import select
import stat
import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, Protocol

import orjson

from slumberd.file_modes import create_file
from slumberd.model.errors import ConfigurationError, Mistake

MOST_BYTES = 8192
"""The longest line of JSON; journald splits longer lines."""

Event = Mapping[str, Any]
"""The fields of a line: ``ts``, ``level`` and ``event``, then those of the event."""

Render = Callable[[Event], bytes]
"""Renders an event as a line."""

CHECKPOINT = "ledger.checkpoint"
"""The event with the ledger's ``rows`` and ``head``."""

_ALWAYS = ("ts", "level", "event")
_WORD_BITS = 64
_OPTIONS = orjson.OPT_APPEND_NEWLINE
_TRUNCATED = {"truncated": True}


def timestamp(at: datetime) -> str:
    """Return an instant as text: ISO 8601, UTC, with microseconds."""
    return at.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


def json_line(event: Event) -> bytes:
    """Return an event as JSON; in a long line the values are cut, and ``truncated`` is true."""
    line = _dump(event)
    return line if len(line) <= MOST_BYTES else _dump(_shorten(event))


def _dump(event: Event) -> bytes:
    try:
        return orjson.dumps(event, default=str, option=_OPTIONS)
    except TypeError:  # a lone surrogate, a number of over 64 bits, a key that is no text
        return orjson.dumps(_plain(event), option=_OPTIONS)


def _plain(value: object) -> object:
    """Return a value in which text replaces whatever JSON cannot express."""
    match value:
        case None | bool() | float():
            return value
        case int():
            return value if value.bit_length() < _WORD_BITS else str(value)
        case list() | tuple():
            return [_plain(item) for item in value]
        case Mapping():
            return {printable(key): _plain(item) for key, item in value.items()}
        case _:
            return printable(value)


def _shorten(event: Event) -> Event:
    """Return an event whose values are cut until its line is short enough."""
    for most in (1024, 128, 32):
        short = {key: _cut(value, most) for key, value in event.items()} | _TRUNCATED
        if len(_dump(short)) <= MOST_BYTES:
            return short
    return {key: _cut(event.get(key), 32) for key in ("ts", "level", "event")} | _TRUNCATED


def _cut(value: object, most: int) -> object:
    """Return a short value as it is, and the beginning of the text of a long one."""
    text = value if isinstance(value, str) else repr(value)
    return value if len(text) <= most else text[:most] + "\N{HORIZONTAL ELLIPSIS}"


def printable(value: object) -> str:
    """Return the text of a value in one line; control characters are escaped."""
    text = value if isinstance(value, str) else repr(value)
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


_COLORS = {"debug": "\33[2m", "info": "\33[32m", "warning": "\33[33m", "error": "\33[31m"}
_NO_COLOR = "\33[0m"


_HASH_DIGITS = 16


def hash_name(key: bytes, name: str) -> str | None:
    """Return the hash of a user or agent in a line: empty for an empty name, None without a key."""
    if not key or not name:
        return None if name else ""
    return hmac.digest(key, name.encode(errors="surrogatepass"), "sha256").hex()[:_HASH_DIGITS]


def event_of(line: bytes) -> Event | None:
    """Return the event of a line of a log; None when slumberd did not write the line."""
    try:
        event = orjson.loads(line)
    except orjson.JSONDecodeError:
        return None
    is_event = isinstance(event, dict) and all(isinstance(event.get(key), str) for key in _ALWAYS)
    return event if is_event else None


def readable_line(line: bytes, *, colors: bool) -> bytes:
    """Return any line of a log as text for a person, with control characters escaped."""
    event = event_of(line)
    if event is not None:
        return console_line(event, colors=colors)
    return printable(line.decode(errors="backslashreplace").rstrip("\r\n")).encode() + b"\n"


def console_line(event: Event, *, colors: bool) -> bytes:
    """Return an event as text for a person; a traceback follows in lines of its own."""
    level = f"{printable(event['level']):<7}"
    if colors:
        level = _COLORS.get(event["level"], "") + level + _NO_COLOR
    name = printable(event["event"])
    words = "  ".join(_words(event))
    line = f"{printable(event['ts'][:19])}Z {level} {name:<18}  {words}".rstrip()
    return "\n".join([line, *_traceback(event), ""]).encode(errors="backslashreplace")


def _words(event: Event) -> Iterable[str]:
    render = _WORDS.get(event["event"], _plain_words)
    if event.get("truncated"):
        return _plain_words(event)
    try:
        return render(event)
    except (AttributeError, KeyError, TypeError, ValueError):  # another program wrote the line
        return _plain_words(event)


def _plain_words(event: Event) -> list[str]:
    shown = {*_ALWAYS, "exception"}
    return [f"{printable(key)}={_show(event[key])}" for key in event if key not in shown]


def _show(value: object) -> str:
    return printable(_cut(value, 1024))


def _delta_words(event: Event) -> list[str]:
    words = [
        _show(event["kind"]),
        _show(event["fact_id"] or ", ".join(event["source_episode_ids"])),
    ]
    if event["replaces"] and event["replaces"] != [event["fact_id"]]:
        words.append(f"replaces {_show(', '.join(event['replaces']))}")
    if event["reason"]:
        words.append(f"({_show(event['reason'])})")
    return [*words, f"by {_show(event['firing_id'])}"]


def _firing_words(event: Event) -> list[str]:
    return [_show(event["firing_id"]), *_channel_words(event), f"{event['seconds']:.3f} s"]


def _finished_words(event: Event) -> list[str]:
    batches = f"{event['batches']:d} batches"
    purged = [f"{event['purged']:d} episodes purged"] if event["purged"] else []
    return [_show(event["rule_id"]), batches, *_channel_words(event), *purged]


def _channel_words(event: Event) -> list[str]:
    return [f"{_show(name)}: {_count(counts)}" for name, counts in event["channels"].items()]


def _count(counts: Mapping[str, int]) -> str:
    words = [f"{_show(count)} {_show(name)}" for name, count in counts.items() if count]
    return ", ".join(words) or "nothing read"


_WORDS: Mapping[str, Callable[[Event], list[str]]] = {
    "delta.applied": _delta_words,
    "firing.completed": _firing_words,
    "firing.finished": _finished_words,
}


def _traceback(event: Event) -> list[str]:
    return [f"  {printable(line)}" for line in str(event.get("exception") or "").splitlines()]


EVENT_BYTES = 1 << 20
"""The most bytes of lines that wait; further event lines are dropped and counted."""

MUST_BYTES = 8 << 20
"""Lines that must not be lost may wait in this many bytes more: thousands of firings."""

PATIENCE_SECONDS = 1.0
"""How long `write_and_wait` waits until its lines are written."""

DRAIN_SECONDS = 2.0
"""How long `close` waits until all lines are written."""


@dataclass(slots=True)
class WriteRequest:
    """A task of the writing thread; usually it writes lines.

    Attributes:
        run: Performs the task; raises OSError.
        size: The bytes of its lines.
        lines: How many lines are lost when it fails.
        done: Whether the thread has finished it, with success or not.
        error: Why it failed; None when it did not.
    """

    run: Callable[[], object]
    size: int = 0
    lines: int = 0
    done: bool = False
    error: Exception | None = None


class LineOutput(Protocol):
    """An output of lines for any thread: a `LineStream`, or a `LineWriter` before it.

    Attributes:
        dropped: How many lines were dropped because the buffer was full.
    """

    dropped: int

    def write(self, lines: bytes, *, must: bool = False) -> bool:
        """Write lines; return whether they are written, or wait to be.

        Args:
            lines: Whole lines.
            must: Whether a loss matters, since nothing repeats these lines.

        Raises:
            OSError: The lines must be written, and could not be.
        """
        ...

    def write_and_wait(self, lines: bytes) -> WriteRequest:
        """Write lines that the caller repeats after a failure; return whether they are written."""
        ...


class LineWriter:
    """A queue of lines, and a thread that writes them in order; a slow reader blocks no caller.

    Attributes:
        dropped: How many lines were dropped, ever.

    Args:
        write: Writes lines whole, and may block for ever.
        dropped_line: Returns the line that reports a number of dropped lines.
        event_bytes: See `EVENT_BYTES`.
        must_bytes: See `MUST_BYTES`.
        patience_seconds: See `PATIENCE_SECONDS`.
    """

    def __init__(
        self,
        write: Callable[[bytes], object],
        dropped_line: Callable[[int], bytes],
        *,
        event_bytes: int = EVENT_BYTES,
        must_bytes: int = MUST_BYTES,
        patience_seconds: float = PATIENCE_SECONDS,
    ) -> None:
        self.dropped = 0
        self._write = write
        self._dropped_line = dropped_line
        self._event_bytes = event_bytes
        self._must_bytes = must_bytes
        self._patience_seconds = patience_seconds
        self._requests: deque[WriteRequest] = deque()
        self._bytes = 0
        self._unreported = 0
        self._stalled = False
        self._failing = False
        self._closed = False
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._work, name="log writer", daemon=True)
        self._thread.start()

    def write(self, lines: bytes, *, must: bool = False) -> bool:
        """Queue lines when there is room, else drop and count them; return whether they wait.

        Args:
            lines: One line, or several that count as one.
            must: Whether the lines may use the room that event lines leave free.
        """
        room = self._event_bytes + (self._must_bytes if must else 0)
        with self._changed:
            if self._bytes + len(lines) > room:
                self._drop(1)
                return False
            self._queue(WriteRequest(partial(self._write, lines), len(lines), lines=1))
            return True

    def write_and_wait(self, lines: bytes) -> WriteRequest:
        """Queue lines, and wait for at most `patience_seconds` until they are written.

        After a first timeout it returns at once, until the reader reads again. The caller asks the
        request later whether its lines were written.
        """
        request = WriteRequest(partial(self._write, lines), len(lines))
        with self._changed:
            self._queue(request)
            patience = 0.0 if self._stalled else self._patience_seconds
            self._stalled = not self._changed.wait_for(lambda: request.done, patience)
        return request

    def run_between_writes(self, action: Callable[[], None]) -> None:
        """Queue an action that the thread runs after the lines that wait now."""
        with self._changed:
            self._queue(WriteRequest(action))

    def close(self, *, seconds: float = DRAIN_SECONDS) -> None:
        """Write the queued lines and end the thread; give up after `seconds`."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        self._thread.join(seconds)

    def _drop(self, lines: int) -> None:
        self.dropped += lines
        self._unreported += lines

    def _queue(self, request: WriteRequest) -> None:
        self._requests.append(request)
        self._bytes += request.size
        self._changed.notify_all()

    def _work(self) -> None:
        while request := self._next():
            try:
                request.run()
            except (OSError, ValueError) as error:  # a full disk, a closed stream
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
            self._changed.wait_for(lambda: self._requests or self._may_report() or self._closed)
            if self._may_report():
                return WriteRequest(self._report_dropped)
            return self._requests.popleft() if self._requests else None

    def _may_report(self) -> bool:
        # Not after a failed write: the next write that succeeds shows that there is room again.
        has_room = self._bytes <= self._event_bytes // 2
        return self._unreported > 0 and not self._failing and has_room

    def _report_dropped(self) -> None:
        reported = self._unreported
        self._write(self._dropped_line(reported))
        with self._changed:
            self._unreported -= reported


class LogFile(io.FileIO):
    """A file that lines are appended to.

    Attributes:
        torn: Whether it ends within a line, because the last writer was killed in a write.
        path: Where it is, for errors.
    """

    torn = False
    path: str | None = None


def open_file(path: Path) -> BinaryIO:
    """Open a log file to append to, unbuffered; create it when it is missing.

    Raises:
        ConfigurationError: The file cannot be opened.
    """
    # Without O_NONBLOCK, opening a FIFO blocks until it has a reader.
    flags = os.O_WRONLY | os.O_APPEND | os.O_NONBLOCK
    try:
        descriptor = _open(path, flags)
    except OSError as error:
        problem = f"cannot be opened to append to: {error.strerror}"
        raise ConfigurationError([Mistake(str(path), 0, 0, "logging.file", problem)]) from error
    os.set_blocking(descriptor, True)
    file = LogFile(descriptor, "ab")
    file.path = str(path)
    file.torn = stat.S_ISREG(os.fstat(descriptor).st_mode) and _ends_within_a_line(path)
    return file


def _open(path: Path, flags: int) -> int:
    with suppress(FileExistsError):
        return create_file(path, flags)
    # The path may be a link to a missing file: O_CREAT creates that file.
    return os.open(path, flags | os.O_CREAT | os.O_CLOEXEC, 0o640)


def _ends_within_a_line(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            file.seek(-1, os.SEEK_END)
            return file.read() != b"\n"
    except OSError:  # the file is empty, or not readable for this user
        return False


def _is_torn(stream: BinaryIO) -> bool:
    return isinstance(stream, LogFile) and stream.torn


class LineStream:
    """Writes whole lines to a stream, from any thread, and waits for its reader.

    After a write that failed half-way, in this process or an earlier one, the next write begins a
    new line.

    Attributes:
        dropped: Always 0: a stream has room, or its writer waits.
    """

    def __init__(self, stream: BinaryIO) -> None:
        # A buffer would keep lines from a reader, and hide how much of a write was done.
        self._stream: Any = getattr(stream, "raw", stream)
        self.dropped = 0
        self._lock = threading.Lock()
        self._torn = _is_torn(stream)

    def write(self, lines: bytes, *, must: bool = False) -> bool:
        """Write lines, in one system call where the system permits it.

        Args:
            lines: Whole lines.
            must: Whether a failure is an error, and not only a lost line.

        Returns:
            Whether the lines are written.

        Raises:
            OSError: The lines must be written, and could not be written whole.
        """
        try:
            with self._lock:
                self._write_whole(memoryview(b"\n" + lines if self._torn else lines))
        except OSError as error:
            if must:
                error.filename = getattr(self._stream, "path", None)
                raise
            return False
        return True

    def write_and_wait(self, lines: bytes) -> WriteRequest:
        """Write lines that must be written; see `write`."""
        self.write(lines, must=True)
        return WriteRequest(lambda: None, done=True)

    def replace(self, stream: BinaryIO) -> None:
        """Close the stream, and write to another one from now on."""
        with self._lock:
            self._stream.close()
            self._stream, self._torn = stream, _is_torn(stream)

    def close(self) -> None:
        """Close the stream, unless a write to it is blocked by a slow reader."""
        if self._lock.acquire(blocking=False):
            self._stream.close()
            self._lock.release()

    def _write_whole(self, unwritten: memoryview) -> None:
        while unwritten:
            written = self._stream.write(unwritten)
            if written is None:
                self._wait()
            else:
                unwritten = unwritten[written:]
                self._torn = len(unwritten) > 0

    def _wait(self) -> None:
        """Wait until a non-blocking stream has room again."""
        poll = select.poll()
        poll.register(self._stream, select.POLLOUT)
        poll.poll()
