"""`slumberd run`: run the daemon in the foreground; and what commands do on SIGTERM."""

from __future__ import annotations

import asyncio
import faulthandler
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path

import structlog

from slumberd.cli.context import (
    DaemonLogs,
    daemon_logs,
    load_settings_and_rules,
    settings_of,
    standard_error_logs,
)
from slumberd.cli.context import logs as file_logs
from slumberd.cli.environment import notify_socket, watchdog_seconds
from slumberd.cli.interfaces import interfaces_of
from slumberd.cli.options import Config, StateDir
from slumberd.clock import Clock, SystemClock
from slumberd.errors import ConfigurationError, SlumberdError, StoreError
from slumberd.service.daemon import run_until
from slumberd.service.startup import ReloadableDaemon, make_daemon
from slumberd.service.systemd import Notifier

SIGNALS = (signal.SIGTERM, signal.SIGINT)

_log = structlog.get_logger("slumberd")


def run(config: Config = None, state_dir: StateDir = None) -> None:
    """Run the daemon in the foreground until SIGTERM or SIGINT.

    The signal rolls back the batch under way. A second signal ends the process at once; no data is
    lost then either. One daemon runs on a state directory; a second one ends with exit code 75.

    `slumberd reload` loads changed rules. So does SIGHUP, but only the log reports the result.
    SIGHUP also reopens the log file, for log rotation.
    """
    load = partial(load_settings_and_rules, config, state_dir)
    clock = SystemClock()
    with ExitStack() as stack:
        try:
            settings, rules = load()
            logs = stack.enter_context(daemon_logs(settings, clock))
        except (ConfigurationError, StoreError) as error:
            _log_failed_start(error, config, state_dir, clock)
            raise
        notifier = Notifier(notify_socket(), watchdog_seconds())
        if notifier.watchdog_seconds is not None:
            faulthandler.enable()  # systemd ends a hung process by SIGABRT: the journal shows where

        def make() -> ReloadableDaemon:
            """Return the daemon; a database may say which."""
            return make_daemon(
                settings,
                rules,
                load,
                clock=clock,
                logs=logs.lines,
                notifier=notifier,
                interfaces=interfaces_of(settings),
            )

        _run(make, logs)


def _log_failed_start(
    error: SlumberdError, config: Path | None, state_dir: Path | None, clock: Clock
) -> None:
    """Log why the daemon does not start: to standard error, and to the log file if there is one."""
    if not sys.stderr.isatty():  # on a terminal, a person reads the message of the command
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


def _run(make: Callable[[], ReloadableDaemon], logs: DaemonLogs) -> None:
    try:
        daemon = make()

        def on_hangup() -> None:
            """Reopen the log file and reload the rules."""
            logs.reopen()
            daemon.reload()

        def install_handlers(stop: asyncio.Event) -> None:
            """Install the handlers of all signals."""
            stop_on_signals(stop)
            asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, on_hangup)

        run_until(install_handlers, daemon)
    except Exception as error:
        # The log must hold the reason: standard error may be discarded.
        _log_failure(error)
        raise


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
        loop.add_signal_handler(number, on_signal)


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

    loop.add_signal_handler(signal.SIGTERM, cancel)
    try:
        yield
    except asyncio.CancelledError:
        if signalled.is_set():
            raise KeyboardInterrupt from None
        raise
    finally:
        loop.remove_signal_handler(signal.SIGTERM)  # this sets the system's default handler
        signal.signal(signal.SIGTERM, previous)
