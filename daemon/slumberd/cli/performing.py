"""Have something done: by the daemon when one runs, else in this process, under the same lock."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from contextlib import nullcontext
from functools import partial
from typing import Any

from slumberd.cli.configuration import logs
from slumberd.cli.progress import Bar, bar
from slumberd.cli.words import number
from slumberd.clock import SystemClock
from slumberd.config.settings import Settings
from slumberd.consolidation.protocols import DeltaLog, Logs
from slumberd.errors import NotRunningError, StoreError
from slumberd.model.record import Checkpoint, Outcome, Record
from slumberd.model.spelling import Misspelling
from slumberd.service.control_socket import Answer, ask
from slumberd.service.daemon import perform
from slumberd.storage.audit import recovery

LONG = {"backfill", "decide", "fire", "forget", "retry", "undo"}
"""Operations that may take long enough for a bar."""

READING = {"decide", "fire"}
"""Operations that read the episode log from one place to its end."""


def performed(
    settings: Settings, operation: str, *, verbose: bool = False, **request: Any
) -> Answer:
    """Return the answer to a request, whoever does what it asks for.

    On a terminal, a bar shows how far a long operation has come.

    Args:
        settings: The configuration.
        operation: Its name.
        verbose: Whether a terminal gets the log line of each delta, and no bar.
        request: What it takes.
    """
    showing = nullcontext(None) if verbose or operation not in LONG else bar(None)
    with showing as shown:
        if shown is not None:
            shown.at(0, operation)
        try:
            return ask(settings.state_dir, operation, **request)
        except NotRunningError:
            return _performed_here(settings, operation, request, shown, verbose=verbose)


def _performed_here(
    settings: Settings,
    operation: str,
    request: dict[str, Any],
    shown: Bar | None,
    *,
    verbose: bool,
) -> Answer:
    clock = SystemClock()
    quiet = not verbose and settings.log_path is None and sys.stderr.isatty()
    with logs(settings, clock, quiet=quiet) as lines:
        log: Logs = lines
        if shown is not None:
            log = ShownLogs(lines, shown, _last_row(settings) if operation in READING else None)
        return asyncio.run(perform(settings, operation, request, clock=clock, logs=log))


def _last_row(settings: Settings) -> int | None:
    """Return the number of the episode log's last row; None when it cannot be read."""
    try:
        return recovery.look(settings.memory_path, recovery.last_row_in)
    except StoreError:  # the command itself reports it
        return None


class ShownLogs:
    """The way to the log of each fact store, which shows on a bar how far firings have come.

    Args:
        logs: The way to the log.
        bar: Where it is shown.
        last: The number of the episode log's last row; None when that tells nothing.
    """

    def __init__(self, logs: Logs, bar: Bar, last: int | None) -> None:
        self._logs = logs
        self._show = partial(_show, bar, last)

    def of(self, store: str, *, key: bytes = b"") -> DeltaLog:
        """Return the way there for one store; `key` is that of hashed scopes."""
        return _ShownLog(self._logs.of(store, key=key), self)

    def show(self, outcome: Outcome) -> None:
        """Show that a batch is done."""
        self._show(outcome)


def _show(shown: Bar, last: int | None, outcome: Outcome) -> None:
    position = outcome.firing.upto.seq
    if last is None:
        shown.at(0, outcome.firing_id)
    else:
        told = f"{outcome.firing.rule_id}: {number(position)} of {number(last)}"
        shown.at(position, told, total=last)


class _ShownLog:
    """The way to the log of one store, as `ShownLogs` has it."""

    def __init__(self, log: DeltaLog, shown: ShownLogs) -> None:
        self._log = log
        self._shown = shown

    def applied(self, records: Sequence[Record]) -> None:
        """Write the lines of a batch."""
        self._log.applied(records)

    def completed(self, outcome: Outcome) -> None:
        """Write the line of a batch, and show that it is done."""
        self._log.completed(outcome)
        self._shown.show(outcome)

    def checkpointed(self, head: Checkpoint) -> None:
        """Write how far the ledger reaches."""
        self._log.checkpointed(head)

    def misspelled(self, found: Sequence[Misspelling]) -> None:
        """Write the keys that are probably misspelled."""
        self._log.misspelled(found)
