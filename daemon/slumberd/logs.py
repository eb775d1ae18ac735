"""Where log lines go: those of structlog, of logging, and of the ledger, to one stream."""

from __future__ import annotations

import io
import logging
import os
import select
import threading
from collections.abc import Callable, Iterable, MutableMapping, Sequence
from contextlib import suppress
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, Literal

import structlog

from slumberd.core.brake import Held
from slumberd.core.record import Checkpoint, Outcome, Record
from slumberd.errors import ConfigurationError, Mistake
from slumberd.lines import CHECKPOINT, Event, console_line, json_line, timestamp

Format = Literal["auto", "json", "console"]
Level = Literal["debug", "info", "warning", "error"]
Now = Callable[[], datetime]
Render = Callable[[Event], bytes]

_LEVELS = {"debug": 10, "info": 20, "warning": 30, "error": 40}


def configure(
    style: Format, level: Level, stream: BinaryIO, *, terminal: bool, now: Now, colors: bool = True
) -> DeltaLines:
    """Send what structlog and logging are told to one place; return the ledger's way there.

    Args:
        style: ``auto`` is ``console`` on a terminal and ``json`` elsewhere.
        level: The least that is written. Other people's modules start at warning.
        stream: Stays the caller's, who may close it once nothing logs any more.
        terminal: Whether a person watches `stream`.
        colors: Whether that person takes colours.
        now: Says what time it is.
    """
    sink = Sink(stream)
    console = style == "console" or (style == "auto" and terminal)
    render: Render = partial(console_line, colors=terminal and colors) if console else json_line
    _configure_structlog(sink, level=level, now=now, render=render)
    _configure_logging(level)
    return DeltaLines(sink, level=level, now=now, render=render)


def _configure_structlog(sink: Sink, *, level: Level, now: Now, render: Render) -> None:
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.format_exc_info,
            partial(_rendered, now=now, render=render),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(_LEVELS[level]),
        logger_factory=lambda *_: _EventLogger(sink),
        # A logger that was used before a reload must not go on with what was configured then.
        cache_logger_on_first_use=False,
    )


def _rendered(
    _logger: object, method: str, event: MutableMapping[str, Any], *, now: Now, render: Render
) -> bytes:
    level = "error" if method == "critical" else method
    said = event.pop("event", "")
    return render({"ts": timestamp(now()), "level": level, "event": said, **event})


class _EventLogger:
    """What structlog hands its lines to."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink

    def msg(self, line: bytes) -> None:
        """Write a line, or lose it."""
        # A full disk or a reader that went away must not stop what the line is about.
        with suppress(OSError):
            self._sink.write(line)

    debug = info = warning = error = critical = msg


def _configure_logging(level: Level) -> None:
    # Not below warning: aiosqlite's debug lines hold the parameters of statements, so content.
    logging.basicConfig(
        handlers=[_Bridge()], level=max(_LEVELS[level], logging.WARNING), force=True
    )
    logging.captureWarnings(capture=True)


class _Bridge(logging.Handler):
    """Turns what other people's modules log into events."""

    def emit(self, record: logging.LogRecord) -> None:
        """Log a record as ``library.logged``."""
        log = structlog.get_logger()
        try:
            message = record.getMessage()
        except (TypeError, ValueError, KeyError):
            message = record.msg
        log.log(
            min(max(record.levelno // 10 * 10, logging.DEBUG), logging.ERROR),
            "library.logged",
            logger=record.name,
            message=message,
            exc_info=record.exc_info,
        )


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

    def write(self, lines: bytes | bytearray) -> None:
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

    def __init__(
        self, sink: Sink, *, level: Level, now: Now, render: Render, store: str = "facts.db"
    ) -> None:
        self._sink = sink
        self._level: Level = level
        self._store = store
        self._least = _LEVELS[level]
        self._now = now
        self._render = render

    def of(self, store: str) -> DeltaLines:
        """Return what writes lines to the same place that name another fact store."""
        return DeltaLines(
            self._sink, level=self._level, now=self._now, render=self._render, store=store
        )

    def applied(self, records: Sequence[Record]) -> None:
        """Write the ``delta.applied`` lines of a batch at once; firings have their own line."""
        ts = timestamp(self._now())
        acts = (record for record in records if record.kind != "firing")
        self._write(_delta_event(record, ts, self._store) for record in acts)

    def completed(self, outcome: Outcome) -> None:
        """Write the ``firing.completed`` line of one batch."""
        self._write([_firing_event(outcome, timestamp(self._now()), self._store)])

    def checkpointed(self, head: Checkpoint) -> None:
        """Write the ``ledger.checkpoint`` line; `slumberd audit verify --against` reads it."""
        self._write([_checkpoint_event(head, timestamp(self._now()), self._store)])

    def _write(self, events: Iterable[Event]) -> None:
        # Not a list and join: the many small objects cost more than the growing of one.
        lines = bytearray()
        for event in events:
            if _LEVELS[event["level"]] >= self._least:
                lines += self._render(event)
        if lines:
            self._sink.write(lines)


def _checkpoint_event(head: Checkpoint, ts: str, store: str) -> Event:
    return {
        "ts": ts,
        "level": "info",
        "event": CHECKPOINT,
        "store": store,
        "rows": head.rows,
        "head": head.head.hex(),
    }


def _delta_event(record: Record, ts: str, store: str) -> Event:
    return {
        "ts": ts,
        "level": "warning" if record.kind == "quarantine" else "info",
        "event": "delta.applied",
        "store": store,
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


def _firing_event(outcome: Outcome, ts: str, store: str) -> Event:
    if outcome.held is None:
        return _completed_event(outcome, ts, store)
    return _held_event(outcome.held, ts, store)


def _held_event(held: Held, ts: str, store: str) -> Event:
    return {
        "ts": ts,
        "level": "warning",
        "event": "firing.held",
        "store": store,
        "firing_id": held.firing_id,
        "rule_id": held.rule_id,
        "problem": held.problem,
        "remedy": f"slumberd approve {held.firing_id}, or slumberd reject {held.firing_id}",
    }


def _completed_event(outcome: Outcome, ts: str, store: str) -> Event:
    firing = outcome.firing
    return {
        "ts": ts,
        "level": "info",
        "event": "firing.completed",
        "store": store,
        "firing_id": outcome.firing_id,
        "rule_id": firing.rule_id,
        "rule_hash": firing.rule_hash,
        "trigger": firing.trigger,
        "at": timestamp(firing.at),
        "window": {"after": firing.after.seq, "upto": firing.upto.seq},
        "channels": {name: counts._asdict() for name, counts in outcome.channels.items()},
        "seconds": round(outcome.seconds, 6),
    }
