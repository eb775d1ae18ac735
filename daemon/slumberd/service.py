"""The composition root: which implementations, joined how, and the daemon's life."""

from __future__ import annotations

import asyncio
import gc
import os
import sys
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Sequence
from contextlib import asynccontextmanager
from datetime import datetime
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import structlog

from slumberd import cron
from slumberd.consolidator import Consolidator
from slumberd.control import Answer, Peer, listen
from slumberd.core.brake import Limits
from slumberd.core.firing import Trigger
from slumberd.core.rule import ConsolidationRule
from slumberd.credentials import read_key
from slumberd.errors import NoInputError, StoreError
from slumberd.lock import StateLock
from slumberd.noticing import keep_noticing
from slumberd.notify import Notifier
from slumberd.operations import Operations, Stores
from slumberd.ports import Clock, DeltaLog
from slumberd.rulebook import RuleSet, load_rules
from slumberd.scheduler import Alarm, Scheduler
from slumberd.settings import Settings
from slumberd.stores.facts import SQLiteFactStore
from slumberd.stores.filters import check_filter
from slumberd.stores.memory import SQLiteMemoryStore

SWITCH_SECONDS = 0.001
"""How long a batch's thread may keep the event loop from running."""

COLLECT_EVERY = (100_000, 50, 100)
"""Thresholds of the collector: with Python's own it walks the many live objects of a batch again
and again, a tenth of the time of a backlog."""

_log = structlog.get_logger("slumberd")


def rules_of(settings: Settings) -> RuleSet:
    """Load the rules that a configuration names.

    Raises:
        ConfigurationError: With every mistake of every rule file.
    """
    return load_rules(
        settings.rules_dir,
        check_filter=check_filter,
        check_cron=cron.check,
        timezone=settings.timezone,
    )


def key_of(settings: Settings) -> bytes | None:
    """Return the key that a configuration gives the ledger, if any.

    Raises:
        ConfigurationError: Its file cannot be read, or others can read it.
    """
    file = settings.facts.key_file
    return None if file is None else read_key(file, credentials=settings.credentials_dir)


def stores_of(
    settings: Settings, clock: Clock, *, facts_path: Path | None = None, key: bytes | None = None
) -> Stores:
    """Return the stores of a configuration; nothing is opened yet.

    Args:
        settings: The configuration.
        clock: The time.
        facts_path: In place of the configured one.
        key: Of the ledger; whoever only looks at rows and facts needs none.
    """
    return Stores(
        SQLiteMemoryStore(
            settings.memory_path,
            synchronous=settings.memory.synchronous,
            scope_mismatch=settings.memory.scope_mismatch,
            clock=clock,
        ),
        SQLiteFactStore(
            facts_path or settings.facts_path,
            lineage_depth=settings.facts.lineage_depth,
            clock=clock,
            key=key,
        ),
    )


@asynccontextmanager
async def opened(
    settings: Settings, clock: Clock, *, facts_path: Path | None = None
) -> AsyncIterator[Stores]:
    """Open the stores of a configuration, created if need be, and close them after.

    Raises:
        ConfigurationError: The key of the ledger cannot be read.
        LedgerKeyError: It is not the ledger's.
    """
    stores = stores_of(settings, clock, facts_path=facts_path, key=key_of(settings))
    try:
        await stores.memory.bootstrap()
        await stores.facts.bootstrap()
        yield stores
    finally:
        await stores.memory.close()
        await stores.facts.close()


@asynccontextmanager
async def writing(settings: Settings, clock: Clock) -> AsyncIterator[Stores]:
    """Open the stores as their only slumberd: the directory is locked, the epoch is ours.

    Raises:
        StateDirectoryLockedError: A daemon runs on the directory.
    """
    gc.freeze()
    gc.set_threshold(*COLLECT_EVERY)
    with StateLock(settings.state_dir):
        async with opened(settings, clock) as stores:
            await stores.facts.take_over()
            await stores.facts.notice_external()
            yield stores


