"""Look at a state directory as it is, whatever is there yet."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from slumberd.config.rule_loader import RuleSet
from slumberd.config.settings import Settings
from slumberd.consolidation.graph_promotion import speaker_of
from slumberd.model.cadence import Cron
from slumberd.model.episode import instant
from slumberd.model.firing import Counts
from slumberd.model.rule import ConsolidationRule
from slumberd.observability.line_format import printable, timestamp
from slumberd.scheduling import cron
from slumberd.storage.audit import offline_status
from slumberd.storage.audit.offline_status import FactsSeen, Open
from slumberd.storage.sqlite.recovery import look

_MOST_PENDING = 10**9


@dataclass(frozen=True, slots=True)
class RuleState:
    """One rule, and how far it has come.

    Attributes:
        rule: The rule.
        file: Where it stands.
        watermark: The number of the last version that it has read; None before its first firing.
        pending: How many versions wait for it; None when there are no episodes to count.
        fired_at: When its last batch began.
        quarantined: How many episodes it could not read.
        held: The batch of it that waits for a person; empty when none does.
        succeeded_at: When its last firing that went well began, with or without episodes.
        oldest: The timestamp of the first episode that waits, as it is written.
        outcome: What its last batch came to.
        next_at: When it fires next, by the clock.
    """

    rule: ConsolidationRule
    file: str
    watermark: int | None
    pending: int | None
    fired_at: datetime | None
    quarantined: int
    held: str
    succeeded_at: datetime | None
    oldest: str | None
    outcome: Counts | None
    next_at: datetime | None

    @property
    def cadence(self) -> str:
        """The cadence, as a person says it."""
        due = self.rule.due
        if isinstance(due, Cron):
            return f"cron {due.expression}" + (f" {due.timezone}" if due.timezone else "")
        return f"every {due.count}"

    def document(self) -> dict[str, Any]:
        """Return it as JSON takes it."""
        return {
            **self.rule.model_dump(),
            "file": printable(self.file),
            "watermark": self.watermark,
            "pending": self.pending,
            "fired_at": timestamp(self.fired_at) if self.fired_at else None,
            "last_success": timestamp(self.succeeded_at) if self.succeeded_at else None,
            "quarantined": self.quarantined,
            "held": self.held or None,
            "oldest_pending": printable(self.oldest) if self.oldest else None,
            "last_outcome": self.outcome._asdict() if self.outcome else None,
            "next_at": timestamp(self.next_at) if self.next_at else None,
        }


@dataclass(frozen=True, slots=True)
class RemovedRule:
    """A rule that has been here and is no longer loaded; it keeps its watermark and its facts.

    Attributes:
        id: Its id.
        watermark: The number of the last version that it has read; it goes on from there.
        fired_at: When its last batch began.
        quarantined: How many episodes it could not read.
        held: The batch of it that waits for a person; empty when none does.
    """

    id: str
    watermark: int
    fired_at: datetime | None
    quarantined: int
    held: str

    def document(self) -> dict[str, Any]:
        """Return it as JSON takes it."""
        at = timestamp(self.fired_at) if self.fired_at else None
        return {**asdict(self), "fired_at": at, "held": self.held or None}


@dataclass(frozen=True, slots=True)
class Survey:
    """A state directory.

    Attributes:
        episodes: How many there are; None when there is no database of them.
        seen: What the database of facts says of itself; None when there is none yet.
        rules: By id.
        removed: Rules that have been here and are no longer loaded.
    """

    episodes: int | None
    seen: FactsSeen | None
    rules: list[RuleState]
    removed: list[RemovedRule]

    @property
    def facts(self) -> int | None:
        """How many facts stand; None when there is no database of them."""
        return self.seen.facts if self.seen else None

    @property
    def ledger_rows(self) -> int:
        """How many rows the ledger has."""
        return self.seen.rows if self.seen else 0


def surveyed(settings: Settings, rules: RuleSet, now: datetime) -> Survey:
    """Count what is there. Creates nothing, not even beside a database that nobody has open.

    Raises:
        StoreError: What is there cannot be read.
    """
    path = settings.facts_path
    seen = look(path, offline_status.facts_in) if path.exists() else None
    known = seen or _NOTHING
    places = [_start(rule, known.marks.get(rule.id)) for rule in rules.rules]
    memory = _memory(settings.memory_path, places)
    states = [_state(rule, rules, known, memory, settings, now) for rule in rules.rules]
    return Survey(memory.episodes if memory else None, seen, states, _removed(rules, known))


_NOTHING = FactsSeen(facts=0, rows=0, unlogged=0, triggered=False)
"""What a database of facts would say of itself that is not there yet."""


class _Waiting(NamedTuple):
    """What lies above a place of the log."""

    pending: int
    oldest: str | None


class _Memory(NamedTuple):
    """Episodes: how many, and what lies above each place that was asked for; None is the end."""

    episodes: int
    above: Mapping[int | None, _Waiting]


def _memory(path: Path, places: Iterable[int | None]) -> _Memory | None:
    if not path.exists():
        return None
    return look(path, partial(_memory_in, places={one for one in places if one is not None}))


def _memory_in(connection: Open, places: Iterable[int]) -> _Memory | None:
    if not offline_status.logs_episodes(connection):
        return None
    above: dict[int | None, _Waiting] = {None: _Waiting(0, None)}
    for place in places:
        pending = offline_status.pending_in(connection, place, _MOST_PENDING)
        above[place] = _Waiting(pending, offline_status.oldest_in(connection, place))
    return _Memory(offline_status.episodes_in(connection), above)


def _start(rule: ConsolidationRule, mark: int | None) -> int | None:
    """Return the place above which versions wait for a rule; None is the end of the log."""
    if mark is None and rule.start == "now":
        return None
    return mark or 0


def _state(
    rule: ConsolidationRule,
    rules: RuleSet,
    seen: FactsSeen,
    memory: _Memory | None,
    settings: Settings,
    now: datetime,
) -> RuleState:
    name = rule.id if rule.reads_episodes else speaker_of(rule.id)
    mark, fired = seen.marks.get(rule.id), seen.fired.get(name)
    succeeded = seen.succeeded.get(rule.id)
    waiting = memory.above[_start(rule, mark)] if memory and rule.reads_episodes else None
    return RuleState(
        rule,
        rules.sources[rule.id],
        mark,
        waiting.pending if waiting else None,
        instant(fired) if fired else None,
        _quarantined(seen, rule.id),
        seen.held[rule.id].firing_id if rule.id in seen.held else "",
        instant(succeeded) if succeeded else None,
        waiting.oldest if waiting else None,
        seen.outcomes.get(name),
        _next(rule, settings, now),
    )


def _quarantined(seen: FactsSeen, rule_id: str) -> int:
    return sum(count for (rule, _), count in seen.quarantined.items() if rule == rule_id)


def _next(rule: ConsolidationRule, settings: Settings, now: datetime) -> datetime | None:
    due = rule.due
    if not isinstance(due, Cron) or not rule.enabled:
        return None
    return cron.next_instant(due.expression, due.timezone or settings.timezone, after=now)


def _removed(rules: RuleSet, seen: FactsSeen) -> list[RemovedRule]:
    """Return the rules that have a watermark and are not loaded, by id."""
    loaded = {rule.id for rule in rules.rules}
    return [
        RemovedRule(
            rule_id,
            mark,
            instant(seen.fired[rule_id]) if rule_id in seen.fired else None,
            _quarantined(seen, rule_id),
            seen.held[rule_id].firing_id if rule_id in seen.held else "",
        )
        for rule_id, mark in sorted(seen.marks.items())
        if rule_id not in loaded
    ]
