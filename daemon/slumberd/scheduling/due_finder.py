"""Find the due rules from what the stores hold. Nothing is counted in memory."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import assert_never

import structlog

from slumberd.consolidation.firing import is_in_log
from slumberd.consolidation.protocols import EpisodeLog, Ledger
from slumberd.model.cadence import Cron, Every
from slumberd.model.episode import FUTURE_TOLERANCE_SECONDS
from slumberd.model.firing import START, Position
from slumberd.model.rule import ConsolidationRule
from slumberd.observability.line_format import timestamp
from slumberd.scheduling import cron
from slumberd.scheduling.due import (
    Due,
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


Mark = tuple[Position, datetime]
"""A rule's watermark, and the last cron instant that it has served."""


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
        episodes: The log of episodes.
        ledger: Keeps watermarks and served instants.
        future_tolerance_seconds: A served instant that lies further ahead of the clock counts as
            now.
    """

    def __init__(
        self,
        episodes: EpisodeLog,
        ledger: Ledger,
        *,
        future_tolerance_seconds: float = FUTURE_TOLERANCE_SECONDS,
    ) -> None:
        self._episodes = episodes
        self._ledger = ledger
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
        future = await self._ledger.future_of_rules()
        newest = await self._episodes.newest()
        await self._compare(newest)
        arrived = {rule_id for rule_id, at in future.items() if self._has_arrived(at, now)}
        self.next_arrival = min(
            (at for rule_id, at in future.items() if rule_id not in arrived), default=None
        )
        view = _View(progress_by_rule, newest, now, since, timezone, arrived)
        waiting = {name for name, held in (await self._ledger.held()).items() if not held.approved}
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
        marks = await self._ledger.watermarks.positions()
        for rule_id, (position, served) in marks.items():
            if is_ahead(served, now=now, tolerance_seconds=self._future_tolerance_seconds):
                await self._ledger.watermarks.correct_served(rule_id, now)
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
        await self._ledger.watermarks.serve(rule.id, due.upto)
        _log.warning(
            "firing.skipped", rule_id=rule.id, reason=reason, **served_fields(due, view.now)
        )
        return None

    async def _begin(self, rule: ConsolidationRule, view: _View) -> Mark:
        after = START if rule.start == "beginning" else view.newest
        if after != START:
            await self._episodes.fsync()  # after a crash the log must not assign this number again
        await self._ledger.watermarks.begin(rule.id, after, served=view.now)
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
