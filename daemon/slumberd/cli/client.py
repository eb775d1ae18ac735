"""Have something done: by the daemon when one runs, else in this process, under the same lock.

What the running daemon says of itself, without waiting for one that hangs.

Open what is there for reading: a command that only looks creates nothing and changes nothing.
"""

from __future__ import annotations

import asyncio
import gc
import sys
import threading
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any

from slumberd.cli.context import logs
from slumberd.cli.output import Bar, bar
from slumberd.cli.wording import number
from slumberd.clock import SystemClock
from slumberd.config.settings import Settings
from slumberd.consolidation.protocols import DeltaLog, Logs
from slumberd.errors import NoInputError, NotRunningError, SchemaError, SlumberdError, StoreError
from slumberd.model.finding import Finding
from slumberd.model.record import Checkpoint, Outcome, Record
from slumberd.model.spelling import Misspelling
from slumberd.service.composition import facts_of, key_of, memory_of
from slumberd.service.control_socket import Answer, ask
from slumberd.service.daemon import perform
from slumberd.storage.audit import offline_status
from slumberd.storage.audit.offline_status import logs_episodes
from slumberd.storage.episodes.store import SQLiteMemoryStore
from slumberd.storage.facts.store import SQLiteFactStore
from slumberd.storage.ledger import schema
from slumberd.storage.sqlite import recovery
from slumberd.storage.sqlite.recovery import look

LONG = {"backfill", "decide", "fire", "forget", "retry", "undo"}
"""Operations that may take long enough for a bar."""

READING = {"decide", "fire"}
"""Operations that read the episode log from one place to its end."""


def perform_request(
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
            return _perform_here(settings, operation, request, shown, verbose=verbose)


def _perform_here(
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
        return recovery.look(settings.memory_path, offline_status.last_row_in)
    except StoreError:  # the command itself reports it
        return None


class ShownLogs:
    """The way to the log, which shows on a bar how far firings have come.

    Args:
        logs: The way to the log.
        bar: Where it is shown.
        last: The number of the episode log's last row; None when that tells nothing.
    """

    def __init__(self, logs: Logs, bar: Bar, last: int | None) -> None:
        self._logs = logs
        self._show = partial(_show, bar, last)

    def keyed(self, key: bytes) -> DeltaLog:
        """Return the log of deltas that hashes users and agents with a key."""
        return _ShownLog(self._logs.keyed(key), self)

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
    """The log of deltas that `ShownLogs` returns."""

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


PATIENCE_SECONDS = 5.0


def asked(
    directory: Path, operation: str = "status", *, seconds: float = PATIENCE_SECONDS
) -> tuple[Any, list[Finding]]:
    """Return what the daemon answers, None when none does; and what is wrong with it.

    Args:
        directory: The state directory that it runs on.
        operation: What is asked, by name.
        seconds: How long it may take to answer.
    """
    answers: list[dict[str, Any]] = []
    problems: list[str] = []

    def work() -> None:
        try:
            answers.append(ask(directory, operation))
        except NotRunningError:
            problems.append("")
        except (SlumberdError, OSError, ValueError) as error:
            problems.append(str(error))

    asking = threading.Thread(target=work, daemon=True)
    asking.start()
    asking.join(seconds)
    if answers:
        return answers[0], []
    problem = problems[0] if problems else f"does not answer within {seconds:g} s"
    remedy = "`systemctl restart slumberd`; its log says what it was at"
    return None, [Finding("daemon.silent", "daemon", problem, remedy)] if problem else []


@asynccontextmanager
async def auditing(settings: Settings) -> AsyncIterator[SQLiteFactStore]:
    """Open the facts with the key of their ledger, for passes over all of it.

    Raises:
        ConfigurationError: The key cannot be read.
        NoInputError: There is no such database yet.
    """
    # What is held is let go of page by page, and holds nothing of itself: there is nothing to find.
    collected = gc.isenabled()
    gc.disable()
    try:
        async with _there(settings, key=key_of(settings)) as facts:
            yield facts
    finally:
        if collected:
            gc.enable()


@asynccontextmanager
async def reading_facts(settings: Settings) -> AsyncIterator[SQLiteFactStore]:
    """Open the facts for reading.

    Raises:
        NoInputError: There is no such database yet.
    """
    async with _there(settings) as facts:
        yield facts


@asynccontextmanager
async def _there(settings: Settings, *, key: bytes | None = None) -> AsyncIterator[SQLiteFactStore]:
    path = settings.facts_path
    if not path.exists():
        remedy = "no rule has fired yet; `slumberd run` or `slumberd fire --all` does it"
        raise NoInputError(path, remedy)
    look(path, schema.check_version)
    async with facts_of(settings, SystemClock(), path, key=key, traceless=True) as facts:
        yield facts


@asynccontextmanager
async def reading_facts_or_none(settings: Settings) -> AsyncIterator[SQLiteFactStore | None]:
    """Open the facts for reading; None when no slumberd has made the database yet."""
    path = settings.facts_path
    if not has_ledger(path):
        yield None
        return
    async with facts_of(settings, SystemClock(), path, traceless=True) as facts:
        yield facts


@asynccontextmanager
async def reading_memory(settings: Settings) -> AsyncIterator[SQLiteMemoryStore]:
    """Open the episodes that are there.

    Raises:
        NoInputError: There is no database of episodes yet.
        SchemaError: No slumberd has been here to index it.
    """
    if not settings.memory_path.exists():
        remedy = "there are no episodes yet; `slumberd import` puts some"
        raise NoInputError(settings.memory_path, remedy)
    if not has_episode_log(settings.memory_path):
        problem = "has no episode log yet; `slumberd run` or `slumberd fire --all` installs it"
        raise SchemaError(settings.memory_path, problem)
    memory = memory_of(settings, SystemClock(), traceless=True)
    try:
        yield memory
    finally:
        await memory.close()


def has_episode_log(path: Path) -> bool:
    """Say whether episodes can be read without installing anything."""
    return path.exists() and look(path, logs_episodes)


def has_ledger(path: Path) -> bool:
    """Say whether a database of facts is there and ours."""
    return path.exists() and look(path, schema.has_ledger)
