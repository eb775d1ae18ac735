"""Look at a state directory as it is, whatever is there yet."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass, field
from datetime import datetime
from typing import Any

from slumberd.cli.reading import has_episode_log, reading_memory, reading_store
from slumberd.core.cadence import Cron
from slumberd.core.rule import ConsolidationRule
from slumberd.lines import printable, timestamp
from slumberd.rulebook import RuleSet
from slumberd.settings import Settings
from slumberd.stores.memory import SQLiteMemoryStore

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
    """

    rule: ConsolidationRule
    file: str
    watermark: int | None
    pending: int | None
    fired_at: datetime | None
    quarantined: int
    held: str
    succeeded_at: datetime | None

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
        }


@dataclass(frozen=True, slots=True)
class RemovedRule:
    """A rule that has been here and is no longer loaded; it keeps its watermark and its facts.

    Attributes:
        id: Its id.
        store: The fact store that it has been in.
        watermark: The number of the last version that it has read; it goes on from there.
        fired_at: When its last batch began.
        quarantined: How many episodes it could not read.
        held: The batch of it that waits for a person; empty when none does.
    """

    id: str
    store: str
    watermark: int
    fired_at: datetime | None
    quarantined: int
    held: str

    def document(self) -> dict[str, Any]:
        """Return it as JSON takes it."""
        at = timestamp(self.fired_at) if self.fired_at else None
        return {**asdict(self), "fired_at": at, "held": self.held or None}


@dataclass(frozen=True, slots=True)
class StoreState:
    """One fact store.

    Attributes:
        facts: How many stand; None when there is no database of them.
        ledger_rows: How many there are.
        marks: The number of the last version that each rule has read.
        fired: When each rule's last batch began.
        quarantined: How many episodes each rule could not read.
        waiting: The batch of each rule that waits for a person.
        succeeded: When each rule's last firing that went well began.
    """

    facts: int | None = None
    ledger_rows: int = 0
    marks: Mapping[str, int] = field(default_factory=dict)
    fired: Mapping[str, datetime] = field(default_factory=dict)
    quarantined: Mapping[str, int] = field(default_factory=dict)
    waiting: Mapping[str, str] = field(default_factory=dict)
    succeeded: Mapping[str, datetime] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Survey:
    """A state directory.

    Attributes:
        episodes: How many there are; None when there is no database of them.
        stores: The fact stores by name, the one of all channels without their own first.
        rules: By id.
        removed: Rules that have been here and are no longer loaded.
    """

    episodes: int | None
    stores: dict[str, StoreState]
    rules: list[RuleState]
    removed: list[RemovedRule]

    @property
    def facts(self) -> int | None:
        """How many facts stand; None when there is no database of them."""
        counts = [one.facts for one in self.stores.values() if one.facts is not None]
        return sum(counts) if counts else None

    @property
    def ledger_rows(self) -> int:
        """How many rows the ledgers have."""
        return sum(one.ledger_rows for one in self.stores.values())


async def surveyed(settings: Settings, rules: RuleSet) -> Survey:
    """Count what is there. Creates nothing."""
    stores = {name: await _store_state(settings, name) for name in settings.facts_paths}
    async with _memory(settings) as memory:
        episodes = (await memory.health()).fragment_count if memory else None
        states = []
        for rule in rules.rules:
            own = {settings.store_of(channel) for channel in rule.then_emits}
            here = [state for name, state in stores.items() if name in own]
            states.append(await _state(rule, rules.sources[rule.id], here, memory))
    return Survey(episodes, stores, states, _removed(rules, stores))


@asynccontextmanager
async def _memory(settings: Settings) -> AsyncIterator[SQLiteMemoryStore | None]:
    if not has_episode_log(settings.memory_path):
        yield None
        return
    async with reading_memory(settings) as memory:
        yield memory


async def _store_state(settings: Settings, name: str) -> StoreState:
    async with reading_store(settings, name) as facts:
        if facts is None:
            return StoreState()
        return StoreState(
            facts=(await facts.health()).fragment_count,
            ledger_rows=await facts.ledger_rows(),
            marks={rule: at.seq for rule, (at, _) in (await facts.watermarks()).items()},
            fired={rule: at for rule, (_, at) in (await facts.last_firings()).items()},
            quarantined=await facts.quarantined(),
            waiting={
                rule: held.firing_id
                for rule, held in (await facts.held()).items()
                if not held.approved
            },
            succeeded=await facts.successes(),
        )


async def _state(
    rule: ConsolidationRule,
    file: str,
    stores: Sequence[StoreState],
    memory: SQLiteMemoryStore | None,
) -> RuleState:
    """Return how far a rule has come, in the store where it lags behind."""
    marks = [store.marks[rule.id] for store in stores if rule.id in store.marks]
    mark = min(marks) if len(marks) == len(stores) else None
    return RuleState(
        rule,
        file,
        mark,
        await _pending(rule, mark, memory) if memory else None,
        max((one.fired[rule.id] for one in stores if rule.id in one.fired), default=None),
        sum(one.quarantined.get(rule.id, 0) for one in stores),
        ", ".join(one.waiting[rule.id] for one in stores if rule.id in one.waiting),
        _least([one.succeeded.get(rule.id) for one in stores]),
    )


def _least(instants: Sequence[datetime | None]) -> datetime | None:
    """Return the earliest; None when one is missing, for a rule is as well as its worst store."""
    known = [instant for instant in instants if instant is not None]
    return min(known, default=None) if len(known) == len(instants) else None


def _removed(rules: RuleSet, stores: Mapping[str, StoreState]) -> list[RemovedRule]:
    """Return the rules that have a watermark and are not loaded, by id and store."""
    loaded = {rule.id for rule in rules.rules}
    return [
        RemovedRule(
            rule_id,
            name,
            mark,
            store.fired.get(rule_id),
            store.quarantined.get(rule_id, 0),
            store.waiting.get(rule_id, ""),
        )
        for name, store in stores.items()
        for rule_id, mark in sorted(store.marks.items())
        if rule_id not in loaded
    ]


async def _pending(rule: ConsolidationRule, mark: int | None, memory: SQLiteMemoryStore) -> int:
    if mark is None and rule.start == "now":
        return 0
    return await memory.pending(mark or 0, at_most=_MOST_PENDING)
