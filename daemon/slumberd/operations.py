"""What people ask of a state directory: one method each, whoever runs it."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from slumberd.consolidator import Consolidator, Report
from slumberd.control import Answer, Operation, Peer
from slumberd.core.record import Outcome, Record
from slumberd.core.rule import ConsolidationRule
from slumberd.errors import UsageError
from slumberd.lines import timestamp
from slumberd.ports import Clock
from slumberd.rulebook import RuleSet
from slumberd.stores.facts import SQLiteFactStore
from slumberd.stores.memory import SQLiteMemoryStore

LISTED = 10_000
"""Deltas that an answer lists at most; all are counted."""


@dataclass(frozen=True, slots=True)
class Stores:
    """The two stores of a state directory."""

    memory: SQLiteMemoryStore
    facts: SQLiteFactStore


class Operations:
    """Does what is asked, one thing at a time.

    Every answer to what changes facts has ``dry_run``, and with it nothing is written.

    Attributes:
        turn: Held by whoever changes the facts.
    """

    def __init__(
        self,
        stores: Stores,
        rules: Callable[[], RuleSet],
        consolidator: Consolidator,
        clock: Clock,
        *,
        stop: asyncio.Event | None = None,
    ) -> None:
        self._stores = stores
        self._rules = rules
        self._consolidator = consolidator
        self._clock = clock
        self._stop = stop
        self.turn = asyncio.Lock()

    def by_name(self) -> dict[str, Operation]:
        """Return every operation by the name that a request gives."""
        return {"fire": self.fire, "undo": self.undo}

    async def fire(self, request: dict[str, Any], peer: Peer) -> Answer:
        """Fire ``rules``, a list of ids, or every enabled one for null."""
        rules = chosen(self._rules(), request.get("rules"))
        async with self.turn:
            reports = [await self._fire(rule, request, peer) for rule in rules]
        return {"reports": [as_document(report) for report in reports]}

    async def _fire(self, rule: ConsolidationRule, request: dict[str, Any], peer: Peer) -> Report:
        now = self._clock.now()
        if request.get("dry_run"):
            return await self._consolidator.rehearse(rule, now)
        return await self._consolidator.fire(rule, "manual", now, by=str(peer), stop=self._stop)

    async def undo(self, request: dict[str, Any], peer: Peer) -> Answer:
        """Undo ``firing``, the id of one."""
        dry_run = bool(request.get("dry_run"))
        async with self.turn:
            outcome = await self._stores.facts.undo(
                str(request.get("firing")), at=self._clock.now(), by=str(peer), dry_run=dry_run
            )
            return await self._told(outcome, dry_run=dry_run)

    async def _told(self, outcome: Outcome, *, dry_run: bool) -> Answer:
        """Write the log lines of what was done, and return it as JSON takes it."""
        if not dry_run:
            await self._consolidator.tell_again()
        return {
            "firing_id": None if dry_run else outcome.firing_id,
            "counts": counted(outcome.records),
            "deltas": deltas_of(outcome.records),
        }


def counted(records: Sequence[Record]) -> dict[str, int]:
    """Return how many deltas there are of each kind."""
    kinds = Counter(record.kind for record in records)
    del kinds["firing"]
    return dict(sorted(kinds.items()))


def chosen(rules: RuleSet, ids: object) -> list[ConsolidationRule]:
    """Return some rules by id, in order of id; all enabled ones for None.

    Raises:
        UsageError: There is no such rule.
    """
    if ids is None:
        return [rule for rule in rules.rules if rule.enabled]
    if not isinstance(ids, list):
        raise UsageError("'rules' must be a list of rule ids")
    known = {rule.id: rule for rule in rules.rules}
    if unknown := [name for name in ids if name not in known]:
        raise UsageError(f"no rule {unknown[0]!r}; there are {', '.join(known) or 'none'}")
    return [known[name] for name in sorted(set(ids))]


def as_document(report: Report) -> dict[str, Any]:
    """Return a report as JSON takes it; with the deltas of a rehearsal."""
    document: dict[str, Any] = {
        "rule_id": report.rule_id,
        "firing_ids": report.firing_ids,
        "channels": {channel: counts._asdict() for channel, counts in report.channels.items()},
    }
    if report.rehearsed:
        document["deltas"] = deltas_of(report.records)
    return document


def deltas_of(records: Sequence[Record]) -> list[dict[str, Any]]:
    """Return what a rehearsal would do, at most `LISTED` deltas, as JSON takes it."""
    acts = [record for record in records if record.kind != "firing"]
    return [
        {
            "kind": record.kind,
            "rule_id": record.rule_id,
            "fact_id": record.fact_id,
            "replaces": record.replaces,
            "source_episode_ids": record.source_episode_ids,
            "reason": record.reason,
        }
        for record in acts[:LISTED]
    ]


def record_document(record: Record) -> dict[str, Any]:
    """Return a row of the ledger as JSON takes it."""
    return {**record._asdict(), "at": timestamp(record.at)}
