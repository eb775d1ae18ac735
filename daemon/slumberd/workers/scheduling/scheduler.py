"""Find the rules that are due, and fire them.

The loop finds the due rules in the stores each time, and counts nothing in memory. So a lost
alarm, a restart or a jump of the clock delays a firing, and never loses one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import assert_never

import structlog

from slumberd.clock import Clock
from slumberd.consolidation.firing import is_in_log
from slumberd.consolidation.protocols import EpisodeLog, Watermarks
from slumberd.logs.lines import timestamp
from slumberd.model.episode import FUTURE_TOLERANCE_SECONDS
from slumberd.model.errors import (
    ConsolidationRuleError,
    DatabaseUnreachableError,
    FiringTimeoutError,
    StoppedError,
    StoreError,
    SupersededError,
)
from slumberd.model.firing import START, Position
from slumberd.model.health import DEGRADED_AFTER
from slumberd.model.rule import ConsolidationRule, Cron, Every
from slumberd.workers.scheduling import cron
from slumberd.workers.scheduling.due import (
    BACKOFF_SECONDS,
    ClockWatch,
    Due,
    FailureTracker,
    Mark,
    Reading,
    RetryTracker,
    due_cron,
    due_every,
    in_due_order,
    is_ahead,
    is_cut_short,
    may_be_due,
    why_skipped,
)

_FIRST = datetime.min.replace(tzinfo=UTC)

_log = structlog.get_logger(__name__)


def served_fields(due: Due, at: datetime) -> dict[str, object]:
    """Return the fields of a log line: which cron instants a firing serves, and how late.

    Args:
        due: The firing.
        at: The instant at which it begins.
    """
    served = {"first": due.since, "upto": due.upto or due.since}
    words = {name: timestamp(instant) for name, instant in served.items()}
    return {**words, **due.timing(at)._asdict()}


@dataclass(frozen=True, slots=True)
class _View:
    progress_by_rule: Mapping[str, Mark]
    newest: Position
    now: datetime
    since: datetime
    timezone: str
    arrived: Set[str]


class DueRuleFinder:
    """Finds the due rules, and gives a new rule its first watermark.

    When the log does not contain the last row that was seen, the episodes were restored from a
    backup. Then each rule whose watermark is not in the log is due, whatever its cadence: its
    firing walks back to the last row that it knows.

    Attributes:
        next_arrival: The first instant of a quarantined episode that is still to come; None without
            such an episode.

    Args:
        watermarks: Where each rule is in the log, and what it waits for.
        future_tolerance_seconds: A served instant that lies further ahead of the clock counts as
            now.
    """

    def __init__(
        self,
        episodes: EpisodeLog,
        watermarks: Watermarks,
        *,
        future_tolerance_seconds: float = FUTURE_TOLERANCE_SECONDS,
    ) -> None:
        self._episodes = episodes
        self._watermarks = watermarks
        self._future_tolerance_seconds = future_tolerance_seconds
        self.next_arrival: datetime | None = None
        self._last: Position | None = None
        self._agreed: set[str] = set()  # ids of rules whose watermark is in the log

    async def find(
        self, rules: Iterable[ConsolidationRule], *, timezone: str, now: datetime, since: datetime
    ) -> list[Due]:
        """Return the due rules in due order, without rules whose batch awaits approval.

        Args:
            rules: The rules to check, enabled or not.
            timezone: The zone of rules that name none.
            now: The wall clock.
            since: The daemon has watched the clock from this instant on. Earlier instants may have
                been missed.
        """
        # Watermarks are read first. Read after the log, one could lie beyond the log's known end.
        progress_by_rule = await self._without_ahead(now)
        future = await self._watermarks.future_of_rules()
        newest = await self._episodes.newest()
        await self._compare(newest)
        arrived = {rule_id for rule_id, at in future.items() if self._has_arrived(at, now)}
        self.next_arrival = min(
            (at for rule_id, at in future.items() if rule_id not in arrived), default=None
        )
        view = _View(progress_by_rule, newest, now, since, timezone, arrived)
        waiting = {
            name for name, held in (await self._watermarks.held()).items() if not held.approved
        }
        found = [await self._due(rule, view) for rule in rules if rule.id not in waiting]
        return in_due_order(due for due in found if due)

    def is_awaited(self, now: datetime) -> bool:
        """Return whether the instant of a quarantined episode has come since the last search."""
        return self.next_arrival is not None and self._has_arrived(self.next_arrival, now)

    def _has_arrived(self, at: datetime, now: datetime) -> bool:
        return not is_ahead(at, now=now, tolerance_seconds=self._future_tolerance_seconds)

    async def _without_ahead(self, now: datetime) -> dict[str, Mark]:
        """Return the progress of all rules; set served instants of a wrong clock to now.

        This includes rules that cannot fire, so no status shows such an instant any longer.
        """
        marks = await self._watermarks.positions()
        for rule_id, (position, served) in marks.items():
            if is_ahead(served, now=now, tolerance_seconds=self._future_tolerance_seconds):
                await self._watermarks.correct_served(rule_id, now)
                marks[rule_id] = position, now
                _log.warning(
                    "clock.ahead",
                    rule_id=rule_id,
                    served=timestamp(served),
                    ahead_seconds=round((served - now).total_seconds(), 3),
                )
        return marks

    async def _compare(self, newest: Position) -> None:
        """Check all watermarks against the log again, unless the log has only grown."""
        if self._last is None or not await is_in_log(self._episodes, self._last):
            self._agreed.clear()
        self._last = newest

    async def _agrees(self, rule_id: str, watermark: Position) -> bool:
        if rule_id not in self._agreed and await is_in_log(self._episodes, watermark):
            self._agreed.add(rule_id)
        return rule_id in self._agreed

    async def _due(self, rule: ConsolidationRule, view: _View) -> Due | None:
        progress = view.progress_by_rule.get(rule.id) or await self._begin(rule, view)
        match rule.due:
            case Every() as cadence:
                return await self._due_every(rule.id, cadence, progress, view)
            case Cron() as cadence:
                await asyncio.sleep(
                    0
                )  # after a long downtime this takes milliseconds: let other tasks run
                due = _due_cron(rule.id, cadence, progress, view)
                return await self._unless_skipped(due, rule, view) if due else None
            case never:
                assert_never(never)

    async def _unless_skipped(self, due: Due, rule: ConsolidationRule, view: _View) -> Due | None:
        window = timedelta(seconds=rule.catchup_window)
        reason = why_skipped(due, rule.on_missed, window, now=view.now, since=view.since)
        if not reason or due.upto is None:
            return due
        await self._watermarks.serve(rule.id, due.upto)
        _log.warning(
            "firing.skipped", rule_id=rule.id, reason=reason, **served_fields(due, view.now)
        )
        return None

    async def _begin(self, rule: ConsolidationRule, view: _View) -> Mark:
        after = START if rule.start == "beginning" else view.newest
        if after != START:
            await self._episodes.fsync()  # after a crash the log must not assign this number again
        await self._watermarks.begin(rule.id, after, served=view.now)
        _log.info("rule.begun", rule_id=rule.id, after=after.seq)
        return after, view.now

    async def _due_every(
        self, rule_id: str, cadence: Every, progress: Mark, view: _View
    ) -> Due | None:
        after, _ = progress
        due = Due(rule_id, "every", view.now, after=after.seq, newest=view.newest.seq)
        if is_cut_short(due) or not await self._agrees(rule_id, after):
            # It goes first: walking back begins a new generation, which other rules then record.
            return replace(due, since=_FIRST)
        if rule_id in view.arrived:
            return due
        if not may_be_due(due, cadence):
            return None
        pending = await self._episodes.pending(after.seq, at_most=cadence.count, rule_id=rule_id)
        return due if due_every(cadence, pending) else None


def _due_cron(rule_id: str, cadence: Cron, progress: Mark, view: _View) -> Due | None:
    zone, (_, served) = cadence.timezone or view.timezone, progress
    try:
        missed = cron.missed_instants(cadence.expression, zone, after=served, until=view.now)
    except ValueError as error:
        _log.error("alarm.failed", rule_id=rule_id, error="ValueError", message=str(error))
        return None
    return due_cron(rule_id, missed, served=served, now=view.now)


Fire = Callable[[ConsolidationRule, Due, datetime], Awaitable[None]]


_MOST_OF_A_MESSAGE = 500
_AWAY_TURNS_OF_A_LINE = 25
"""Of so many attempts to reach a server that is away, one has a log line."""


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
        watermarks: Watermarks,
        fire: Fire,
        poll_seconds: float = 1.0,
        future_tolerance_seconds: float = FUTURE_TOLERANCE_SECONDS,
    ) -> None:
        """Connect the scheduler to the stores that it watches and the function that fires.

        Args:
            episodes: The scheduler asks it every `poll_seconds` whether episodes changed.
            watermarks: Where each rule is in the log, and what it waits for.
            fire: Consolidates what is pending for a rule, as of an instant, and returns after the
                commit. It must end soon after the stop event is set.
            poll_seconds: The time after which a new episode is noticed at the latest. `notice`
                shortens it.
            future_tolerance_seconds: A served instant that lies further ahead of the clock counts
                as now.
        """
        self._clock = clock
        self._episodes = episodes
        self._watermarks = watermarks
        self._fire = fire
        self._poll_seconds = poll_seconds
        self._finder = DueRuleFinder(
            episodes, watermarks, future_tolerance_seconds=future_tolerance_seconds
        )
        self._woken = asyncio.Event()
        self._rules: dict[str, ConsolidationRule] = {}
        self._counting: set[str] = set()
        self._timezone = "UTC"
        self._unchecked: set[str] = set()  # ids of rules to check in the next turn
        self._retries = RetryTracker()
        self._clock_watch = ClockWatch(read_clocks(clock))
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
            _log.error("look.failed", retry_seconds=pause, **describe(error))
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
        self._clock_watch.observe(read_clocks(self._clock))
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
                await self._watermarks.serve(rule.id, due.upto, succeeded_at=at)
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
            **describe(error),
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
                **describe(error),
            )


def _is_transient(error: Exception) -> bool:
    """Return whether the cause lies outside the rule, such as the disk, a lock or another file."""
    own = isinstance(error, ConsolidationRuleError | FiringTimeoutError)
    return isinstance(error, StoreError | OSError) and not own


def read_clocks(clock: Clock) -> Reading:
    """Return what both clocks say now."""
    return Reading(clock.now(), clock.monotonic())


def describe(error: Exception) -> dict[str, str]:
    """Return the fields of a log line about an error."""
    return {"error": type(error).__name__, "message": str(error)[:_MOST_OF_A_MESSAGE]}
