"""Prepare what a command needs that fires rules or runs a daemon: logs, interfaces, signals."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import stat
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TextIO

import structlog

from slumberd.cli.context import Users, make_state_dir, settings_of
from slumberd.cli.environment import journal_stream, takes_colors
from slumberd.clock import Clock
from slumberd.daemon.interfaces import Interface
from slumberd.daemon.rules import rules_in, rules_of
from slumberd.logs.journal import JOURNAL_SOCKET, JournalStream, render_entries
from slumberd.logs.lines import LineStream, LineWriter, Render, json_line, open_file
from slumberd.logs.output import (
    DeltaLines,
    Level,
    choose_renderer,
    leads_to_journal,
    prefix_priority,
    queued_writer,
    send,
)
from slumberd.model.errors import ConfigurationError, ExtraMissingError, Mistake
from slumberd.rules.rule_loader import RuleSet
from slumberd.rules.settings import Settings

_log = structlog.get_logger("slumberd")

Sink = LineStream | JournalStream
"""Where the lines of a process go."""

Listening = Callable[[Sequence[socket.socket]], None]
"""Is told the sockets of HTTP, when clients can connect."""


def interfaces_of(settings: Settings, listening: Listening | None = None) -> Sequence[Interface]:
    """Return the interfaces that the configuration enables.

    Args:
        listening: Is told the sockets of HTTP; None tells nobody.

    Raises:
        ExtraMissingError: The extra ``serve`` is needed, and not installed.
    """
    return [_http(settings, listening)] if settings.serve.enabled else []


def _http(settings: Settings, listening: Listening | None) -> Interface:
    try:
        from slumberd.web.console.app import console_route
        from slumberd.web.http.server import serve_http
        from slumberd.web.http.traces import serve_traces
        from slumberd.web.mcp.server import open_mcp
    except ImportError as error:
        raise ExtraMissingError("serve", "HTTP cannot be served") from error
    pages = console_route if settings.serve.console else None
    return partial(
        serve_http, extensions=[open_mcp, serve_traces], pages=pages, listening=listening
    )


def load_settings_and_rules(
    config: Path | None, state_dir: Path | None, *, user: Users = None
) -> tuple[Settings, RuleSet]:
    """Return the settings, as `settings_of` does, and the rules that they name.

    Raises:
        ConfigurationError: With every mistake of both.
    """
    try:
        settings = settings_of(config, state_dir, user=user)
    except ConfigurationError as error:
        raise ConfigurationError([*error.mistakes, *_mistakes_in(error.rules_dir)]) from error
    return settings, rules_of(settings)


def _mistakes_in(rules_dir: str | None) -> list[Mistake]:
    try:
        if rules_dir is not None:
            rules_in(Path(rules_dir), "UTC")
    except ConfigurationError as error:
        return error.mistakes
    return []


@contextmanager
def logs(settings: Settings, clock: Clock, *, quiet: bool = False) -> Iterator[DeltaLines]:
    """Write log lines where the settings say, while the block runs; yield the log of the deltas.

    The lines name the shard that the settings name, if any.

    Args:
        settings: The configuration.
        clock: The time.
        quiet: Whether to write warnings and errors only, and no lines of the deltas.

    Raises:
        ConfigurationError: The file cannot be opened.
    """
    shard = settings.postgres.shard
    named = {} if shard is None else {"shard": shard}
    with _sink(settings) as sink, structlog.contextvars.bound_contextvars(**named):
        logging = settings.logging
        level: Level = "warning" if quiet and logging.level != "error" else logging.level
        lines = send(sink, _render(settings), level, clock.now, logging.scope)
        lines = lines if shard is None else lines.of_shard(shard)
        yield lines.silent() if quiet else lines


@contextmanager
def standard_error_logs(clock: Clock) -> Iterator[None]:
    """Write errors to standard error as JSON, whatever the settings say."""
    with _standard_error() as sink:
        send(sink, _for_journal(json_line), "error", clock.now)
        yield


@contextmanager
def daemon_logs(settings: Settings, clock: Clock) -> Iterator[DaemonLogs]:
    """Write log lines as `logs` does, but never block on a slow reader.

    Raises:
        ConfigurationError: The file cannot be opened.
    """
    render = _render(settings)
    with _sink(settings) as sink, queued_writer(sink, render, clock.now) as line_writer:
        logging = settings.logging
        lines = send(line_writer, render, logging.level, clock.now, logging.scope)
        yield DaemonLogs(lines, line_writer, partial(_reopen, sink, settings.log_path))


@dataclass(frozen=True, slots=True)
class DaemonLogs:
    """The logs of a daemon.

    Attributes:
        lines: The log of the deltas.
        line_writer: The queue before the file, or before standard error.
    """

    lines: DeltaLines
    line_writer: LineWriter
    _reopen: Callable[[], None]

    def reopen(self) -> None:
        """Open the log file anew by its name, without waiting for lines of the old file."""
        self.line_writer.run_between_writes(self._reopen)


def _reopen(sink: Sink, path: Path | None) -> None:
    if path is None or not isinstance(sink, LineStream):
        return
    try:
        sink.replace(open_file(path))
    except ConfigurationError as error:
        _log.error("logs.reopen_failed", message=str(error))


@contextmanager
def _sink(settings: Settings) -> Iterator[Sink]:
    if settings.log_path is None:
        with _standard_error() as stream:
            yield stream
        return
    make_state_dir(settings)
    sink = LineStream(open_file(settings.log_path))
    try:
        yield sink
    finally:
        sink.close()


@contextmanager
def _standard_error() -> Iterator[Sink]:
    stream = LineStream(sys.stderr.buffer)
    if not _takes_entries(sys.stderr):
        yield stream
        return
    journal = JournalStream(stream)
    try:
        yield journal
    finally:
        journal.close()


def _render(settings: Settings) -> Render:
    """Return the function that renders events in the configured format."""
    style = settings.logging.format
    if settings.log_path is not None:
        return choose_renderer(style, terminal=False)
    render = choose_renderer(style, terminal=sys.stderr.isatty(), colors=takes_colors())
    return _for_journal(render)


def _for_journal(render: Render) -> Render:
    if _takes_entries(sys.stderr):
        return render_entries(render)
    return prefix_priority(render) if is_journal(sys.stderr) else render


def _takes_entries(stream: TextIO) -> bool:
    """Return whether a stream leads to a journal on this machine, which takes entries as well."""
    return (
        is_journal(stream)
        and stat.S_ISSOCK(os.fstat(stream.fileno()).st_mode)
        and JOURNAL_SOCKET.exists()
    )


def is_journal(stream: TextIO) -> bool:
    """Return whether a stream leads to the journal of systemd."""
    try:
        return leads_to_journal(stream.fileno(), journal_stream())
    except (OSError, ValueError):  # a stream without a file, as in tests
        return False


SIGNALS = (signal.SIGTERM, signal.SIGINT)


def stop_on_signals(stop: asyncio.Event) -> None:
    """Set `stop` at the first SIGTERM or SIGINT; the next one ends the process."""
    loop = asyncio.get_running_loop()

    def on_signal() -> None:
        """Restore the default handlers, and request the stop."""
        for number in SIGNALS:
            loop.remove_signal_handler(number)
            signal.signal(number, signal.SIG_DFL)
        stop.set()

    for number in SIGNALS:
        call_on_signal(number, on_signal)


def call_on_signal(number: int, callback: Callable[[], object]) -> None:
    """Let the event loop call a function on a signal.

    The program that started this process may have ignored the signal, or blocked it.
    """
    asyncio.get_running_loop().add_signal_handler(number, callback)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, (number,))


@contextmanager
def clean_up_on_sigterm() -> Iterator[None]:
    """Cancel the task of the block on SIGTERM, so that its temporary files are removed.

    The handler of SIGINT does not serve: a shell ignores SIGINT for commands in the background.

    Raises:
        KeyboardInterrupt: SIGTERM came.
    """
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    signalled, previous = asyncio.Event(), signal.getsignal(signal.SIGTERM)

    def cancel() -> None:
        """Cancel the task of the block."""
        signalled.set()
        if task is not None:
            task.cancel()

    call_on_signal(signal.SIGTERM, cancel)
    try:
        yield
    except asyncio.CancelledError:
        if signalled.is_set():
            raise KeyboardInterrupt from None
        raise
    finally:
        loop.remove_signal_handler(signal.SIGTERM)  # this sets the system's default handler
        signal.signal(signal.SIGTERM, previous)
