"""What is known of each loaded rule: its file, its last batch, when it fires, how far it is."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, NamedTuple

from slumberd.clock import Clock
from slumberd.consolidation.graph_promotion import ledger_rule_id
from slumberd.consolidation.protocols import EpisodeLog
from slumberd.logs.lines import printable, timestamp
from slumberd.model.episode import FUTURE_TOLERANCE_SECONDS, latest_at
from slumberd.model.firing import Counts
from slumberd.model.health import RuleStatus
from slumberd.model.rule import Cadence, ConsolidationRule, Cron, Every, cadence_of
from slumberd.model.store_status import Readings
from slumberd.storage.facts.store import EngineFactStore
from slumberd.workers.scheduling.cron_text import Note, Timetable, in_words, timetable
from slumberd.workers.scheduling.due import Mark
from slumberd.workers.scheduling.rule_status import RuleProgress, counted_served, is_full, start_of


@dataclass(frozen=True, slots=True)
class RuleState:
    """One loaded rule and its status.

    Attributes:
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


MOST_PENDING = 10_000
"""Pending rows of the log that are counted for a rule."""


class _Backlog(NamedTuple):
    """The log rows above one position.

    Attributes:
        pending: How many rows there are; counting may have ended early.
        oldest_at: When the first episode happened; None without one.
    """

    pending: int
    oldest_at: datetime | None


_NO_BACKLOG = _Backlog(0, None)

_Count = tuple[int, int, str]
"""A position of the log, how many rows above it are counted at most, and for which rule."""


class LedgerFigures(NamedTuple):
    """What the fact store reports of rules.

    Attributes:
        marks: The watermark of each rule, and the last cron instant that it has served.
        succeeded: When the last successful firing of each rule began.
        quarantined: How many episodes of each rule are in quarantine.
        held: The firing id of what awaits approval: of a batch by its rule, of a backfill or a
            retry by its own firing id.
        future: The instants of quarantined episodes of the future, by rule; microseconds.
    """

    marks: Mapping[str, Mark]
    succeeded: Mapping[str, datetime]
    quarantined: Counter[str]
    held: Mapping[str, str]
    future: Mapping[str, Sequence[int]]


class RuleProgressReader:
    """Reads how far rules are; it remembers since when they are due.

    Args:
        episodes: The episodes that rules read.
        facts: The facts that rules write.
        awake: Returns which of some rules are not paused.
        tolerance_seconds: How far ahead of the clock an instant is not of the future.
    """

    def __init__(
        self,
        episodes: EpisodeLog,
        facts: EngineFactStore,
        awake: Callable[[Sequence[ConsolidationRule]], list[ConsolidationRule]],
        clock: Clock,
        tolerance_seconds: float = FUTURE_TOLERANCE_SECONDS,
    ) -> None:
        self._episodes = episodes
        self._facts = facts
        self._awake = awake
        self._clock = clock
        self._tolerance_seconds = tolerance_seconds
        self._full_since: dict[str, float] = {}

    async def figures(self) -> LedgerFigures:
        """Return what the fact store reports of all rules.

        Raises:
            StoreError: The store cannot be read.
        """
        facts = self._facts
        held = await facts.watermarks.held()
        return LedgerFigures(
            await facts.watermarks.positions(),
            await facts.watermarks.successes(),
            Counter(await facts.reads.count_quarantined()),
            {name: batch.firing_id for name, batch in held.items() if not batch.approved},
            await facts.ledger.future_instants(),
        )

    async def progresses(
        self, rules: Sequence[ConsolidationRule], ledger: LedgerFigures
    ) -> list[tuple[ConsolidationRule, RuleProgress]]:
        """Return each rule with its progress.

        Args:
            rules: The rules; every rule that may be due is among them.
            ledger: What the fact store reports.

        Raises:
            StoreError: The store of episodes cannot be read.
        """
        awake = {rule.id for rule in self._awake(rules)}
        counts = {rule.id: _count_of(rule, ledger) for rule in rules if rule.reads_episodes}
        backlogs = await self._backlogs(set(counts.values()))
        found = []
        latest = latest_at(self._clock.now(), self._tolerance_seconds)
        for rule in rules:
            position, served = ledger.marks.get(rule.id, (None, None))
            backlog = backlogs[counts[rule.id]] if rule.id in counts else None
            progress = RuleProgress(
                watermark=position.seq if position else None,
                served=served,
                pending=backlog.pending if backlog else None,
                oldest_at=backlog.oldest_at if backlog else None,
                paused=rule.id not in awake,
                held_firing_id=ledger.held.get(rule.id, ""),
                quarantined=ledger.quarantined[rule.id],
                succeeded_at=ledger.succeeded.get(rule.id),
                arrived=sum(at <= latest for at in ledger.future.get(rule.id, ())),
            )
            found.append((rule, progress))
        return self._note_full(found)

    def _note_full(
        self, progresses: Sequence[tuple[ConsolidationRule, RuleProgress]]
    ) -> list[tuple[ConsolidationRule, RuleProgress]]:
        """Remember which rules are due by their pending episodes, and set for how long."""
        monotonic = self._clock.monotonic()
        self._full_since = {
            rule.id: self._full_since.get(rule.id, monotonic)
            for rule, progress in progresses
            if is_full(rule, progress)
        }
        return [
            (rule, replace(progress, full_seconds=monotonic - self._full_since[rule.id]))
            if rule.id in self._full_since
            else (rule, progress)
            for rule, progress in progresses
        ]

    async def _backlogs(self, counts: Iterable[_Count | None]) -> dict[_Count | None, _Backlog]:
        """Return the backlog above each position, for each rule."""
        backlogs: dict[_Count | None, _Backlog] = {None: _NO_BACKLOG}
        episodes = self._episodes
        for count in counts:
            if count is not None:
                start, most, rule_id = count
                pending = await episodes.pending(start, at_most=most, rule_id=rule_id)
                oldest_at = await episodes.oldest_at(start, rule_id=rule_id) if pending else None
                backlogs[count] = _Backlog(pending, oldest_at)
        return backlogs


def _count_of(rule: ConsolidationRule, ledger: LedgerFigures) -> _Count | None:
    """Return which rows are pending for a rule; None when it starts at the end of the log."""
    mark = ledger.marks.get(rule.id)
    start = start_of(rule, mark[0].seq if mark else None)
    if start is None:
        return None
    # A rule that fires seldom is counted until it is known whether it is due.
    due = rule.due
    return start, max(MOST_PENDING, due.count if isinstance(due, Every) else 0), rule.id


def limit_pending(status: RuleStatus) -> RuleStatus:
    """Return a status that reports at most `MOST_PENDING`, however far it was counted."""
    if status.pending is None or status.pending <= MOST_PENDING:
        return status
    return replace(status, pending=MOST_PENDING)
