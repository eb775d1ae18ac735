"""Send the lines of structlog, of logging and of the ledger to one stream."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from copy import copy
from datetime import datetime
from functools import lru_cache, partial
from typing import Any, BinaryIO, Literal

import structlog

from slumberd.logs.journal import PRIORITIES
from slumberd.logs.lines import (
    CHECKPOINT,
    Event,
    LineOutput,
    LineStream,
    LineWriter,
    Render,
    WriteRequest,
    console_line,
    hash_name,
    json_line,
    timestamp,
)
from slumberd.model.episode import Misspelling
from slumberd.model.firing import Counts, HeldBatch, Outcome, Record, Report
from slumberd.model.record import Checkpoint

Format = Literal["auto", "json", "console"]
Level = Literal["debug", "info", "warning", "error"]
ScopeForm = Literal["full", "hashed", "none"]
"""How ``delta.applied`` lines name user and agent."""
Now = Callable[[], datetime]

_LEVELS = {"debug": 10, "info": 20, "warning": 30, "error": 40}


def configure(
    style: Format, level: Level, stream: BinaryIO, *, terminal: bool, now: Now, colors: bool = True
) -> DeltaLines:
    """Send all log lines of structlog and logging to a stream; return the log of deltas there.

    Args:
        style: ``auto`` is ``console`` on a terminal and ``json`` elsewhere.
        level: The lowest level that is written; for libraries it is at least warning.
        stream: Belongs to the caller, who may close it when nothing logs any more.
        terminal: Whether `stream` is a terminal.
        colors: Whether that terminal shows colours.
    """
    return send(
        LineStream(stream), choose_renderer(style, terminal=terminal, colors=colors), level, now
    )


def choose_renderer(style: Format, *, terminal: bool, colors: bool = True) -> Render:
    """Return the function that renders events as lines; see `configure`."""
    console = style == "console" or (style == "auto" and terminal)
    return partial(console_line, colors=terminal and colors) if console else json_line


def leads_to_journal(descriptor: int, stream: str) -> bool:
    """Return whether a file is the file that JOURNAL_STREAM names, and not its replacement."""
    status = os.fstat(descriptor)
    return stream == f"{status.st_dev}:{status.st_ino}"


def prefix_priority(render: Render) -> Render:
    """Return a function that begins each line with its priority, which the journal removes."""

    def render_with_priority(event: Event) -> bytes:
        """Render an event, with the priority at the start of each line."""
        prefix = b"<%b>" % PRIORITIES[event["level"]]
        return b"".join(prefix + line for line in render(event).splitlines(keepends=True))

    return render_with_priority


def send(
    out: LineOutput, render: Render, level: Level, now: Now, scope: ScopeForm = "full"
) -> DeltaLines:
    """Send all log lines to a writer; return the log of deltas there. See `configure`.

    Args:
        out: Writes the lines.
        render: Renders events as lines.
        level: The lowest level that is written.
        scope: How ``delta.applied`` lines name user and agent.
    """
    _configure_structlog(out, level=level, now=now, render=render)
    _configure_logging(level)
    return DeltaLines(out, level=level, now=now, render=render, scope=scope)


@contextmanager
def queued_writer(sink: LineOutput, render: Render, now: Now) -> Iterator[LineWriter]:
    """Yield a queue before a sink, so that a slow reader of the sink blocks no caller."""

    def render_dropped(lines: int) -> bytes:
        """Render the event that reports dropped lines."""
        event = {"ts": timestamp(now()), "level": "warning", "event": "logs.dropped"}
        return render({**event, "lines": lines})

    line_writer = LineWriter(partial(sink.write, must=True), render_dropped)
    try:
        yield line_writer
    finally:
        line_writer.close()


def _configure_structlog(out: LineOutput, *, level: Level, now: Now, render: Render) -> None:
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.format_exc_info,
            partial(_render_event, now=now, render=render),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(_LEVELS[level]),
        logger_factory=lambda *_: _EventLogger(out),
        # After a reload, a logger must not keep its old configuration.
        cache_logger_on_first_use=False,
    )


def _render_event(
    _logger: object, method: str, event: MutableMapping[str, Any], *, now: Now, render: Render
) -> bytes:
    level = "error" if method == "critical" else method
    name = event.pop("event", "")
    return render({"ts": timestamp(now()), "level": level, "event": name, **event})


class _EventLogger:
    """Writes the lines that structlog renders."""

    def __init__(self, out: LineOutput) -> None:
        self._out = out

    def msg(self, line: bytes) -> None:
        """Write a line; a line that cannot be written is lost."""
        self._out.write(line)

    debug = info = warning = error = critical = msg


def _configure_logging(level: Level) -> None:
    # Not below warning: debug lines of a library can hold what it is given, so content.
    logging.basicConfig(
        handlers=[_Bridge()], level=max(_LEVELS[level], logging.WARNING), force=True
    )
    logging.captureWarnings(capture=True)


class _Bridge(logging.Handler):
    """Turns log records of libraries into events."""

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


_OWN_LOG: ContextVar[LineStream | None] = ContextVar("slumberd_own_log", default=None)


class _OwnLogs:
    """Passes each line to the log of the daemon whose task or thread writes it."""

    dropped = 0

    def write(self, lines: bytes, *, must: bool = False) -> bool:
        """Write lines; outside of a daemon there is no log for them."""
        out = _OWN_LOG.get()
        return out is not None and out.write(lines, must=must)

    def write_and_wait(self, lines: bytes) -> WriteRequest:
        """Write lines, and wait."""
        self.write(lines)
        return WriteRequest(lambda: None, done=True)


@contextmanager
def log_events_into(out: LineStream, now: Now) -> Iterator[None]:
    """Write the events of the tasks that the block starts to a log of their own.

    A program that has configured structlog gets the events itself.
    """
    if not structlog.is_configured():  # its default prints to standard output
        _configure_structlog(_OwnLogs(), level="info", now=now, render=json_line)
    token = _OWN_LOG.set(out)
    try:
        yield
    finally:
        _OWN_LOG.reset(token)


class DeltaLines:
    """Writes a line for each claim's row and each firing; implements ``DeltaLog``.

    These lines must not be lost. OSError means that the lines of the rows are not written.
    TimeoutError means that the reader of the log is stuck: the lines wait, and the caller gives
    the same rows again later. Each line is still written once.
    """

    def __init__(
        self,
        sink: LineOutput,
        *,
        level: Level,
        now: Now,
        render: Render,
        scope: ScopeForm = "full",
    ) -> None:
        self._scope: ScopeForm = scope
        self._named = _naming(scope, b"")
        self._added: Event = {}
        self._sink = sink
        self._level: Level = level
        self._least = _LEVELS[level]
        self._now = now
        self._render = render
        self._pending: tuple[WriteRequest, int] | None = None

    @property
    def dropped(self) -> int:
        """How many lines of other events were dropped because the buffer was full."""
        return self._sink.dropped

    def keyed(self, key: bytes) -> DeltaLines:
        """Return a log of deltas at the same place that hashes users and agents with a key.

        Args:
            key: The key of the hashes; empty when lines have no hashes.
        """
        keyed = self._copy()
        keyed._named = _naming(self._scope, key)
        return keyed

    def of_shard(self, shard: int) -> DeltaLines:
        """Return a log of deltas at the same place whose lines name a shard."""
        named = self._copy()
        named._added = {"shard": shard}
        return named

    def _copy(self) -> DeltaLines:
        copied = copy(self)
        copied._pending = None  # those lines are the other log's
        return copied

    def silent(self) -> DeltaLines:
        """Return a log of deltas that writes no lines."""
        return DeltaLines(self._sink, level="error", now=self._now, render=self._render)

    def applied(self, records: Sequence[Record]) -> None:
        """Write the ``delta.applied`` lines of a batch at once, and none for firings."""
        written = self._finish_pending()
        ts = timestamp(self._now())
        claims = (row for row in records if row.kind != "firing" and row.seq > written)
        events = (_delta_event(record, ts, self._named) for record in claims)
        lines = self._lines(events)
        if lines:
            self._pending = self._sink.write_and_wait(lines), records[-1].seq
            self._finish_pending()

    def _finish_pending(self) -> int:
        """Return the last row of the lines that were late and are written now; -1 without any."""
        if self._pending is None:
            return -1
        request, seq = self._pending
        if not request.done:
            raise TimeoutError("the reader of the log is stuck; the lines wait for it")
        self._pending = None
        if request.error is not None:
            raise request.error
        return seq

    def completed(self, outcome: Outcome) -> None:
        """Write the ``firing.completed`` line of one batch."""
        self._write(_firing_event(outcome, timestamp(self._now())))

    def finished(self, report: Report) -> None:
        """Write the ``firing.finished`` line of a firing."""
        self._write(_finished_event(report, timestamp(self._now())))

    def misspelled(self, found: Sequence[Misspelling]) -> None:
        """Write a ``metadata.misspelled`` line for each key."""
        ts = timestamp(self._now())
        for misspelling in found:
            self._write(_misspelled_event(misspelling, ts))

    def checkpointed(self, head: Checkpoint) -> None:
        """Write the ``ledger.checkpoint`` line, which ``slumberd audit verify --against`` reads."""
        self._write(_checkpoint_event(head, timestamp(self._now())))

    def _write(self, event: Event) -> None:
        if lines := self._lines([event]):
            self._sink.write(lines, must=True)

    def _lines(self, events: Iterable[Event]) -> bytes:
        # Not a list and join: many small objects cost more than one that grows.
        lines = bytearray()
        added = self._added
        for event in events:
            if _LEVELS[event["level"]] >= self._least:
                lines += self._render({**event, **added} if added else event)
        return bytes(lines)


def _checkpoint_event(head: Checkpoint, ts: str) -> Event:
    return {
        "ts": ts,
        "level": "info",
        "event": CHECKPOINT,
        "rows": head.rows,
        "head": head.head.hex(),
    }


Naming = Callable[[str], str | None]
"""Returns the form in which a line names a user or an agent."""


def _naming(scope: ScopeForm, key: bytes) -> Naming:
    match scope:
        case "full":
            return str
        case "none":
            return lambda _: None
        case "hashed":
            return lru_cache(maxsize=4_096)(partial(hash_name, key))


# The rows of a batch have one instant.
_promoted_at = lru_cache(maxsize=64)(timestamp)


def _misspelled_event(found: Misspelling, ts: str) -> Event:
    return {"ts": ts, "level": "warning", "event": "metadata.misspelled", **found._asdict()}


def _delta_event(record: Record, ts: str, named: Naming) -> Event:
    return {
        "ts": ts,
        "level": "warning" if record.kind == "quarantine" else "info",
        "event": "delta.applied",
        "seq": record.seq,
        "firing_id": record.firing_id,
        "rule_id": record.rule_id,
        "kind": record.kind,
        # The row has the id of what deletes; a monitor asks for what is gone.
        "fact_id": record.replaces[0] if _deletes(record) else record.fact_id,
        "replaces": record.replaces,
        "source_episode_ids": record.source_episode_ids,
        "reason": record.reason,
        "confidence": record.confidence,
        "user": named(record.user),
        "agent": named(record.agent),
        "promotion_ts": _promoted_at(record.at),
    }


def _deletes(record: Record) -> bool:
    return record.kind == "delete" and bool(record.replaces)


def _firing_event(outcome: Outcome, ts: str) -> Event:
    if outcome.held is None:
        return _completed_event(outcome, ts)
    return _held_event(outcome.held, ts)


def _held_event(held: HeldBatch, ts: str) -> Event:
    return {
        "ts": ts,
        "level": "warning",
        "event": "firing.held",
        "firing_id": held.firing_id,
        "rule_id": held.rule_id,
        "problem": held.problem,
        "remedy": f"slumberd approve {held.firing_id}, or slumberd reject {held.firing_id}",
    }


def _finished_event(report: Report, ts: str) -> Event:
    return {
        "ts": ts,
        "level": "info",
        "event": "firing.finished",
        "rule_id": report.rule_id,
        "run_id": report.run,
        "batches": len(report.firing_ids),
        "channels": _counts(report.channels),
        "purged": len(report.purged),
    }


def _counts(channels: Mapping[str, Counts]) -> dict[str, dict[str, int]]:
    return {name: counts._asdict() for name, counts in channels.items()}


def _completed_event(outcome: Outcome, ts: str) -> Event:
    firing = outcome.firing
    return {
        "ts": ts,
        "level": "info",
        "event": "firing.completed",
        "firing_id": outcome.firing_id,
        "run_id": firing.run,
        "rule_id": firing.rule_id,
        "rule_hash": firing.rule_hash,
        "trigger": firing.trigger,
        "at": timestamp(firing.at),
        **firing.timing._asdict(),
        "window": {"after": firing.after.seq, "upto": firing.upto.seq},
        "channels": _counts(outcome.channels),
        "seconds": round(outcome.seconds, 6),
    }
