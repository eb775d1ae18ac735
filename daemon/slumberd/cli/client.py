"""Perform an operation through the running daemon, or in this process under the same lock."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from contextlib import nullcontext, suppress
from typing import Any

from slumberd.cli.asking import ask_holder
from slumberd.cli.output import number
from slumberd.cli.setup import is_journal, logs
from slumberd.cli.terminal import Bar, bar
from slumberd.clock import SystemClock
from slumberd.consolidation.protocols import DeltaLog, Logs
from slumberd.daemon.composition import tune_interpreter
from slumberd.daemon.one_operation import run_operation
from slumberd.daemon.stores import inspections_of, settings_of_user
from slumberd.model.episode import Misspelling
from slumberd.model.errors import DatabaseHeldError, NotRunningError, StoreError
from slumberd.model.firing import Outcome, Record, Report
from slumberd.model.record import Checkpoint
from slumberd.operations.handlers import Answer
from slumberd.rules.settings import Settings

LONG_OPERATIONS = {"backfill", "decide", "extract", "fire", "forget", "retry", "undo"}
"""Operations that may take long enough for a progress bar."""

OPERATIONS_TO_THE_END = {"decide", "fire"}
"""Operations that read the episode log from one place to its end."""


def perform_request(
    settings: Settings, operation: str, *, verbose: bool = False, **request: Any
) -> Answer:
    """Perform an operation and return its answer.

    The running daemon performs it; without a daemon, this process does, under the same lock. Of
    several shards, it is performed on that of the user whom the request names, or on that of the
    configuration. On a terminal, a bar shows the progress of a long operation.

    Args:
        verbose: Whether a terminal shows the log line of each delta, and no bar.
        request: The operation's arguments.
    """
    showing = nullcontext(None) if verbose or operation not in LONG_OPERATIONS else bar(None)
    with showing as shown:
        if shown is not None:
            shown.at(0, operation)
        settings = settings_of_user(settings, request.get("user"))
        try:
            return ask_holder(settings, operation, request)
        except NotRunningError:
            try:
                return _perform_here(settings, operation, request, shown, verbose=verbose)
            except DatabaseHeldError:
                # A standby may have taken over in between. Without a daemon the error holds.
                with suppress(NotRunningError):
                    return ask_holder(settings, operation, request)
                raise


def reason_field(reason: str | None) -> dict[str, Any]:
    """Return the field of a request that says why; none without a reason.

    A daemon of an earlier version refuses a field that it does not know, even when it is null.
    """
    return {} if reason is None else {"reason": reason}


def _perform_here(
    settings: Settings,
    operation: str,
    request: dict[str, Any],
    shown: Bar | None,
    *,
    verbose: bool,
) -> Answer:
    clock = SystemClock()
    tune_interpreter()
    quiet = not verbose and settings.log_path is None and not is_journal(sys.stderr)
    with logs(settings, clock, quiet=quiet) as lines:
        log: Logs = lines
        if shown is not None:
            to_the_end = operation in OPERATIONS_TO_THE_END
            log = LogsWithBar(lines, shown, _last_row(settings) if to_the_end else None)
        return asyncio.run(run_operation(settings, operation, request, clock=clock, logs=log))


def _last_row(settings: Settings) -> int | None:
    """Return the number of the episode log's last row; None when it cannot be read."""
    try:
        return inspections_of(settings).episodes.last_log_row()
    except StoreError:  # the command itself reports the error
        return None


class LogsWithBar:
    """Pass log lines on, and show the progress of firings on a bar.

    Args:
        logs: Where the lines go.
        bar: The progress bar.
        last: The number of the episode log's last row; None when the operation does not read
            up to it.
    """

    def __init__(self, logs: Logs, bar: Bar, last: int | None) -> None:
        self._logs = logs
        self._bar = bar
        self._last = last

    def keyed(self, key: bytes) -> DeltaLog:
        """Return the log of deltas that hashes users and agents with a key."""
        return _DeltaLogWithBar(self._logs.keyed(key), self)

    def show(self, outcome: Outcome) -> None:
        """Show that a batch is committed."""
        if self._last is None:
            self._bar.at(0, outcome.firing_id)
            return
        position = outcome.firing.upto.seq
        progress = f"{outcome.firing.rule_id}: {number(position)} of {number(self._last)}"
        self._bar.at(position, progress, total=self._last)


class _DeltaLogWithBar:
    """The log of deltas that `LogsWithBar` returns."""

    def __init__(self, log: DeltaLog, logs: LogsWithBar) -> None:
        self._log = log
        self._logs = logs

    def applied(self, records: Sequence[Record]) -> None:
        """Write the lines of a batch."""
        self._log.applied(records)

    def completed(self, outcome: Outcome) -> None:
        """Write the line of a batch, and show that it is committed."""
        self._log.completed(outcome)
        self._logs.show(outcome)

    def finished(self, report: Report) -> None:
        """Write the line of a whole firing."""
        self._log.finished(report)

    def checkpointed(self, head: Checkpoint) -> None:
        """Write the head of the ledger."""
        self._log.checkpointed(head)

    def misspelled(self, found: Sequence[Misspelling]) -> None:
        """Write the keys that are probably misspelled."""
        self._log.misspelled(found)
