"""Look at a state directory as it is, whatever is there yet."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from slumberd.cli.reading import has_episode_log, has_ledger, reading_facts, reading_memory
from slumberd.core.cadence import Cron
from slumberd.core.rule import ConsolidationRule
from slumberd.lines import printable, timestamp
from slumberd.rulebook import RuleSet
from slumberd.settings import Settings
from slumberd.stores.facts import SQLiteFactStore
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
    """

    rule: ConsolidationRule
    file: str
    watermark: int | None
    pending: int | None
    fired_at: datetime | None
    quarantined: int
    held: str

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
            "quarantined": self.quarantined,
            "held": self.held or None,
        }


@dataclass(frozen=True, slots=True)
class Survey:
    """A state directory.

    Attributes:
        episodes: How many there are; None when there is no database of them.
        facts: How many stand; None when there is no database of them.
        ledger_rows: How many there are.
        rules: By id.
    """

    episodes: int | None
    facts: int | None
    ledger_rows: int
    rules: list[RuleState]


async def surveyed(settings: Settings, rules: RuleSet) -> Survey:
    """Count what is there. Creates nothing."""
    async with _memory(settings) as memory, _facts(settings) as facts:
        return Survey(
            (await memory.health()).fragment_count if memory else None,
            (await facts.health()).fragment_count if facts else None,
            await facts.ledger_rows() if facts else 0,
            await _states(rules, memory, facts),
        )


@asynccontextmanager
async def _memory(settings: Settings) -> AsyncIterator[SQLiteMemoryStore | None]:
    if not has_episode_log(settings.memory_path):
        yield None
        return
    async with reading_memory(settings) as memory:
        yield memory


@asynccontextmanager
async def _facts(settings: Settings) -> AsyncIterator[SQLiteFactStore | None]:
    if not has_ledger(settings.facts_path):
        yield None
        return
    async with reading_facts(settings) as facts:
        yield facts


async def _states(
    rules: RuleSet, memory: SQLiteMemoryStore | None, facts: SQLiteFactStore | None
) -> list[RuleState]:
    marks = await facts.watermarks() if facts else {}
    fired = await facts.last_firings() if facts else {}
    quarantined = await facts.quarantined() if facts else {}
    held = await facts.held() if facts else {}
    states = []
    for rule in rules.rules:
        mark = marks[rule.id][0].seq if rule.id in marks else None
        at = fired[rule.id][1] if rule.id in fired else None
        pending = await _pending(rule, mark, memory) if memory else None
        source = rules.sources[rule.id]
        waits = rule.id in held and not held[rule.id].approved
        states.append(
            RuleState(
                rule, source, mark, pending, at, quarantined.get(rule.id, 0),
                held[rule.id].firing_id if waits else "",
            )
        )  # fmt: skip
    return states


async def _pending(rule: ConsolidationRule, mark: int | None, memory: SQLiteMemoryStore) -> int:
    if mark is None and rule.start == "now":
        return 0
    return await memory.pending(mark or 0, at_most=_MOST_PENDING)
