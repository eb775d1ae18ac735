"""Fire rules when they are due: an alarm for cron instants, and the loop that fires.

APScheduler only wakes the loop. The loop finds the due rules in the stores each time. So a lost
alarm, a restart or a jump of the clock delays a firing, and never loses one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime
from functools import partial
from types import TracebackType
from typing import Self

import structlog
from apscheduler.jobstores.memory import MemoryJobStore
from apscheduler.schedulers.asyncio import AsyncIOScheduler
from apscheduler.triggers.base import BaseTrigger

from slumberd.clock import Clock, set_within
from slumberd.consolidation.protocols import EpisodeLog, Ledger
from slumberd.errors import (
    ConsolidationRuleError,
    DatabaseUnreachableError,
    FiringTimeoutError,
    StoppedError,
    StoreError,
    SupersededError,
)
from slumberd.model.cadence import Cron, Every
from slumberd.model.episode import FUTURE_TOLERANCE_SECONDS
from slumberd.model.health import DEGRADED_AFTER
from slumberd.model.rule import ConsolidationRule
from slumberd.observability.line_format import timestamp
from slumberd.scheduling import cron
from slumberd.scheduling.due import (
    BACKOFF_SECONDS,
    ClockWatch,
    Due,
    FailureTracker,
    Reading,
    RetryTracker,
    jump_between,
)
from slumberd.scheduling.due_finder import DueRuleFinder, served_fields

Fire = Callable[[ConsolidationRule, Due, datetime], Awaitable[None]]

_log = structlog.get_logger(__name__)
_MOST_OF_A_MESSAGE = 500

_AWAY_TURNS_OF_A_LINE = 25
"""Of so many attempts to reach a server that is away, one has a log line."""


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
            _log.error("alarm.failed", rule_id=self._rule_id, **_describe(error))
            return None


class Alarm:
    """Calls `wake` at each instant of each cron rule, and when the wall clock jumps."""

    def __init__(self, clock: Clock, wake: Callable[[], None]) -> None:
        self._clock = clock
        self._wake = wake
        self._rearm: Callable[[], None] = lambda: None
        self._last_reading = _read_clocks(clock)
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
        before, self._last_reading = self._last_reading, _read_clocks(self._clock)
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


class Scheduler:
    """Fires due rules, one at a time, in due order, then by rule id.

    Attributes:
        firing: The id of the rule that fires now; None between firings.
        turned_at: When the loop last began a turn, on the monotonic clock.
        troubles: The rules whose last firing failed.
    """

    def __init__(  # one for each component that it joins
        self,
        *,
        clock: Clock,
        episodes: EpisodeLog,
        ledger: Ledger,
        fire: Fire,
        poll_seconds: float = 1.0,
        future_tolerance_seconds: float = FUTURE_TOLERANCE_SECONDS,
    ) -> None:
        """Connect the scheduler to the stores that it watches and the function that fires.

        Args:
            clock: Gives the time.
            episodes: The scheduler asks it every `poll_seconds` whether episodes changed.
            ledger: Keeps watermarks and served instants.
            fire: Consolidates what is pending for a rule, as of an instant, and returns after the
                commit. It must end soon after the stop event is set.
            poll_seconds: The time after which a new episode is noticed at the latest. `notice`
                shortens it.
            future_tolerance_seconds: A served instant that lies further ahead of the clock counts
                as now.
        """
        self._clock = clock
        self._episodes = episodes
        self._ledger = ledger
        self._fire = fire
        self._poll_seconds = poll_seconds
        self._finder = DueRuleFinder(
            episodes, ledger, future_tolerance_seconds=future_tolerance_seconds
        )
        self._woken = asyncio.Event()
        self._rules: dict[str, ConsolidationRule] = {}
        self._counting: set[str] = set()
        self._timezone = "UTC"
        self._unchecked: set[str] = set()  # ids of rules to check in the next turn
        self._retries = RetryTracker()
        self._clock_watch = ClockWatch(_read_clocks(clock))
        self._failed_turns = 0
        self._paused_until = clock.monotonic()
        self.firing: str | None = None
        self.turned_at = clock.monotonic()
        self.troubles = FailureTracker()

    def replace(self, rules: Sequence[ConsolidationRule], timezone: str) -> None:
        """Use other rules from the next firing on; rules that failed may try again at once.

        Args:
            rules: The new rules. Disabled ones never fire.
            timezone: The zone of rules that name none.
        """
        self._rules = {rule.id: rule for rule in rules if rule.enabled}
        self._counting = {name for name, rule in self._rules.items() if isinstance(rule.due, Every)}
        self._timezone = timezone
        self._retries = RetryTracker()
        self.troubles.keep(self._rules)
        self.nudge()

    def nudge(self) -> None:
        """Check all rules soon. Call it on the event loop."""
        self._unchecked |= self._rules.keys()
        self._woken.set()

    def notice(self) -> None:
        """Check for new episodes now instead of at the next poll. Call it on the event loop."""
        self._woken.set()

    def check_again(self, rule_id: str) -> None:
        """Check a rule soon that may read more now, as of new answers of a language model.

        Call it on the event loop.
        """
        self._retries.allow_again(rule_id)
        self._unchecked.add(rule_id)
        self._woken.set()

    async def run(self, stop: asyncio.Event) -> None:
        """Fire rules when they are due, until `stop` is set and the current firing has ended.

        The caller limits the wait for that firing: cancelling `run` cancels it.

        Raises:
            SupersededError: Another daemon has taken over, or the store was replaced.
        """
        try:
            async with asyncio.TaskGroup() as group:
                waker = group.create_task(self._wake_at(stop))
                await self._turn_until(stop)
                waker.cancel()
        except ExceptionGroup as errors:
            raise errors.exceptions[0] from None

    async def _wake_at(self, stop: asyncio.Event) -> None:
        await stop.wait()
        self._woken.set()

    async def _turn_until(self, stop: asyncio.Event) -> None:
        while not stop.is_set():
            self.turned_at = self._clock.monotonic()
            if self.turned_at >= self._paused_until:
                await self._try_turn(stop)
            await self._wait()

    async def _try_turn(self, stop: asyncio.Event) -> None:
        try:
            await self.turn(stop)
        except SupersededError:
            raise
        except StoreError as error:
            self._pause(error)
        else:
            self._failed_turns = 0

    def _pause(self, error: StoreError) -> None:
        pause = BACKOFF_SECONDS[min(self._failed_turns, len(BACKOFF_SECONDS) - 1)]
        is_away = isinstance(error, DatabaseUnreachableError)
        if is_away:  # a failover takes seconds, and an attempt costs little
            pause = BACKOFF_SECONDS[0]
        if not is_away or self._failed_turns % _AWAY_TURNS_OF_A_LINE == 0:
            _log.error("look.failed", retry_seconds=pause, **_describe(error))
        self._failed_turns += 1
        self._paused_until = self._clock.monotonic() + pause

    async def _wait(self) -> None:
        poll = asyncio.get_running_loop().call_later(self._poll_seconds, self._woken.set)
        try:
            await self._woken.wait()
        finally:
            poll.cancel()
        self._woken.clear()

    async def turn(self, stop: asyncio.Event) -> None:
        """Fire rules until none is due, or `stop` is set.

        Raises:
            SupersededError: Another daemon has taken over, or the store was replaced.
            StoreError: A store could not be read.
        """
        while not stop.is_set():
            self.turned_at = self._clock.monotonic()
            rules = self._rules
            dues = await self._find_due(rules)
            if not dues:
                return
            await self._fire_each(dues, rules, stop)

    async def _find_due(self, rules: dict[str, ConsolidationRule]) -> list[Due]:
        self._clock_watch.observe(_read_clocks(self._clock))
        if await self._episodes.changed() or self._finder.is_awaited(self._clock.now()):
            self._unchecked |= self._counting
        self._unchecked |= self._retries.ready_to_retry(self._clock.monotonic())
        unchecked, self._unchecked = self._unchecked & rules.keys(), set()
        if not unchecked:
            return []
        try:
            to_check = [rule for rule_id, rule in rules.items() if rule_id in unchecked]
            now, since = self._clock.now(), self._clock_watch.since
            dues = await self._finder.find(to_check, timezone=self._timezone, now=now, since=since)
        except StoreError:
            self._unchecked |= unchecked
            raise
        for rule_id in unchecked - {due.rule_id for due in dues}:
            self._retries.remove(rule_id)
        return [due for due in dues if self._may_fire(due, rules[due.rule_id])]

    def _may_fire(self, due: Due, rule: ConsolidationRule) -> bool:
        return self._retries.allows(due, rule.due, monotonic=self._clock.monotonic())

    async def _fire_each(
        self, dues: list[Due], rules: dict[str, ConsolidationRule], stop: asyncio.Event
    ) -> None:
        for due in dues:
            if stop.is_set() or self._rules is not rules:
                return
            self.firing = due.rule_id
            try:
                await self._fire_one(due, rules[due.rule_id])
            finally:
                self.firing = None

    async def _fire_one(self, due: Due, rule: ConsolidationRule) -> None:
        try:
            at = self._clock.now()
            await self._fire(rule, due, at)
            if due.upto is not None:
                await self._ledger.watermarks.serve(rule.id, due.upto, succeeded_at=at)
                _log.info(
                    "firing.served", rule_id=rule.id, trigger=due.trigger, **served_fields(due, at)
                )
        except SupersededError:
            raise
        except Exception as error:  # noqa: BLE001 - a failing rule must not stop the other rules
            self._record_failure(due, error)
        else:
            self._record_success(due)
            self._unchecked.add(rule.id)  # it may still be due

    def _record_success(self, due: Due) -> None:
        self._retries.record_success(due)
        trouble = self.troubles.record_success(due.rule_id)
        if trouble and trouble.degraded:
            _log.info("rule.recovered", rule_id=due.rule_id, failures=trouble.failures)

    def _record_failure(self, due: Due, error: Exception) -> None:
        now = self._clock.monotonic()
        state = self._retries.record_failure(due, monotonic=now, transient=_is_transient(error))
        if isinstance(error, StoppedError):
            _log.info("firing.stopped", rule_id=due.rule_id)
            return
        retry = None if state.retry_at is None else round(state.retry_at - now, 3)
        _log.error(
            "firing.failed",
            rule_id=due.rule_id,
            failures=state.failures,
            retry_seconds=retry,
            **_describe(error),
        )
        _log.debug("firing.traced", rule_id=due.rule_id, exc_info=error)
        self._count_failure(due.rule_id, error)

    def _count_failure(self, rule_id: str, error: Exception) -> None:
        trouble = self.troubles.record_failure(rule_id, self._clock.now(), type(error).__name__)
        if trouble.failures == DEGRADED_AFTER:
            _log.warning(
                "rule.degraded",
                rule_id=rule_id,
                failures=trouble.failures,
                since=timestamp(trouble.since),
                **_describe(error),
            )


def _read_clocks(clock: Clock) -> Reading:
    return Reading(clock.now(), clock.monotonic())


def _is_transient(error: Exception) -> bool:
    """Return whether the cause lies outside the rule, such as the disk, a lock or another file."""
    own = isinstance(error, ConsolidationRuleError | FiringTimeoutError)
    return isinstance(error, StoreError | OSError) and not own


def _describe(error: Exception) -> dict[str, str]:
    return {"error": type(error).__name__, "message": str(error)[:_MOST_OF_A_MESSAGE]}
