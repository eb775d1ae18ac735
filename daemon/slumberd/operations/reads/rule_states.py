"""What is known of one loaded rule: its file, its progress, its last batch, and when it fires."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from slumberd.consolidation.graph_promotion import ledger_rule_id
from slumberd.logs.lines import printable, timestamp
from slumberd.model.firing import Counts
from slumberd.model.health import RuleStatus
from slumberd.model.rule import Cadence, ConsolidationRule, Cron, cadence_of
from slumberd.model.store_status import Readings
from slumberd.workers.scheduling.cron_text import Note, Timetable, in_words, timetable
from slumberd.workers.scheduling.rule_status import counted_served


@dataclass(frozen=True, slots=True)
class RuleState:
    """One loaded rule and its status.

    Attributes:
        rule: The rule.
        file: The rule file that defines it.
        status: How far it is.
        oldest: The timestamp of the first pending episode, as its host wrote it.
        fired_at: When its last batch began; None before the first one.
        outcome: The counts of its last batch.
        readings: What became of the episodes that it read last; None before the first one.
    """

    rule: ConsolidationRule
    file: str
    status: RuleStatus
    oldest: str | None
    fired_at: datetime | None
    outcome: Counts | None
    readings: Readings | None = None

    @property
    def cadence(self) -> str:
        """The cadence in words, such as ``every 5`` or ``cron 0 3 * * *``."""
        due = self.rule.due
        if isinstance(due, Cron):
            return f"cron {due.expression}" + (f" {due.timezone}" if due.timezone else "")
        return f"every {due.count}"

    def document(self) -> dict[str, Any]:
        """Return the status as a JSON object."""
        status = self.status
        return {
            **self.rule.model_dump(),
            "file": printable(self.file),
            "watermark": status.watermark,
            "pending": status.pending,
            "fired_at": timestamp_or_none(self.fired_at),
            "last_success": timestamp_or_none(status.succeeded_at),
            "quarantined": status.quarantined,
            "held_firing_id": status.held_firing_id or None,
            "oldest_pending": printable(self.oldest) if self.oldest else None,
            "last_outcome": self.outcome._asdict() if self.outcome else None,
            "readings": self.readings._asdict() if self.readings else None,
            "next_at": timestamp_or_none(status.next_at),
            "paused": status.paused,
        }


def timestamp_or_none(at: datetime | None) -> str | None:
    """Return the text of an instant; None when there is none."""
    return timestamp(at) if at else None


def name_in_ledger(rule: ConsolidationRule) -> str:
    """Return the id under which the ledger has the firings of a rule."""
    return rule.id if rule.reads_episodes else ledger_rule_id(rule.id)


Scheduled = Mapping[str, Any]
"""A rule in the form that `list_cadences` returns."""


@dataclass(frozen=True, slots=True)
class Outlook:
    """When a rule fires next.

    Attributes:
        rule: Its id; None for an expression of no rule.
        enabled: Whether the daemon fires it.
        paused_by: Who paused it; None when it is not paused.
        cadence: How often it fires.
        timezone: The time zone of its expression; None without an expression.
        table: Its next instants; empty without an expression.
        ignored_served: The cron instant that it has served, as a wrong clock recorded it: now
            counts in its place. None without one.
    """

    rule: str | None
    enabled: bool
    paused_by: str | None
    cadence: Cadence
    timezone: str | None
    table: Timetable
    ignored_served: datetime | None = None

    def document(self) -> dict[str, Any]:
        """Return the JSON form."""
        cron = self.cadence if isinstance(self.cadence, Cron) else None
        return {
            "rule": self.rule,
            "enabled": self.enabled,
            "paused": self.paused_by is not None,
            "paused_by": self.paused_by and printable(self.paused_by),
            "every": None if isinstance(self.cadence, Cron) else self.cadence.count,
            "cron": cron.expression if cron else None,
            "timezone": self.timezone,
            "words": in_words(self.cadence),
            "next": [_instant(at) for at in self.table.instants] if cron else [],
            "notes": [_note(note) for note in self.table.notes],
            "ignored_served": timestamp(self.ignored_served) if self.ignored_served else None,
        }


def outlooks(
    rules: Iterable[Scheduled],
    timezone: str,
    now: datetime,
    count: int,
    *,
    tolerance_seconds: float,
) -> Iterator[Outlook]:
    """Yield when each rule fires next.

    Args:
        rules: The rules, in the form that `list_cadences` returns.
        timezone: The time zone of expressions that name none.
        now: The instant to start from, with an offset.
        count: How many instants of each rule to compute.
        tolerance_seconds: A served instant that lies further ahead of the clock counts as now.
    """
    for rule in rules:
        text = rule["served"]
        served, ignored = counted_served(
            datetime.fromisoformat(text) if text else None, now, tolerance_seconds
        )
        after = max(now, served or now)
        found = outlook(rule, cadence_of(rule["cadence"]), timezone, after, count)
        is_cron = isinstance(found.cadence, Cron)
        yield replace(found, ignored_served=ignored) if is_cron else found


def outlook(
    rule: Scheduled, cadence: Cadence, timezone: str, after: datetime, count: int
) -> Outlook:
    """Return when a rule of a cadence fires next after an instant; as `outlooks`.

    Raises:
        ValueError: The expression is invalid, or the time zone unknown.
    """
    of_rule = rule["id"], rule["enabled"], rule["paused_by"], cadence
    if not isinstance(cadence, Cron):
        return Outlook(*of_rule, None, Timetable([], []))
    zone = cadence.timezone or timezone
    return Outlook(*of_rule, zone, timetable(cadence.expression, zone, after=after, most=count))


def _instant(at: datetime) -> dict[str, Any]:
    return {"local": at.isoformat(), "utc": at.astimezone(UTC)}


def _note(note: Note) -> dict[str, Any]:
    return {
        "at": note.change.at,
        "skipped": note.change.skipped,
        "times": [f"{time:%H:%M}" for time in note.times],
        "fired": note.fired,
        "words": note.words(),
    }
