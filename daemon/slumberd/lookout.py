"""What is due, worked out from the stores alone: nothing is counted or remembered here."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import assert_never

import structlog

from slumberd import cron
from slumberd.core.cadence import Cron, Every
from slumberd.core.due import Due, due_cron, due_every, in_due_order, is_cut_short, may_be_due
from slumberd.core.firing import START, Position
from slumberd.core.rule import ConsolidationRule
from slumberd.ports import EpisodeLog, Ledger

_log = structlog.get_logger(__name__)


class Lookout:
    """Works out which rules are due, and gives those never seen their first watermark."""

    def __init__(self, episodes: EpisodeLog, ledger: Ledger) -> None:
        self._episodes = episodes
        self._ledger = ledger

    async def find(
        self, rules: Iterable[ConsolidationRule], timezone: str, now: datetime
    ) -> list[Due]:
        """Return the rules that are due, in due order.

        Args:
            rules: Whether they are enabled is not looked at.
            timezone: Of the rules that name none.
            now: The wall clock.
        """
        newest = await self._episodes.newest()
        found = [await self._due(rule, timezone, newest, now) for rule in rules]
        return in_due_order(due for due in found if due)

    async def _due(
        self, rule: ConsolidationRule, timezone: str, newest: Position, now: datetime
    ) -> Due | None:
        after = await self._ledger.watermark(rule.id)
        if after is None:
            after = await self._begun(rule, newest, now)
        match rule.due:
            case Every() as cadence:
                due = Due(rule.id, "every", now, after=after.seq, newest=newest.seq)
                return await self._due_every(due, cadence)
            case Cron() as cadence:
                return await self._due_cron(rule.id, cadence, timezone, now)
            case never:
                assert_never(never)

    async def _begun(self, rule: ConsolidationRule, newest: Position, now: datetime) -> Position:
        after = START if rule.start == "beginning" else newest
        await self._ledger.begin(rule.id, after, served=now)
        _log.info("rule.begun", rule_id=rule.id, after=after.seq)
        return after

    async def _due_every(self, due: Due, cadence: Every) -> Due | None:
        if is_cut_short(due):  # the firing walks back to where the log agrees
            return due
        if not may_be_due(due, cadence):
            return None
        pending = await self._episodes.pending(due.after, at_most=cadence.count)
        return due if due_every(cadence, pending) else None

    async def _due_cron(
        self, rule_id: str, cadence: Cron, timezone: str, now: datetime
    ) -> Due | None:
        zone = cadence.timezone or timezone
        served = await self._ledger.served(rule_id) or now
        try:
            missed = cron.missed(cadence.expression, zone, after=served, until=now)
        except ValueError as error:
            _log.error("alarm.failed", rule_id=rule_id, error="ValueError", message=str(error))
            return None
        return due_cron(rule_id, missed, served=served, now=now)
