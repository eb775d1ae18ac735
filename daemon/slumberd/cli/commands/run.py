"""`slumberd run`: run the daemon in the foreground."""

from __future__ import annotations

import asyncio
import faulthandler
import signal
import sys
from collections.abc import Callable
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path

import structlog
import typer

from slumberd.cli.context import settings_of
from slumberd.cli.environment import notify_socket, watchdog_seconds
from slumberd.cli.options import Config, StateDir
from slumberd.cli.setup import (
    DaemonLogs,
    call_on_signal,
    daemon_logs,
    interfaces_of,
    is_journal,
    load_settings_and_rules,
    standard_error_logs,
    stop_on_signals,
)
from slumberd.cli.setup import logs as file_logs
from slumberd.clock import Clock, SystemClock
from slumberd.daemon.daemon import run_until
from slumberd.daemon.startup import ReloadableDaemon, make_daemon
from slumberd.daemon.systemd import Notifier
from slumberd.model.errors import ConfigurationError, SlumberdError, StoreError

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
            if is_journal(sys.stderr):  # which has the message by now
                raise typer.Exit(error.exit_code) from error
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
            call_on_signal(signal.SIGHUP, on_hangup)

        run_until(install_handlers, daemon)
    except Exception as error:
        # The log must hold the reason: standard error may be discarded.
        _log_failure(error)
        raise
