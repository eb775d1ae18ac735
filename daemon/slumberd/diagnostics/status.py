"""Read the status of a state directory without changing it: counts, watermarks, next firings."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from slumberd.config.rule_loader import RuleSet
from slumberd.config.settings import Settings
from slumberd.consolidation.graph_promotion import ledger_rule_id
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
_EMPTY = FactsSeen(facts=0, rows=0, unlogged=0, triggered=False)
"""The status of a `facts.db` that does not exist yet."""


@dataclass(frozen=True, slots=True)
class RuleState:
    """The status of one loaded rule.

    Attributes:
        rule: The rule.
        file: The rule file that defines it.
        watermark: The log position of the last version that the rule has evaluated; None before
            its first firing.
        pending: The number of versions above the watermark; None when `memory.db` is missing, and
            for a rule of kind ``graph``.
        fired_at: When its last batch began; None before the first one.
        quarantined: The number of its episodes in quarantine.
        held: The firing id of its batch that awaits approval; empty when there is none.
        succeeded_at: When its last successful firing began, with or without episodes.
        oldest: The timestamp of the first pending episode, as its host wrote it.
        outcome: The counts of its last batch.
        next_at: The next instant of its cron expression; None for other cadences.
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
        """The cadence in words, such as ``every 5`` or ``cron 0 3 * * *``."""
        due = self.rule.due
        if isinstance(due, Cron):
            return f"cron {due.expression}" + (f" {due.timezone}" if due.timezone else "")
        return f"every {due.count}"

    def document(self) -> dict[str, Any]:
        """Return the status as a JSON object."""
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
    """A rule that has fired and is no longer loaded; it keeps its watermark and its facts.

    Attributes:
        id: Its id.
        watermark: The log position of the last version that it has evaluated; if the rule is
            loaded again, it resumes there.
        fired_at: When its last batch began; None when that is not recorded.
        quarantined: The number of its episodes in quarantine.
        held: The firing id of its batch that awaits approval; empty when there is none.
    """

    id: str
    watermark: int
    fired_at: datetime | None
    quarantined: int
    held: str

    def document(self) -> dict[str, Any]:
        """Return the status as a JSON object."""
        at = timestamp(self.fired_at) if self.fired_at else None
        return {**asdict(self), "fired_at": at, "held": self.held or None}


@dataclass(frozen=True, slots=True)
class Survey:
    """The status of a state directory.

    Attributes:
        episodes: The number of episodes; None when `memory.db` does not exist.
        seen: The status of `facts.db`; None when it does not exist yet.
        rules: The loaded rules, by id.
        removed: The rules that have fired and are no longer loaded, by id.
    """

    episodes: int | None
    seen: FactsSeen | None
    rules: list[RuleState]
    removed: list[RemovedRule]

    @property
    def facts(self) -> int | None:
        """The number of current facts; None when `facts.db` does not exist."""
        return self.seen.facts if self.seen else None

    @property
    def ledger_rows(self) -> int:
        """The number of rows of the ledger; 0 when `facts.db` does not exist."""
        return self.seen.rows if self.seen else 0


def read_status(settings: Settings, rules: RuleSet, now: datetime) -> Survey:
    """Read the status of the databases and rules. Creates no file, not even a write-ahead log.

    Raises:
        StoreError: A database cannot be read.
    """
    path = settings.facts_path
    seen = look(path, offline_status.facts_in) if path.exists() else None
    known = seen or _EMPTY
    starts = [_start(rule, known.marks.get(rule.id)) for rule in rules.rules]
    memory = _read_memory(settings.memory_path, starts)
    context = _Context(known, memory, settings.timezone, now)
    states = [_rule_state(rule, rules.sources[rule.id], context) for rule in rules.rules]
    return Survey(memory.episodes if memory else None, seen, states, _removed_rules(rules, known))


