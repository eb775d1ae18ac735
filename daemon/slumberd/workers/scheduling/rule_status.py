"""Compute how far rules are: what is pending and how old, when they fire next, how late they are.

The heartbeat, `slumberd doctor` and `slumberd status` collect the progress of each rule; the
computation is here only. It reads no clock and no store.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import cache
from typing import assert_never

from slumberd.model.health import RuleStatus
from slumberd.model.rule import ConsolidationRule, Cron, Every
from slumberd.workers.scheduling import cron
from slumberd.workers.scheduling.due import due_every, is_ahead


@dataclass(frozen=True, slots=True)
class RuleProgress:
    """The progress of one rule, as its caller collected it.

    Attributes:
        watermark: The log position of the last version that the rule has read; None for a rule
            whose first watermark is not recorded yet.
        served: The last cron instant that it has served; None as above.
        pending: How many versions lie above `start_of` it; None if this is unknown, and for a rule
            that reads no episodes.
        oldest_at: When the first pending episode happened; None without one, or if its timestamp
            cannot be read.
        full_seconds: For how long at most enough versions have been pending for the rule to be
            due; None if the caller does not know.
        paused: Whether a person paused it.
        held_firing_id: The firing id of its batch that awaits approval; empty without one.
        quarantined: How many episodes are quarantined for it.
        succeeded_at: When its last successful firing began.
        arrived: How many of its quarantined episodes were of the future, and are not any more.
    """

    watermark: int | None = None
    served: datetime | None = None
    pending: int | None = None
    oldest_at: datetime | None = None
    full_seconds: float | None = None
    paused: bool = False
    held_firing_id: str = ""
    quarantined: int = 0
    succeeded_at: datetime | None = None
    arrived: int = 0


NextInstant = Callable[[str, str, datetime], datetime | None]
"""Returns the next instant of an expression in a time zone after another instant."""


def start_of(rule: ConsolidationRule, watermark: int | None) -> int | None:
    """Return the log position above which versions are pending; None is the end of the log.

    A rule without a watermark starts at the beginning of the log, or at its end (``start: now``).
    """
    if watermark is None and rule.start == "now":
        return None
    return watermark or 0


def is_full(rule: ConsolidationRule, progress: RuleProgress) -> bool:
    """Return whether the pending versions make a rule due."""
    cadence = rule.due
    if not isinstance(cadence, Every) or progress.pending is None:
        return False
    is_due = progress.arrived > 0 or due_every(cadence, progress.pending)
    return is_due and _may_fire(rule, progress)


def rule_statuses(
    rules: Iterable[tuple[ConsolidationRule, RuleProgress]],
    *,
    timezone: str,
    now: datetime,
    tolerance_seconds: float,
) -> list[RuleStatus]:
    """Return the status of each rule, in the same order.

    Args:
        rules: The rules, each with its progress.
        timezone: The zone of cron rules that name none.
        now: The wall clock.
        tolerance_seconds: A served instant that lies further ahead of the clock counts as now.
    """
    next_instant = cache(_next_instant)  # many rules have the same expression
    found = [(rule, *_without_ahead(progress, now, tolerance_seconds)) for rule, progress in rules]
    return [
        _rule_status(rule, progress, ahead, timezone, now, next_instant)
        for rule, progress, ahead in found
    ]


def counted_served(
    served: datetime | None, now: datetime, tolerance_seconds: float
) -> tuple[datetime | None, datetime | None]:
    """Return the served instant that counts, and one that is ignored as of a wrong clock."""
    if served is None or not is_ahead(served, now=now, tolerance_seconds=tolerance_seconds):
        return served, None
    return now, served


def _without_ahead(
    progress: RuleProgress, now: datetime, tolerance_seconds: float
) -> tuple[RuleProgress, datetime | None]:
    """Return a progress without instants of a wrong clock, and the served instant among them."""
    served, ahead = counted_served(progress.served, now, tolerance_seconds)
    succeeded_at = progress.succeeded_at
    if succeeded_at and is_ahead(succeeded_at, now=now, tolerance_seconds=tolerance_seconds):
        succeeded_at = None
    return replace(progress, served=served, succeeded_at=succeeded_at), ahead


def _rule_status(
    rule: ConsolidationRule,
    progress: RuleProgress,
    ahead: datetime | None,
    timezone: str,
    now: datetime,
    next_instant: NextInstant,
) -> RuleStatus:
    due_at = _due_at(rule, progress, timezone, now, next_instant)
    return RuleStatus(
        rule.id,
        watermark=progress.watermark,
        pending=None if progress.pending is None else progress.pending + progress.arrived,
        oldest_seconds=_oldest_seconds(progress, now),
        next_at=_next_at(rule, timezone, max(now, progress.served or now), next_instant),
        due_at=due_at,
        late_seconds=round((now - due_at).total_seconds(), 3) if due_at else 0.0,
        paused=progress.paused,
        held_firing_id=progress.held_firing_id,
        quarantined=progress.quarantined,
        succeeded_at=progress.succeeded_at,
        ignored_served=ahead,
    )


def _may_fire(rule: ConsolidationRule, progress: RuleProgress) -> bool:
    begun = progress.watermark is not None
    return begun and rule.enabled and not progress.paused and not progress.held_firing_id


def _due_at(
    rule: ConsolidationRule,
    progress: RuleProgress,
    timezone: str,
    now: datetime,
    next_instant: NextInstant,
) -> datetime | None:
    match rule.due:
        case Every():
            full = is_full(rule, progress)
            return now - timedelta(seconds=_full_seconds(progress, now)) if full else None
        case Cron(expression=expression, timezone=zone):
            if progress.served is None or not _may_fire(rule, progress):
                return None
            due_at = next_instant(expression, zone or timezone, progress.served)
            return due_at if due_at and due_at <= now else None
        case never:
            assert_never(never)


def _full_seconds(progress: RuleProgress, now: datetime) -> float:
    """Return for how long at most enough versions have been pending.

    The caller's value is one bound: an import brings old episodes, and the first episode may have
    waited for the last. The age of the first episode is the other bound: while episodes arrive all
    the time, every read of the log finds some. A date in the future is ignored.
    """
    bounds = (progress.full_seconds, _oldest_seconds(progress, now))
    return min((bound for bound in bounds if bound is not None and bound >= 0), default=0.0)


def _oldest_seconds(progress: RuleProgress, now: datetime) -> float | None:
    if not progress.pending or progress.oldest_at is None:
        return None
    return round((now - progress.oldest_at).total_seconds(), 3)


def _next_at(
    rule: ConsolidationRule, timezone: str, after: datetime, next_instant: NextInstant
) -> datetime | None:
    due = rule.due
    if not isinstance(due, Cron) or not rule.enabled:
        return None
    return next_instant(due.expression, due.timezone or timezone, after)


def _next_instant(expression: str, timezone: str, after: datetime) -> datetime | None:
    """Return the next instant of an expression; None when it has none, or the zone is unknown."""
    try:
        return cron.next_instant(expression, timezone, after=after)
    except ValueError:
        return None
