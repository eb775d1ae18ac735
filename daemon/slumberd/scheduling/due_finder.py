"""What is due, worked out from the stores alone: nothing is counted or remembered here."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Protocol, assert_never

import structlog

from slumberd.consolidation.protocols import EpisodeLog
from slumberd.model.cadence import Cron, Every
from slumberd.model.firing import START, Held, Position
from slumberd.model.rule import ConsolidationRule
from slumberd.observability.line_format import timestamp
from slumberd.scheduling import cron
from slumberd.scheduling.due import (
    Due,
    due_cron,
    due_every,
    in_due_order,
    is_cut_short,
    may_be_due,
    why_skipped,
)

_FIRST = datetime.min.replace(tzinfo=UTC)

_log = structlog.get_logger(__name__)

Mark = tuple[Position, datetime]
"""How far a rule has read, and up to which instant it is served."""


class Watermarks(Protocol):
    """The part of a ledger that says where every rule stands."""

    async def watermarks(self) -> dict[str, Mark]:
        """Return every rule's watermark and the instant up to which it is served."""
        ...

    async def held(self) -> Mapping[str, Held]:
        """Return the batches that wait for a person, or may go on now, by rule."""
        ...

    async def begin(self, rule_id: str, at: Position, *, served: datetime) -> None:
        """Give a rule that was never seen its first watermark and served instant."""
        ...

    async def serve(
        self, rule_id: str, instant: datetime, *, succeeded_at: datetime | None = None
    ) -> None:
        """Record that a rule's cron instants are served up to an instant; never moves back.

        Args:
            rule_id: The rule.
            instant: The last one that is served.
            succeeded_at: When the firing for it began; None when there was none.
        """
        ...


def served_by(due: Due, at: datetime) -> dict[str, object]:
    """Return which cron instants a firing serves that begins at an instant, as a line has it."""
    told = {"first": due.since, "upto": due.upto or due.since}
    words = {name: timestamp(instant) for name, instant in told.items()}
    return {**words, **due.timing(at)._asdict()}


@dataclass(frozen=True, slots=True)
class _View:
    marks: Mapping[str, Mark]
    newest: Position
    now: datetime
    since: datetime
    timezone: str


class Lookout:
    """Works out which rules are due, and gives those never seen their first watermark.

    A log that is not the one of the last look was restored from a backup. Whatever rule has read
    what is there no more is due then, whatever its cadence: its firing walks back.
    """

    def __init__(self, episodes: EpisodeLog, ledger: Watermarks) -> None:
        self._episodes = episodes
        self._ledger = ledger
        self._last: Position | None = None
        self._agreed: set[str] = set()  # rules whose watermark is in the log that was seen last

    async def find(
        self, rules: Iterable[ConsolidationRule], *, timezone: str, now: datetime, since: datetime
    ) -> list[Due]:
        """Return the rules that are due, in due order; none with a batch that is held.

        Args:
            rules: Whether they are enabled is not looked at.
            timezone: Of the rules that name none.
            now: The wall clock.
            since: From when on it was watched; instants before that may have been missed.
        """
        # The marks first: read after the log, one could lie beyond the end that we know.
        marks = await self._ledger.watermarks()
        newest = await self._episodes.newest()
        await self._compare(newest)
        view = _View(marks, newest, now, since, timezone)
        waiting = {name for name, held in (await self._ledger.held()).items() if not held.approved}
        found = [await self._due(rule, view) for rule in rules if rule.id not in waiting]
        return in_due_order(due for due in found if due)

    async def _compare(self, newest: Position) -> None:
        """Ask every rule anew whether it agrees, unless the log has only grown."""
        if self._last is None or not await self._holds(self._last):
            self._agreed.clear()
        self._last = newest

    async def _holds(self, mark: Position) -> bool:
        return mark == START or await self._episodes.episode_at(mark.seq) == mark.eid

    async def _agrees(self, rule_id: str, mark: Position) -> bool:
        if rule_id not in self._agreed and await self._holds(mark):
            self._agreed.add(rule_id)
        return rule_id in self._agreed

    async def _due(self, rule: ConsolidationRule, view: _View) -> Due | None:
        mark = view.marks.get(rule.id) or await self._begun(rule, view)
        match rule.due:
            case Every() as cadence:
                return await self._due_every(rule.id, cadence, mark, view)
            case Cron() as cadence:
                await asyncio.sleep(0)  # a long downtime takes milliseconds: others go first
                due = _due_cron(rule.id, cadence, mark, view)
                return await self._unless_skipped(due, rule, view) if due else None
            case never:
                assert_never(never)

    async def _unless_skipped(self, due: Due, rule: ConsolidationRule, view: _View) -> Due | None:
        window = timedelta(seconds=rule.catchup_window)
        reason = why_skipped(due, rule.on_missed, window, now=view.now, since=view.since)
        if not reason or due.upto is None:
            return due
        await self._ledger.serve(rule.id, due.upto)
        _log.warning("firing.skipped", rule_id=rule.id, reason=reason, **served_by(due, view.now))
        return None

    async def _begun(self, rule: ConsolidationRule, view: _View) -> Mark:
        after = START if rule.start == "beginning" else view.newest
        if after != START:
            await self._episodes.harden()  # the log must not give its number again
        await self._ledger.begin(rule.id, after, served=view.now)
        _log.info("rule.begun", rule_id=rule.id, after=after.seq)
        return after, view.now

    async def _due_every(self, rule_id: str, cadence: Every, mark: Mark, view: _View) -> Due | None:
        after, _ = mark
        due = Due(rule_id, "every", view.now, after=after.seq, newest=view.newest.seq)
        if is_cut_short(due) or not await self._agrees(rule_id, after):
            # First of all: who walks back begins the generation that others' versions are of.
            return replace(due, since=_FIRST)
        if not may_be_due(due, cadence):
            return None
        pending = await self._episodes.pending(after.seq, at_most=cadence.count)
        return due if due_every(cadence, pending) else None


def _due_cron(rule_id: str, cadence: Cron, mark: Mark, view: _View) -> Due | None:
    zone, (_, served) = cadence.timezone or view.timezone, mark
    try:
        missed = cron.missed(cadence.expression, zone, after=served, until=view.now)
    except ValueError as error:
        _log.error("alarm.failed", rule_id=rule_id, error="ValueError", message=str(error))
        return None
    return due_cron(rule_id, missed, served=served, now=view.now)
