"""Log lines: JSON for machines, readable on a terminal; from structlog, logging and the ledger.

A line is never longer than `MOST_BYTES`, for journald splits long ones into pieces that are no
JSON, and always one line, whatever its values hold.
"""

from __future__ import annotations

import io
import logging
import os
import select
import threading
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, BinaryIO, Literal

import orjson
import structlog

from slumberd.core.record import Outcome, Record
from slumberd.errors import ConfigurationError, Mistake

MOST_BYTES = 8192

Format = Literal["auto", "json", "console"]
Level = Literal["debug", "info", "warning", "error"]
Now = Callable[[], datetime]
Event = Mapping[str, Any]
Render = Callable[[Event], bytes]

_LEVELS = {"debug": 10, "info": 20, "warning": 30, "error": 40}
_OPTIONS = orjson.OPT_NON_STR_KEYS | orjson.OPT_APPEND_NEWLINE


def configure(
    format: Format, level: Level, target: BinaryIO | Path, *, terminal: bool, now: Now
) -> DeltaLines:
    """Send what structlog and logging are told to one place; return the ledger's way there.

    Args:
        format: ``auto`` is ``console`` on a terminal and ``json`` elsewhere.
        level: The least that is written. Other people's modules start at warning.
        target: An open stream, or a file to append to.
        terminal: Whether a person watches `target`.
        now: Says what time it is.

    Raises:
        ConfigurationError: The file cannot be opened.
    """
    sink = Sink(open_file(target) if isinstance(target, Path) else target)
    console = format == "console" or (format == "auto" and terminal)
    render = _console(colors=terminal) if console else json_line
    _configure_structlog(render, level, sink, now)
    _configure_logging(level)
    return DeltaLines(sink, level=level, now=now, render=_short if console else json_line)


def open_file(path: Path) -> BinaryIO:
    """Open a log file to append to, unbuffered; create it for owner and group only.

    Raises:
        ConfigurationError: It cannot be opened.
    """
    # Without O_NONBLOCK, a FIFO would hold us until somebody reads from it.
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        descriptor = os.open(path, flags, 0o640)
    except OSError as error:
        problem = f"cannot be opened to append to: {error.strerror}"
        raise ConfigurationError([Mistake(str(path), 0, 0, "logging.file", problem)]) from error
    os.set_blocking(descriptor, True)
    return io.FileIO(descriptor, "ab")


class Sink:
    """Writes whole lines to a stream, from any thread.

    After a write that failed half-way, the next one begins a new line.
    """

    def __init__(self, stream: BinaryIO) -> None:
        # A buffer would keep lines from a reader, and hide how much of a write was done.
        self._stream: Any = getattr(stream, "raw", stream)
        self._lock = threading.Lock()
        self._torn = False

    def write(self, lines: bytes) -> None:
        """Write lines, in one system call where the system lets us.

        Raises:
            OSError: They could not be written whole.
        """
        with self._lock:
            self._write(memoryview(b"\n" + lines if self._torn else lines))

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


class DeltaLines:
    """One line for each row of the ledger, and one for each firing; implements ``ports.DeltaLog``.

    Unlike the lines of other events, these are not given up when they cannot be written: OSError
    is for the caller, who must not take the rows for logged.
    """

    def __init__(self, sink: Sink, *, level: Level, now: Now, render: Render) -> None:
        self._sink = sink
        self._least = _LEVELS[level]
        self._now = now
        self._render = render

    def applied(self, records: Sequence[Record]) -> None:
        """Write the ``delta.applied`` lines of a batch at once; firings have their own line."""
        ts = _timestamp(self._now())
        events = (_delta_event(record, ts) for record in records if record.kind != "firing")
        self._write(events)

    def completed(self, outcome: Outcome) -> None:
        """Write the ``firing.completed`` line of one batch."""
        self._write([_firing_event(outcome, _timestamp(self._now()))])

    def _write(self, events: Iterable[Event]) -> None:
        lines = [self._render(e) for e in events if _LEVELS[e["level"]] >= self._least]
        if lines:
            self._sink.write(b"".join(lines))