@asynccontextmanager
async def rehearsing(settings: Settings, clock: Clock) -> AsyncIterator[Stores]:
    """Open the stores as their only slumberd, for what writes nothing.

    Raises:
        NoInputError: There are no episodes yet.
        StateDirectoryLockedError: A daemon runs on the state directory.
    """
    if not settings.memory_path.exists():
        remedy = "there are no episodes yet; `slumberd import` puts some"
        raise NoInputError(settings.memory_path, remedy)
    with StateLock(settings.state_dir), TemporaryDirectory(prefix="slumberd-") as spare:
        facts_path = settings.facts_path
        path = facts_path if facts_path.exists() else Path(spare) / facts_path.name
        async with opened(settings, clock, facts_path=path) as stores:
            yield stores


def consolidator_of(
    settings: Settings, stores: Stores, log: DeltaLog, clock: Clock
) -> Consolidator:
    """Join the stores into what consolidates one into the other."""
    limits = Limits(settings.limits.max_deletes, settings.limits.max_delete_fraction)
    return Consolidator(
        stores.memory, stores.facts, log, clock, batch=settings.facts.batch, limits=limits
    )


class Daemon:
    """slumberd, from READY to the end of the last firing.

    Args:
        settings: The configuration.
        rules: What it fires.
        clock: The time.
        log: Where deltas leave their lines.
        notifier: Tells the service manager.
    """

    def __init__(
        self,
        settings: Settings,
        rules: RuleSet,
        *,
        clock: Clock,
        log: DeltaLog,
        notifier: Notifier,
    ) -> None:
        self._settings = settings
        self._rules = rules
        self._clock = clock
        self._log = log
        self._notifier = notifier
        self._stop = asyncio.Event()
        self._started_at = clock.now()

    async def run(self, stop: asyncio.Event) -> None:
        """Consolidate whatever becomes due, until `stop` is set and the last batch is done.

        Raises:
            StateDirectoryLockedError: Another daemon runs on the state directory.
            StoreError: A store cannot be opened, or another daemon has taken over.
        """
        self._stop = stop
        sys.setswitchinterval(SWITCH_SECONDS)
        async with writing(self._settings, self._clock) as stores:
            consolidator = consolidator_of(self._settings, stores, self._log, self._clock)
            await self._recover(stores, consolidator)
            await consolidator.checkpoint()
            await self._serve(stores, consolidator)
            await consolidator.checkpoint()
        _log.info("daemon.stopped", uptime_seconds=self._uptime())

    async def _recover(self, stores: Stores, consolidator: Consolidator) -> None:
        repeated = await consolidator.tell_again()
        if repeated:
            _log.info("logs.repeated", rows=repeated)
        await apply_channels(stores, self._rules, consolidator, self._clock.now())

    async def _serve(self, stores: Stores, consolidator: Consolidator) -> None:
        operations = Operations(
            stores, lambda: self._rules, consolidator, self._clock, stop=self._stop
        )
        answers = {**operations.by_name(), "status": self._on_status}
        scheduler = Scheduler(
            clock=self._clock,
            episodes=stores.memory,
            ledger=stores.facts,
            fire=partial(self._fire, consolidator, operations.turn),
        )
        operations.decided = scheduler.nudge
        notice = partial(asyncio.get_running_loop().call_soon_threadsafe, scheduler.notice)
        poll_seconds = self._settings.memory.poll_seconds
        async with (
            Alarm(self._clock, scheduler.nudge) as alarm,
            listen(self._settings.state_dir, answers),
        ):
            with stores.memory.watch(notice, poll_seconds=poll_seconds):
                alarm.arm(self._rules.rules, self._settings.timezone)
                scheduler.replace(self._rules.rules, self._settings.timezone)
                self._say_ready()
                noticing = keep_noticing(operations.notice, self._stop)
                work = alarm.heartbeat(self._stop), scheduler.run(self._stop), noticing
                await self._until_stopped(work)

    def _say_ready(self) -> None:
        self._notifier.ready()
        self._notifier.status(f"{len(self._rules.rules)} rules")
        _log.info(
            "daemon.ready",
            pid=os.getpid(),
            state_dir=str(self._settings.state_dir),
            rules=len(self._rules.rules),
            rules_hash=self._rules.content_hash,
        )

    async def _until_stopped(self, work: Iterable[Coroutine[None, None, None]]) -> None:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(one) for one in work]
            group.create_task(self._stop_in_time(tasks))

    async def _stop_in_time(self, tasks: Sequence[asyncio.Task[None]]) -> None:
        await self._stop.wait()
        self._notifier.stopping()
        _log.info("daemon.stopping", deadline_seconds=self._settings.stop_seconds)
        _, late = await asyncio.wait(tasks, timeout=self._settings.stop_seconds)
        for task in late:
            task.cancel()

    async def _fire(
        self,
        consolidator: Consolidator,
        turn: asyncio.Lock,
        rule: ConsolidationRule,
        trigger: Trigger,
        at: datetime,
    ) -> None:
        async with turn:
            await consolidator.fire(rule, trigger, at, stop=self._stop)

    async def _on_status(self, _: dict[str, Any], __: Peer) -> Answer:
        return {"pid": os.getpid(), "uptime_seconds": self._uptime()}

    def _uptime(self) -> float:
        return round((self._clock.now() - self._started_at).total_seconds(), 3)


