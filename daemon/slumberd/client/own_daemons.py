"""Run the daemons of this process: one for each state directory, for all that open it."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from slumberd.clock import SystemClock
from slumberd.config.rule_loader import RuleSet
from slumberd.config.settings import Settings, load_settings
from slumberd.errors import OtherSettingsError, PermissionDeniedError, SlumberdError, UsageError
from slumberd.observability.line_format import json_line
from slumberd.observability.log_writer import LineStream, open_file
from slumberd.observability.logs import DeltaLines, log_events_into
from slumberd.operations.caller import Caller
from slumberd.operations.handlers import Answer
from slumberd.portal import Portal
from slumberd.service.daemon import first_store_error
from slumberd.service.interfaces import Served
from slumberd.service.new_state_directory import make_state_directory
from slumberd.service.rules import rules_of
from slumberd.service.startup import make_daemon
from slumberd.service.stores import is_divided
from slumberd.service.systemd import Notifier

LOG_FILE = "slumberd.log"
"""The log of a daemon in a program, in its state directory, unless the settings name a file."""

_CONFIGURATION = "slumberd.yaml"

_Key = tuple[int, Path]
"""A process and a directory: a forked process has none of its parent's threads."""


@dataclass
class OwnDaemon:
    """A daemon of this process, in a thread of its own.

    Attributes:
        served: The daemon.
        portal: Runs coroutines in its event loop.
        running: Ends the daemon when it is closed.
        holders: How many have opened its directory, and not closed it.
    """

    served: Served
    portal: Portal
    running: AsyncExitStack
    holders: int = 0

    async def call(self, operation: str, request: dict[str, Any]) -> Answer:
        """Return the answer of an operation; from any event loop."""
        work = partial(self.served.dispatcher.call, operation, request, Caller.here())
        return await self.portal.call_asynchronously(work)


class OwnDaemons:
    """Starts and ends the daemons of this process; from any thread."""

    def __init__(self) -> None:
        self._daemons: dict[_Key, OwnDaemon] = {}
        self._turns: dict[_Key, threading.Lock] = {}

    @asynccontextmanager
    async def open(self, directory: Path) -> AsyncIterator[OwnDaemon]:
        """Yield the daemon of a directory: the one that runs, or a new one.

        The last block to end ends the daemon.

        Raises:
            OtherSettingsError: A daemon of this process has read another configuration there.
            SlumberdError: The daemon cannot start.
        """
        key = _key_of(directory)  # before the program moves to another directory
        taking = asyncio.ensure_future(asyncio.to_thread(self._take, key))
        try:
            daemon = await asyncio.shield(taking)
        except asyncio.CancelledError:
            with suppress(SlumberdError):
                await taking
                await asyncio.to_thread(self._release, key)
            raise
        try:
            yield daemon
        finally:
            await asyncio.shield(asyncio.to_thread(self._release, key))

    def _take(self, key: _Key) -> OwnDaemon:
        _, directory = key
        with self._turns.setdefault(key, threading.Lock()):
            settings, rules = load_directory(directory)
            daemon = self._daemons.get(key)
            if daemon is None:
                daemon = self._daemons[key] = _start(directory, settings, rules)
            else:
                _check_settings(directory, daemon, settings, rules)
            daemon.holders += 1
        return daemon

    def _release(self, key: _Key) -> None:
        with self._turns[key]:
            daemon = self._daemons[key]
            daemon.holders -= 1
            if not daemon.holders:
                del self._daemons[key]
                daemon.portal.close(daemon.running.aclose)


def _key_of(directory: Path) -> _Key:
    return os.getpid(), directory.resolve()


def _check_settings(directory: Path, daemon: OwnDaemon, settings: Settings, rules: RuleSet) -> None:
    """Refuse a configuration or rules other than those that a daemon has read.

    Raises:
        OtherSettingsError: They differ.
    """
    outdated, status = (
        daemon.portal.call(partial(daemon.served.dispatcher.call, name, {}, Caller.here()))
        for name in ("outdated", "status")
    )
    differing = sorted({*outdated["reload"], *outdated["restart"]})
    # A daemon follows published rules by itself.
    if not settings.are_rules_published and status["rules_hash"] != rules.content_hash:
        differing.append("the rules")
    if differing:
        raise OtherSettingsError(str(directory), differing)


def _start(directory: Path, settings: Settings, rules: RuleSet) -> OwnDaemon:
    portal, running = Portal(str(directory)), AsyncExitStack()
    try:
        opening = run_daemon(directory, settings, rules)
        served = portal.call(partial(running.enter_async_context, opening))
    except BaseException:
        portal.close(running.aclose)
        raise
    return OwnDaemon(served, portal, running)


@asynccontextmanager
async def run_daemon(directory: Path, settings: Settings, rules: RuleSet) -> AsyncIterator[Served]:
    """Run a daemon in this event loop while the block runs."""
    await asyncio.to_thread(is_divided, settings)  # asks the database, so that nothing below waits
    log = LineStream(await asyncio.to_thread(_open_log, settings))
    clock, stop = SystemClock(), asyncio.Event()
    ready: asyncio.Future[Served] = asyncio.get_running_loop().create_future()
    daemon = make_daemon(
        settings,
        rules,
        lambda: load_directory(directory),
        clock=clock,
        logs=_delta_lines(log, settings, clock),
        notifier=Notifier(None),
        interfaces=[lambda served: _announce(served, ready)],
        waits=False,
    )
    # The end of the block waits for the task; a group of tasks could not end in another task.
    with log_events_into(log, clock.now):
        task = asyncio.create_task(daemon.run(stop), name="slumberd")  # noqa: TID251
    try:
        waited: list[asyncio.Future[Any]] = [task, ready]
        await asyncio.wait(waited, return_when=asyncio.FIRST_COMPLETED)
        if not ready.done():
            await _finish(task)
        yield ready.result()
    finally:
        stop.set()
        try:
            await _finish(task)
        finally:
            log.close()


def _delta_lines(log: LineStream, settings: Settings, clock: SystemClock) -> DeltaLines:
    """Return what writes the line of each delta into the log."""
    return DeltaLines(
        log,
        level=settings.logging.level,
        now=clock.now,
        render=json_line,
        scope=settings.logging.scope,
    )


@asynccontextmanager
async def _announce(served: Served, ready: asyncio.Future[Served]) -> AsyncIterator[None]:
    ready.set_result(served)
    yield


async def _finish(task: asyncio.Task[None]) -> None:
    """Wait for a daemon to end.

    Raises:
        SlumberdError: Why it ended, if it failed.
    """
    try:
        await task
    except ExceptionGroup as errors:
        raise first_store_error(errors) from errors


def load_directory(directory: Path) -> tuple[Settings, RuleSet]:
    """Return the configuration and the rules of a state directory; make a missing one."""
    file = directory / _CONFIGURATION
    try:
        if not directory.exists() or not any(directory.iterdir()):
            make_state_directory(directory)
    except PermissionError as error:
        raise PermissionDeniedError(str(directory), "use") from error
    except OSError as error:
        problem = f"{error.filename!s:.200}: {error.strerror}"
        raise UsageError(
            f"no state directory can be there: {problem}; name a directory that can be made"
        ) from error
    settings = load_settings(
        None, overrides={}, environ={}, system_file=file, state_dir=directory.absolute()
    )
    return settings, rules_of(settings)


def _open_log(settings: Settings) -> Any:  # noqa: ANN401 # what `open_file` returns
    return open_file(settings.log_path or settings.state_dir / LOG_FILE)


OWN_DAEMONS = OwnDaemons()
"""The daemons of this process. The lock on a directory is the process's, and so is this."""