def _delta_event(record: Record, ts: str) -> Event:
    return {
        "ts": ts,
        "level": "warning" if record.kind == "quarantine" else "info",
        "event": "delta.applied",
        "seq": record.seq,
        "firing_id": record.firing_id,
        "rule_id": record.rule_id,
        "kind": record.kind,
        "fact_id": record.fact_id,
        "replaces": record.replaces,
        "source_episode_ids": record.source_episode_ids,
        "reason": record.reason,
        "confidence": record.confidence,
    }


def _firing_event(outcome: Outcome, ts: str) -> Event:
    firing = outcome.firing
    return {
        "ts": ts,
        "level": "info",
        "event": "firing.completed",
        "firing_id": outcome.firing_id,
        "rule_id": firing.rule_id,
        "rule_hash": firing.rule_hash,
        "trigger": firing.trigger,
        "at": _timestamp(firing.at),
        "window": {"after": firing.after.seq, "upto": firing.upto.seq},
        "channels": {name: counts._asdict() for name, counts in outcome.channels.items()},
        "seconds": round(outcome.seconds, 6),
    }


def _timestamp(at: datetime) -> str:
    return at.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


def json_line(event: Event) -> bytes:
    """Return an event as one line of JSON, values cut where it would grow too long.

    A line that was cut says ``"truncated": true``.
    """
    line = _dumped(event)
    if len(line) <= MOST_BYTES:
        return line
    for most in (1024, 128, 32):
        line = _dumped({key: _cut(value, most) for key, value in event.items()} | _TRUNCATED)
        if len(line) <= MOST_BYTES:
            return line
    kept = {key: _cut(event.get(key), 32) for key in ("ts", "level", "event")}
    return _dumped(kept | _TRUNCATED)


_TRUNCATED = {"truncated": True}


def _dumped(event: Event) -> bytes:
    try:
        return orjson.dumps(event, default=str, option=_OPTIONS)
    except TypeError:  # lone surrogates, whole numbers of over 64 bits, nesting without end
        return orjson.dumps({_text(key): _text(value) for key, value in event.items()}, option=_OPTIONS)


def _text(value: Any) -> str:
    text = value if isinstance(value, str) else repr(value)
    return text.encode("utf-8", "backslashreplace").decode()


def _cut(value: Any, most: int) -> Any:
    """Return a value when it is short, else the beginning of its text."""
    if value is None or isinstance(value, bool | int | float):
        return value
    text = value if isinstance(value, str) else _dumped(value).decode().rstrip()
    return value if len(text) <= most else text[:most] + "\N{HORIZONTAL ELLIPSIS}"


def _short(event: Event) -> bytes:
    """Return a delta or a firing as one short line for a person."""
    parts = _short_delta(event) if event["event"] == "delta.applied" else _short_firing(event)
    return (event["ts"] + " " + _one_line("  ".join(filter(None, parts)))[:_MOST_SHOWN] + "\n").encode()


def _short_delta(event: Event) -> list[str]:
    replaces = ", ".join(event["replaces"][:_MOST_NAMED])
    more = len(event["replaces"]) - _MOST_NAMED
    return [
        f"{event['kind']:<10}",
        event["fact_id"] or ", ".join(event["source_episode_ids"][:_MOST_NAMED]),
        f"replaces {replaces}" + (f" and {more} more" if more > 0 else "") if replaces else "",
        f"({event['reason']})" if event["reason"] else "",
        f"by {event['firing_id']}",
    ]


def _short_firing(event: Event) -> list[str]:
    channels = (
        f"{name}: " + (", ".join(f"{n} {what}" for what, n in counts.items() if n) or "nothing read")
        for name, counts in event["channels"].items()
    )
    return ["fired     ", event["firing_id"], *channels, f"in {event['seconds']:.3f} s"]


_MOST_NAMED = 3
_MOST_SHOWN = 1000
_CONTROLS = {
    code: repr(chr(code))[1:-1]
    for code in (*range(0x20), *range(0x7F, 0xA0), 0x2028, 0x2029, *range(0x202A, 0x202F), *range(0x2066, 0x206A))
}
