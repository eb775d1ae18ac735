"""Read what `status` shows of a state directory, without changing it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Container, Mapping
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any, NamedTuple

from slumberd.daemon.stores import inspections_of
from slumberd.model.episode import instant, latest_at
from slumberd.model.errors import BudgetSpentError
from slumberd.model.extraction import ModelUsage
from slumberd.model.rule import ConsolidationRule
from slumberd.model.store_status import Backlog, FactStoreStatus, LogRange
from slumberd.model.texts import AUTO
from slumberd.operations.reads.rule_states import RuleState, name_in_ledger, timestamp_or_none
from slumberd.rules.rule_loader import RuleSet
from slumberd.rules.settings import Settings
from slumberd.rules.settings_schema import BudgetSettings
from slumberd.search.languages import recognise, words_of
from slumberd.search.saved_indexes import size_of_indexes
from slumberd.storage.episodes.rows import instant_or_none
from slumberd.storage.inspections import EpisodeInspection
from slumberd.workers.language_models.budget import Budget
from slumberd.workers.scheduling.rule_status import RuleProgress, rule_statuses, start_of

_MOST_PENDING = 10**9
_NO_BACKLOG = Backlog(0, None)
_EMPTY = FactStoreStatus(facts=0, rows=0, unlogged=0, triggered=False)
"""The status of a fact store that does not exist yet."""

_NEWEST_ROWS = 500
"""Rows of the episode log, the newest, whose language is recognised."""

_UNDECIDED = "undecided"
"""In place of a language: the text is too short to decide. It counts as the first of its scope."""


@dataclass(frozen=True, slots=True)
class RemovedRule:
    """A rule that has fired and is no longer loaded; it keeps its watermark and its facts.

    Attributes:
        watermark: The log position of the last version that it has evaluated; if the rule is
            loaded again, it resumes there.
        fired_at: When its last batch began; None when that is not recorded.
        quarantined: The number of its episodes in quarantine.
        held_firing_id: The firing id of its batch that awaits approval; empty when there is none.
    """

    id: str
    watermark: int
    fired_at: datetime | None
    quarantined: int
    held_firing_id: str

    def document(self) -> dict[str, Any]:
        """Return the status as a JSON object."""
        at = timestamp_or_none(self.fired_at)
        return {**asdict(self), "fired_at": at, "held_firing_id": self.held_firing_id or None}


@dataclass(frozen=True, slots=True)
class StatusReport:
    """The status of a state directory.

    Attributes:
        episodes: The number of episodes; None when their store does not exist.
        seen: The status of the fact store; None when it does not exist yet.
        rules: The loaded rules, by id.
        removed: The rules that have fired and are no longer loaded, by id.
    """

    episodes: int | None
    seen: FactStoreStatus | None
    rules: list[RuleState]
    removed: list[RemovedRule]

    @property
    def facts(self) -> int | None:
        """The number of current facts; None when the fact store does not exist."""
        return self.seen.facts if self.seen else None

    @property
    def ledger_rows(self) -> int:
        """The number of rows of the ledger; 0 when the fact store does not exist."""
        return self.seen.rows if self.seen else 0


def read_status(
    settings: Settings, rules: RuleSet, now: datetime, paused: Container[str] = ()
) -> StatusReport:
    """Read the status of the databases and rules. Creates no file, not even a write-ahead log.

    Args:
        now: The wall clock.
        paused: The ids of the paused rules.

    Raises:
        StoreError: A database cannot be read.
    """
    episodes, facts = inspections_of(settings)
    seen = facts.status() if facts.exists() else None
    known = seen or _EMPTY
    backlogs = None
    if episodes.exists():
        backlogs = read_backlogs(episodes, rules, known, lambda _: _MOST_PENDING)
    context = StatusContext(settings, known, backlogs, paused, now)
    count = backlogs.episodes if backlogs else None
    return StatusReport(count, seen, rule_states(rules, context), _removed_rules(rules, known))


class Backlogs(NamedTuple):
    """What the store of episodes holds.

    Attributes:
        episodes: How many episodes there are.
        by_rule: The versions that are pending for each rule that reads episodes.
    """

    episodes: int
    by_rule: Mapping[str, Backlog]


def read_backlogs(
    episodes: EpisodeInspection,
    rules: RuleSet,
    seen: FactStoreStatus,
    most: Callable[[ConsolidationRule], int],
) -> Backlogs | None:
    """Read what is pending for each rule; None when slumberd never opened the store.

    Args:
        episodes: Looks at the episodes.
        most: Returns how many versions are counted for a rule at most.
    """
    unread = {
        rule.id: _unread_by(rule, seen, most(rule)) for rule in rules.rules if rule.reads_episodes
    }
    status = episodes.status([log_range for log_range in unread.values() if log_range])
    if status is None:
        return None
    by_rule = {
        rule_id: status.backlogs[log_range] if log_range else _NO_BACKLOG
        for rule_id, log_range in unread.items()
    }
    return Backlogs(status.episodes, by_rule)


def _unread_by(rule: ConsolidationRule, seen: FactStoreStatus, most: int) -> LogRange | None:
    start = start_of(rule, seen.watermarks.get(rule.id))
    return None if start is None else LogRange(start, most, rule.id)


class StatusContext(NamedTuple):
    """What the states of all rules are computed from.

    Attributes:
        backlogs: What is pending; None when this is unknown.
        paused: The ids of the paused rules.
        now: The wall clock.
    """

    settings: Settings
    seen: FactStoreStatus
    backlogs: Backlogs | None
    paused: Container[str]
    now: datetime


def rule_states(rules: RuleSet, context: StatusContext) -> list[RuleState]:
    """Return the status of each loaded rule, in their order."""
    progresses = [(rule, _progress(rule, context)) for rule in rules.rules]
    zone = context.settings.timezone
    tolerance = context.settings.memory.future_tolerance
    statuses = rule_statuses(
        progresses, timezone=zone, now=context.now, tolerance_seconds=tolerance
    )
    return [
        RuleState(
            rule=rule,
            file=rules.sources[rule.id],
            status=status,
            oldest=backlog.oldest if (backlog := _backlog_of(rule, context)) else None,
            fired_at=_fired_at(rule, context.seen),
            outcome=context.seen.outcomes.get(name_in_ledger(rule)),
            readings=context.seen.readings.get(rule.id),
        )
        for rule, status in zip(rules.rules, statuses, strict=True)
    ]


def _progress(rule: ConsolidationRule, context: StatusContext) -> RuleProgress:
    seen, backlog = context.seen, _backlog_of(rule, context)
    latest = latest_at(context.now, context.settings.memory.future_tolerance)
    naive, fired_at = context.settings.memory.naive_timestamps, _fired_at(rule, seen)
    oldest = backlog.oldest if backlog else None
    return RuleProgress(
        watermark=seen.watermarks.get(rule.id),
        served=instant(seen.served[rule.id]) if rule.id in seen.served else None,
        pending=backlog.pending if backlog else None,
        oldest_at=instant_or_none(oldest, naive) if oldest else None,
        # A firing reads all that is pending.
        full_seconds=(context.now - fired_at).total_seconds() if fired_at else None,
        paused=rule.id in context.paused,
        held_firing_id=_held_firing(seen, rule.id),
        quarantined=_count_quarantined(seen, rule.id),
        succeeded_at=_instant_of(seen.succeeded, rule.id),
        arrived=sum(at <= latest for at in seen.future.get(rule.id, ())),
    )


def _backlog_of(rule: ConsolidationRule, context: StatusContext) -> Backlog | None:
    return context.backlogs.by_rule.get(rule.id) if context.backlogs else None


def _fired_at(rule: ConsolidationRule, seen: FactStoreStatus) -> datetime | None:
    return _instant_of(seen.fired, name_in_ledger(rule))


def _instant_of(instants: Mapping[str, int], rule_id: str) -> datetime | None:
    microseconds = instants.get(rule_id)
    return instant(microseconds) if microseconds else None


def _held_firing(seen: FactStoreStatus, rule_id: str) -> str:
    return seen.held[rule_id].firing_id if rule_id in seen.held else ""


def _count_quarantined(seen: FactStoreStatus, rule_id: str) -> int:
    return sum(count for (rule, _), count in seen.quarantined.items() if rule == rule_id)


def _removed_rules(rules: RuleSet, seen: FactStoreStatus) -> list[RemovedRule]:
    """Return the rules that have a watermark and are no longer loaded, by id."""
    loaded = {rule.id for rule in rules.rules}
    return [
        RemovedRule(
            id=rule_id,
            watermark=watermark,
            fired_at=_instant_of(seen.fired, rule_id),
            quarantined=_count_quarantined(seen, rule_id),
            held_firing_id=_held_firing(seen, rule_id),
        )
        for rule_id, watermark in sorted(seen.watermarks.items())
        if rule_id not in loaded
    ]


class Spending(NamedTuple):
    """What the calls of the language model cost in one day, UTC.

    Attributes:
        day: The day, as ``2026-03-09``.
        usage: What they cost.
        budget: What they may cost.
    """

    day: str
    usage: ModelUsage
    budget: BudgetSettings

    @property
    def tokens(self) -> int:
        """The tokens of requests and answers."""
        return self.usage.tokens_in + self.usage.tokens_out

    @property
    def cost(self) -> float:
        """The cost, in the currency of the configured prices."""
        return self.usage.cost_micros / 1_000_000

    @property
    def exceeded(self) -> BudgetSpentError | None:
        """Which part of the budget is spent; None while another call is possible."""
        try:
            Budget(**self.budget.model_dump()).check(self.usage)
        except BudgetSpentError as error:
            return error
        return None

    def document(self) -> dict[str, Any]:
        """Return it as a JSON object."""
        return {
            "day": self.day,
            "calls": self.usage.calls,
            "tokens": self.tokens,
            "cost": self.cost,
            "budget": self.budget.model_dump(),
            "budget_spent": self.exceeded is not None,
        }


def read_spending(settings: Settings, now: datetime) -> Spending | None:
    """Return what the language model cost today; None when none is configured.

    Raises:
        StoreError: The store of episodes cannot be read.
    """
    if settings.language_model.base_url is None:
        return None
    day, episodes = now.date().isoformat(), inspections_of(settings).episodes
    usage = episodes.model_usage(day) if episodes.exists() else ModelUsage()
    return Spending(day, usage, settings.language_model.budget)


def read_languages(settings: Settings) -> dict[str, Any]:
    """Return the language of a search, how many of the newest episodes are of which, and its files.

    Raises:
        StoreError: The store of episodes cannot be read.
    """
    language = settings.search.language
    counted = _count_languages(settings) if language == AUTO else {}
    saved = size_of_indexes(settings.state_dir)
    return {"language": language, "recognised": counted, "saved_bytes": saved}


def _count_languages(settings: Settings) -> dict[str, int]:
    """Return how many episodes are of each language, the most frequent first."""
    episodes = inspections_of(settings).episodes
    if not episodes.exists() or not episodes.has_log():
        return {}
    versions = episodes.latest_versions(_NEWEST_ROWS)
    found = Counter(recognise(words_of(version.content)) or _UNDECIDED for version in versions)
    return dict(sorted(found.items(), key=lambda one: (-one[1], one[0])))