class _Waiting(NamedTuple):
    """The versions above one position of the episode log.

    Attributes:
        pending: How many there are.
        oldest: The timestamp of the first one, as its host wrote it; None when there is none.
    """

    pending: int
    oldest: str | None


class _Memory(NamedTuple):
    """What `memory.db` holds.

    Attributes:
        episodes: How many episodes there are.
        above: The versions above each start position of a rule; None is the end of the log.
    """

    episodes: int
    above: Mapping[int | None, _Waiting]


class _Context(NamedTuple):
    """What the states of all rules are computed from.

    Attributes:
        seen: The status of `facts.db`.
        memory: The status of `memory.db`; None when it does not exist.
        timezone: The zone of cron rules that name none.
        now: The wall clock.
    """

    seen: FactsSeen
    memory: _Memory | None
    timezone: str
    now: datetime


def _read_memory(path: Path, starts: Iterable[int | None]) -> _Memory | None:
    if not path.exists():
        return None
    positions = {start for start in starts if start is not None}
    return look(path, partial(_count_episodes, positions=positions))


def _count_episodes(connection: Open, positions: Iterable[int]) -> _Memory | None:
    if not offline_status.logs_episodes(connection):
        return None
    above: dict[int | None, _Waiting] = {None: _Waiting(0, None)}
    for position in positions:
        pending = offline_status.pending_in(connection, position, _MOST_PENDING)
        above[position] = _Waiting(pending, offline_status.oldest_in(connection, position))
    return _Memory(offline_status.episodes_in(connection), above)


def _start(rule: ConsolidationRule, mark: int | None) -> int | None:
    """Return the log position above which versions wait for a rule; None is the end of the log."""
    if mark is None and rule.start == "now":
        return None
    return mark or 0


def _rule_state(rule: ConsolidationRule, file: str, context: _Context) -> RuleState:
    seen, memory = context.seen, context.memory
    name = rule.id if rule.reads_episodes else ledger_rule_id(rule.id)
    mark = seen.marks.get(rule.id)
    waiting = memory.above[_start(rule, mark)] if memory and rule.reads_episodes else None
    return RuleState(
        rule=rule,
        file=file,
        watermark=mark,
        pending=waiting.pending if waiting else None,
        fired_at=_instant_of(seen.fired, name),
        quarantined=_count_quarantined(seen, rule.id),
        held=_held_firing(seen, rule.id),
        succeeded_at=_instant_of(seen.succeeded, rule.id),
        oldest=waiting.oldest if waiting else None,
        outcome=seen.outcomes.get(name),
        next_at=_next_instant(rule, context),
    )


def _instant_of(instants: Mapping[str, int], rule_id: str) -> datetime | None:
    microseconds = instants.get(rule_id)
    return instant(microseconds) if microseconds else None


def _held_firing(seen: FactsSeen, rule_id: str) -> str:
    return seen.held[rule_id].firing_id if rule_id in seen.held else ""


def _count_quarantined(seen: FactsSeen, rule_id: str) -> int:
    return sum(count for (rule, _), count in seen.quarantined.items() if rule == rule_id)


def _next_instant(rule: ConsolidationRule, context: _Context) -> datetime | None:
    due = rule.due
    if not isinstance(due, Cron) or not rule.enabled:
        return None
    zone = due.timezone or context.timezone
    return cron.next_instant(due.expression, zone, after=context.now)


def _removed_rules(rules: RuleSet, seen: FactsSeen) -> list[RemovedRule]:
    """Return the rules that have a watermark and are no longer loaded, by id."""
    loaded = {rule.id for rule in rules.rules}
    return [
        RemovedRule(
            id=rule_id,
            watermark=mark,
            fired_at=_instant_of(seen.fired, rule_id),
            quarantined=_count_quarantined(seen, rule_id),
            held=_held_firing(seen, rule_id),
        )
        for rule_id, mark in sorted(seen.marks.items())
        if rule_id not in loaded
    ]
