"""An alarm for cron instants and for jumps of the clock. It only wakes the loop that fires."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from functools import partial
from types import TracebackType
from typing import Self

import structlog
from apscheduler.jobstores.memory import MemoryJobStore
from apscheduler.schedulers.asyncio import AsyncIOScheduler
from apscheduler.triggers.base import BaseTrigger

from slumberd.clock import Clock, set_within
from slumberd.model.rule import ConsolidationRule, Cron
from slumberd.workers.scheduling import cron
from slumberd.workers.scheduling.due import jump_between
from slumberd.workers.scheduling.scheduler import describe, read_clocks

_log = structlog.get_logger(__name__)


class CronTrigger(BaseTrigger):  # type: ignore[misc]  # apscheduler ships no types
    """Gives APScheduler the next instant of a cron expression; never raises."""

    __slots__ = ("_expression", "_rule_id", "_timezone")

    def __init__(self, rule_id: str, expression: str, timezone: str) -> None:
        self._rule_id = rule_id
        self._expression = expression
        self._timezone = timezone

    def get_next_fire_time(
        self, previous_fire_time: datetime | None, now: datetime
    ) -> datetime | None:
        """Return the first instant after both arguments; None ends the alarm."""
        after = max(previous_fire_time or now, now)
        try:
            return cron.next_instant(self._expression, self._timezone, after=after)
        except Exception as error:  # noqa: BLE001 - a trigger that raises stops APScheduler without a message
            _log.error("alarm.failed", rule_id=self._rule_id, **describe(error))
            return None


class Alarm:
    """Calls `wake` at each instant of each cron rule, and when the wall clock jumps."""

    def __init__(self, clock: Clock, wake: Callable[[], None]) -> None:
        self._clock = clock
        self._wake = wake
        self._rearm: Callable[[], None] = lambda: None
        self._last_reading = read_clocks(clock)
        self._scheduler = AsyncIOScheduler(
            timezone=UTC,
            jobstores={"default": MemoryJobStore()},
            job_defaults={"misfire_grace_time": None, "coalesce": True, "max_instances": 1},
        )

    async def __aenter__(self) -> Self:
        """Start on the running event loop."""
        self._scheduler.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Stop."""
        await self.close()

    def arm(self, rules: Sequence[ConsolidationRule], timezone: str) -> None:
        """Replace all alarms.

        Args:
            rules: Enabled rules with a cron cadence get an alarm.
            timezone: The zone of rules that name none.
        """
        self._rearm = partial(self.arm, tuple(rules), timezone)
        self._scheduler.pause()  # otherwise each added job would wake it
        self._scheduler.remove_all_jobs()
        for rule in rules:
            cadence = rule.due
            if rule.enabled and isinstance(cadence, Cron):
                self._add(rule.id, cadence, timezone)
        self._scheduler.resume()

    def _add(self, rule_id: str, cadence: Cron, timezone: str) -> None:
        trigger = CronTrigger(rule_id, cadence.expression, cadence.timezone or timezone)
        self._scheduler.add_job(self._wake_caller, trigger, id=rule_id)

    async def _wake_caller(self) -> None:
        # A coroutine: APScheduler would call a plain function in a thread.
        self._wake()

    async def heartbeat(self, stop: asyncio.Event, *, every_seconds: float = 5.0) -> None:
        """Call `beat` every few seconds until `stop` is set."""
        while not await set_within(stop, every_seconds):
            self.beat()

    def beat(self) -> None:
        """Compare the clocks with the last call; after a jump of the wall clock, rearm and wake.

        APScheduler sleeps on the monotonic clock, so it does not notice a jump. After a step back,
        the instants that it has computed lie too far ahead.
        """
        before, self._last_reading = self._last_reading, read_clocks(self._clock)
        jump = jump_between(before, self._last_reading)
        if not jump:
            return
        _log.warning("clock.jumped", delta_seconds=round(jump, 3))
        self._rearm()
        self._scheduler.wakeup()
        self._wake()

    async def close(self) -> None:
        """Stop the alarm."""
        if self._scheduler.running:
            self._scheduler.shutdown(wait=False)
            await asyncio.sleep(0)  # it shuts down in a callback
