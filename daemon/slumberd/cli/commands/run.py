"""`slumberd run`: the daemon, in the foreground.

End a command that keeps temporary files so that none is left, whoever ends it.
"""

from __future__ import annotations

import asyncio
import faulthandler
import signal
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path

import structlog

from slumberd.cli.context import (
    DaemonLogs,
    loaded,
    settings_of,
    standard_error_logs,
    unhurried_logs,
)
from slumberd.cli.context import logs as file_logs
from slumberd.cli.environment import notify_socket, watchdog_seconds
from slumberd.cli.options import Config, StateDir
from slumberd.clock import Clock, SystemClock
from slumberd.errors import ConfigurationError, SlumberdError
from slumberd.service.daemon import Daemon, run_until
from slumberd.service.systemd import Notifier

SIGNALS = (signal.SIGTERM, signal.SIGINT)

_log = structlog.get_logger("slumberd")


def run(config: Config = None, state_dir: StateDir = None) -> None:
    """Consolidate whatever becomes due, in the foreground, until SIGTERM or SIGINT.

    The signal takes back the batch under way; a second one ends the process at once, which loses
    nothing either. One daemon works on a state directory; another ends with exit code 75.

    `slumberd reload` puts the rules into force that there are now; so does SIGHUP, but it cannot
    tell what came of it: the log does. SIGHUP also opens the log file anew, for who rotates it.
    """
    load = partial(loaded, config, state_dir)
    clock = SystemClock()
    with ExitStack() as stack:
        try:
            settings, rules = load()
            logs = stack.enter_context(unhurried_logs(settings, clock))
        except ConfigurationError as error:
            _log_failed_start(error, config, state_dir, clock)
            raise
        notifier = Notifier(notify_socket(), watchdog_seconds())
        if notifier.watchdog_seconds is not None:
            faulthandler.enable()  # SIGABRT ends what hangs: the journal is to show where
        _run(Daemon(settings, rules, load, clock=clock, logs=logs.lines, notifier=notifier), logs)


def _log_failed_start(
    error: ConfigurationError, config: Path | None, state_dir: Path | None, clock: Clock
) -> None:
    """Log why no daemon starts: to standard error, and to the log file where there is one."""
    if not sys.stderr.isatty():  # a person who watches reads the message itself
        with standard_error_logs(clock):
            _log_failure(error)
    with suppress(ConfigurationError):
        settings = settings_of(config, state_dir)
        if settings.log_path is not None:
            with file_logs(settings, clock):
                _log_failure(error)


def _log_failure(error: Exception) -> None:
    bug = not isinstance(error, SlumberdError)
    _log.error("daemon.failed", error=type(error).__name__, message=str(error), exc_info=bug)


def _run(daemon: Daemon, logs: DaemonLogs) -> None:
    def on_hangup() -> None:
        logs.reopen()
        daemon.reload()

    def heed_signals(stop: asyncio.Event) -> None:
        stop_on_signals(stop)
        asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, on_hangup)

    try:
        run_until(heed_signals, daemon)
    except Exception as error:
        # Whoever reads the log must find why it ends; standard error may lead nowhere.
        _log_failure(error)
        raise


def stop_on_signals(stop: asyncio.Event) -> None:
    """Set `stop` at the first signal that ends a process; leave the next to the system."""
    loop = asyncio.get_running_loop()

    def on_signal() -> None:
        for number in SIGNALS:
            loop.remove_signal_handler(number)
            signal.signal(number, signal.SIG_DFL)
        stop.set()

    for number in SIGNALS:
        loop.add_signal_handler(number, on_signal)


@contextmanager
def tidily_ending() -> Iterator[None]:
    """Let SIGTERM end the task that runs the block as SIGINT does: what is open is closed first.

    SIGINT's own handler is not borrowed: a shell ignores SIGINT for what it runs in the background.

    Raises:
        KeyboardInterrupt: SIGTERM came.
    """
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    told, before = asyncio.Event(), signal.getsignal(signal.SIGTERM)

    def end() -> None:
        told.set()
        if task is not None:
            task.cancel()

    loop.add_signal_handler(signal.SIGTERM, end)
    try:
        yield
    except asyncio.CancelledError:
        if told.is_set():
            raise KeyboardInterrupt from None
        raise
    finally:
        loop.remove_signal_handler(signal.SIGTERM)  # leaves it to the system, whoever had it before
        signal.signal(signal.SIGTERM, before)
