"""The composition root: which implementations, joined how, and the daemon's life."""

from __future__ import annotations

import asyncio
import gc
import os
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any

import structlog

from slumberd import cron
from slumberd.consolidator import Consolidator, Report
from slumberd.control import Answer, Operation, listen
from slumberd.core.firing import Trigger
from slumberd.core.rule import ConsolidationRule
from slumberd.errors import StoreError, UsageError
from slumberd.lock import StateLock
from slumberd.notify import Notifier
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


@dataclass(frozen=True, slots=True)
class Stores:
    """The two stores of a state directory."""

    memory: SQLiteMemoryStore
    facts: SQLiteFactStore


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


def stores_of(settings: Settings, clock: Clock) -> Stores:
    """Return the stores of a configuration; nothing is opened yet."""
    return Stores(
        SQLiteMemoryStore(
            settings.memory_path,
            synchronous=settings.memory.synchronous,
            scope_mismatch=settings.memory.scope_mismatch,
            clock=clock,
        ),
        SQLiteFactStore(
            settings.facts_path, lineage_depth=settings.facts.lineage_depth, clock=clock
        ),
    )


@asynccontextmanager
async def opened(settings: Settings, clock: Clock) -> AsyncIterator[Stores]:
    """Open the stores of a configuration, created if need be, and close them after."""
    stores = stores_of(settings, clock)
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
            yield stores


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
        self._turn = asyncio.Lock()
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
            consolidator = self._consolidator(stores)
            await self._recover(stores, consolidator)
            await self._serve(stores, consolidator)
        _log.info("daemon.stopped", uptime_seconds=self._uptime())

    def _consolidator(self, stores: Stores) -> Consolidator:
        return Consolidator(
            stores.memory,
            stores.facts,
            self._log,
            self._clock,
            batch=self._settings.facts.batch,
        )

    async def _recover(self, stores: Stores, consolidator: Consolidator) -> None:
        repeated = await consolidator.tell_again()
        if repeated:
            _log.info("logs.repeated", rows=repeated)
        await apply_channels(stores, self._rules, consolidator, self._clock.now())

    async def _serve(self, stores: Stores, consolidator: Consolidator) -> None:
        scheduler = Scheduler(
            clock=self._clock,
            episodes=stores.memory,
            ledger=stores.facts,
            fire=partial(self._fire, consolidator),
        )
        notice = partial(asyncio.get_running_loop().call_soon_threadsafe, scheduler.notice)
        poll_seconds = self._settings.memory.poll_seconds
        async with (
            Alarm(self._clock, scheduler.nudge) as alarm,
            listen(self._settings.state_dir, self._operations(consolidator)),
        ):
            with stores.memory.watch(notice, poll_seconds=poll_seconds):
                await self._work(alarm, scheduler)

    def _operations(self, consolidator: Consolidator) -> dict[str, Operation]:
        return {
            "fire": partial(self._on_fire, consolidator),
            "rehearse": partial(self._on_rehearse, consolidator),
            "status": self._on_status,
        }

    async def _work(self, alarm: Alarm, scheduler: Scheduler) -> None:
        alarm.arm(self._rules.rules, self._settings.timezone)
        scheduler.replace(self._rules.rules, self._settings.timezone)
        self._say_ready()
        await self._until_stopped(alarm, scheduler)

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

    async def _until_stopped(self, alarm: Alarm, scheduler: Scheduler) -> None:
        async with asyncio.TaskGroup() as group:
            tasks = [
                group.create_task(alarm.heartbeat(self._stop)),
                group.create_task(scheduler.run(self._stop)),
            ]
            group.create_task(self._stop_in_time(tasks))

    async def _stop_in_time(self, tasks: Sequence[asyncio.Task[None]]) -> None:
        await self._stop.wait()
        self._notifier.stopping()
        _log.info("daemon.stopping", deadline_seconds=self._settings.stop_seconds)
        _, late = await asyncio.wait(tasks, timeout=self._settings.stop_seconds)
        for task in late:
            task.cancel()

    async def _fire(
        self, consolidator: Consolidator, rule: ConsolidationRule, trigger: Trigger, at: datetime
    ) -> None:
        async with self._turn:
            await consolidator.fire(rule, trigger, at, stop=self._stop)

    async def _on_fire(self, consolidator: Consolidator, request: dict[str, Any]) -> Answer:
        rules = chosen(self._rules, request.get("rules"))
        async with self._turn:
            reports = [
                await consolidator.fire(rule, "manual", self._clock.now(), stop=self._stop)
                for rule in rules
            ]
        return {"reports": [as_document(report) for report in reports]}

    async def _on_rehearse(self, consolidator: Consolidator, request: dict[str, Any]) -> Answer:
        rules = chosen(self._rules, request.get("rules"))
        async with self._turn:
            reports = [await consolidator.rehearse(rule, self._clock.now()) for rule in rules]
        return {"reports": [as_document(report) for report in reports]}

    async def _on_status(self, _: dict[str, Any]) -> Answer:
        return {"pid": os.getpid(), "uptime_seconds": self._uptime()}

    def _uptime(self) -> float:
        return round((self._clock.now() - self._started_at).total_seconds(), 3)


async def apply_channels(
    stores: Stores, rules: RuleSet, consolidator: Consolidator, at: datetime
) -> None:
    """Settle again what a change of the channels' multi-valued predicates touches."""
    outcome = await stores.facts.set_channels(rules.multi_valued, at=at)
    if outcome is not None:
        _log.info("channels.changed", firing_id=outcome.firing_id, rows=len(outcome.records))
        await consolidator.tell_again()


def chosen(rules: RuleSet, ids: object) -> list[ConsolidationRule]:
    """Return some rules by id, in order of id; all enabled ones for None.

    Raises:
        UsageError: There is no such rule.
    """
    if ids is None:
        return [rule for rule in rules.rules if rule.enabled]
    if not isinstance(ids, list):
        raise UsageError("'rules' must be a list of rule ids")
    known = {rule.id: rule for rule in rules.rules}
    if unknown := [name for name in ids if name not in known]:
        raise UsageError(f"no rule {unknown[0]!r}; there are {', '.join(known) or 'none'}")
    return [known[name] for name in sorted(set(ids))]


async def fire_here(
    settings: Settings,
    rules: RuleSet,
    ids: Sequence[str] | None,
    *,
    clock: Clock,
    log: DeltaLog,
    dry_run: bool = False,
) -> list[Report]:
    """Fire rules in this process, under the daemon's own lock.

    Args:
        settings: The configuration.
        rules: All rules.
        ids: Which to fire; None fires every enabled one.
        clock: The time.
        log: Where deltas leave their lines.
        dry_run: Settle, report and write nothing.

    Raises:
        StateDirectoryLockedError: A daemon runs on the state directory.
        UsageError: There is no such rule.
    """
    fired = chosen(rules, None if ids is None else list(ids))
    async with writing(settings, clock) as stores:
        consolidator = Consolidator(
            stores.memory, stores.facts, log, clock, batch=settings.facts.batch
        )
        if dry_run:
            return [await consolidator.rehearse(rule, clock.now()) for rule in fired]
        await consolidator.tell_again()
        await apply_channels(stores, rules, consolidator, clock.now())
        return [await consolidator.fire(rule, "manual", clock.now()) for rule in fired]


def as_document(report: Report) -> dict[str, Any]:
    """Return a report as JSON takes it."""
    return {
        "rule_id": report.rule_id,
        "firing_ids": report.firing_ids,
        "channels": {channel: counts._asdict() for channel, counts in report.channels.items()},
    }


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