async def apply_channels(
    stores: Stores, rules: RuleSet, consolidator: Consolidator, at: datetime
) -> None:
    """Settle again what a change of multi-valued predicates, or of lineages' depth, touches."""
    redrawn = await stores.facts.redraw(at=at)
    if redrawn:
        _log.info("lineage.redrawn", keys=redrawn)
    outcome = await stores.facts.set_channels(rules.multi_valued, at=at)
    if outcome is not None:
        _log.info("channels.changed", firing_id=outcome.firing_id, rows=len(outcome.records))
    await consolidator.tell_again()


async def perform(
    settings: Settings,
    operation: str,
    request: dict[str, Any],
    *,
    clock: Clock,
    log: DeltaLog,
) -> Answer:
    """Do in this process what a running daemon would be asked for, under the daemon's own lock.

    Args:
        settings: The configuration.
        operation: Its name.
        request: What it takes; with ``dry_run`` nothing is written.
        clock: The time.
        log: Where deltas leave their lines.

    Raises:
        StateDirectoryLockedError: A daemon runs on the state directory.
    """
    rules = rules_of(settings)
    dry_run = bool(request.get("dry_run"))
    async with rehearsing(settings, clock) if dry_run else writing(settings, clock) as stores:
        consolidator = consolidator_of(settings, stores, log, clock)
        if not dry_run:
            await consolidator.tell_again()
            await apply_channels(stores, rules, consolidator, clock.now())
        operations = Operations(stores, lambda: rules, consolidator, clock)
        answer = await operations.by_name()[operation](request, Peer.here())
        if not dry_run:
            await consolidator.checkpoint()
        return answer


def run_until(signals: Callable[[asyncio.Event], None], daemon: Daemon) -> None:
    """Run a daemon in a fresh event loop; `signals` wires what stops it.

    Raises:
        StoreError: As `Daemon.run`.
    """

    async def main() -> None:
        stop = asyncio.Event()
        signals(stop)
        await daemon.run(stop)

    try:
        asyncio.run(main())
    except ExceptionGroup as errors:
        raise _first_of_ours(errors) from errors


def _first_of_ours(errors: ExceptionGroup[Exception]) -> Exception:
    ours, _ = errors.split(StoreError)
    found: Exception = ours or errors
    while isinstance(found, ExceptionGroup):
        found = found.exceptions[0]
    return found
