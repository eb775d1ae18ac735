"""Read what the rules in force have read, when they fire next, and what their filters select."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import Annotated, Any

from pydantic import Field

from slumberd.clock import Clock
from slumberd.model.episode import FUTURE_TOLERANCE_SECONDS
from slumberd.model.errors import FilterError, NoInputError
from slumberd.model.health import RuleStatus
from slumberd.model.rule import ConsolidationRule
from slumberd.model.store_status import LastBatch, Readings
from slumberd.operations.caller import Caller, Right
from slumberd.operations.example_values import AT, COUNTS, HASH
from slumberd.operations.forms import Name, OperatorForm, Result, choose_rules
from slumberd.operations.handlers import Answer, Example, operation
from slumberd.operations.reads.rule_states import (
    LedgerFigures,
    Outlook,
    RuleProgressReader,
    RuleState,
    limit_pending,
    name_in_ledger,
    outlooks,
)
from slumberd.operations.responses import list_cadences
from slumberd.operations.stores import Stores
from slumberd.rules.rule_loader import RuleSet
from slumberd.storage.facts.store import EngineFactStore
from slumberd.workers.scheduling.rule_status import RuleProgress, rule_statuses

Loaded = tuple[RuleSet, str]
"""The rules in force, and the time zone of rules without one."""


MOST_INSTANTS = 100
"""The most instants of one rule that are computed."""


LOADED_RULE: dict[str, Any] = {
    "id": "home",
    "state": {
        "id": "home",
        "cadence": {"cron": "0 3 * * *"},
        "enabled": True,
        "then_emits": ["facts"],
        "file": "rules/home.yaml",
        "watermark": 17,
        "pending": 3,
        "fired_at": AT,
        "last_success": AT,
        "quarantined": 1,
        "held_firing_id": None,
        "oldest_pending": AT,
        "last_outcome": COUNTS,
        "readings": {
            "read": 100,
            "learned": 31,
            "said_nothing": 60,
            "filtered": 8,
            "quarantined": 1,
            "unchanged": 0,
        },
        "next_at": "2026-03-02T03:00:00Z",
        "paused": False,
    },
    "outlook": {
        "rule": "home",
        "enabled": True,
        "paused": False,
        "paused_by": None,
        "every": None,
        "cron": "0 3 * * *",
        "timezone": "UTC",
        "words": "at 03:00, every day",
        "next": [{"local": "2026-03-02T03:00:00+00:00", "utc": "2026-03-02T03:00:00Z"}],
        "notes": [],
    },
    "due_at": None,
    "late_seconds": 0.0,
    "coverage": {"episodes": 120, "selected": 31, "failed": 0, "problem": ""},
}


class RuleCadence(Result):
    """When a rule fires.

    Attributes:
        id: The rule.
        enabled: Whether it fires at all.
        cadence: As the rule file has it.
        paused_by: Who paused it; None when it is not paused.
        served: The last cron instant that it has served; None before the first one.
    """

    id: str
    enabled: bool
    cadence: dict[str, Any]
    paused_by: str | None
    served: datetime | None


class Cadences(Result):
    """The cadence of each rule.

    Attributes:
        timezone: The time zone of rules without one.
        rules: The rules in force.
    """

    timezone: str
    rules: list[RuleCadence]


class LoadedRulesForm(OperatorForm):
    """The request ``rules``: how far rules are, and when they fire next.

    Attributes:
        rules: The ids of rules; by default all of them.
        instants: How many instants of each cron expression are computed.
        coverage: Whether to count what each filter selects; this reads all episodes.
    """

    rules: list[str] | None = None
    instants: Annotated[int, Field(ge=1, le=MOST_INSTANTS)] = 5
    coverage: bool = False


class Coverage(Result):
    """How many of the stored episodes a rule's filter selects now.

    Attributes:
        episodes: How many episodes there are.
        selected: How many of them the filter selects.
        failed: On how many of them the filter fails.
        problem: Why it fails on the first of them, or did not end; empty when it does not.
    """

    episodes: int
    selected: int
    failed: int
    problem: str


class LoadedRule(Result):
    """A rule in force.

    Attributes:
        id: The rule.
        state: As `slumberd rules --json` prints it; at most 10,000 pending versions are counted.
        outlook: As `slumberd next --json` prints it.
        due_at: Since when it is due; None when it is not.
        late_seconds: For how long it is due.
        coverage: What its filter selects; None unless the request asks, and for a graph rule.
    """

    id: str
    state: dict[str, Any]
    outlook: dict[str, Any]
    due_at: datetime | None
    late_seconds: float
    coverage: Coverage | None


class EpisodeShare(Result):
    """How many of the last episodes that some rule read became facts.

    Attributes:
        episodes: The last of them, at most 100.
        learned: Those from which a rule learned something.
    """

    episodes: int = 0
    learned: int = 0


class LoadedRules(Result):
    """The rules in force.

    Attributes:
        timezone: The time zone of rules without one.
        rules: The rules, by id.
        share: How many of the last episodes that these rules read became facts.
    """

    timezone: str
    rules: list[LoadedRule]
    share: EpisodeShare = EpisodeShare()


class RuleForm(OperatorForm):
    """The request ``rule``: one rule in force.

    Attributes:
        id: The rule.
        instants: How many instants of its cron expression are computed.
        coverage: Whether to count what its filter selects; this reads all episodes.
    """

    id: Name
    instants: Annotated[int, Field(ge=1, le=MOST_INSTANTS)] = 5
    coverage: bool = False


class RuleInForce(LoadedRule):
    """A rule in force; its state has all keys of its definition.

    Attributes:
        rule_hash: The hash of its definition, as each of its firings records it.
        timezone: The time zone of rules without one.
    """

    rule_hash: str
    timezone: str


class RuleReads:
    """Runs requests that read the rules in force.

    Args:
        stores: The open stores.
        progress: Reads how far rules are.
        loaded: Returns the rules in force.
        paused: Returns who paused each paused rule, by the rule's id.
        tolerance_seconds: A served instant that lies further ahead of the clock counts as now.
    """

    def __init__(
        self,
        stores: Stores,
        progress: RuleProgressReader,
        *,
        loaded: Callable[[], Loaded],
        paused: Callable[[], Mapping[str, str]],
        clock: Clock,
        tolerance_seconds: float = FUTURE_TOLERANCE_SECONDS,
    ) -> None:
        self._stores = stores
        self._progress = progress
        self._loaded = loaded
        self._paused = paused
        self._clock = clock
        self._tolerance_seconds = tolerance_seconds

    @operation(
        right=Right.OPERATE,
        read_only=True,
        example=Example(
            {"rules": ["home"], "instants": 1, "coverage": True},
            {
                "timezone": "UTC",
                "rules": [LOADED_RULE],
                "share": {"episodes": 100, "learned": 31},
            },
        ),
    )
    async def rules(self, request: LoadedRulesForm, _: Caller) -> LoadedRules:
        """Return how far each rule has read, and when it fires next.

        Raises:
            UsageError: A rule is unknown.
        """
        loaded, timezone = self._loaded()
        wanted = {rule.id for rule in _choose(loaded, request.rules)}
        figures = await self._progress.figures()
        states = {state.rule.id: state for state in await self._states(loaded, timezone, figures)}
        cadences = list_cadences(
            (rule for rule in loaded.rules if rule.id in wanted),
            self._paused(),
            timezone,
            {rule_id: served for rule_id, (_, served) in figures.marks.items()},
        )
        compute = partial(
            outlooks,
            cadences["rules"],
            timezone,
            self._clock.now(),
            request.instants,
            tolerance_seconds=self._tolerance_seconds,
        )
        found = await asyncio.to_thread(lambda: [*compute()])
        coverage = await self._coverage(loaded, wanted) if request.coverage else {}
        reading = [rule.id for rule in loaded.rules if rule.reads_episodes and rule.id in wanted]
        share = await self._stores.facts.reads.share(reading)
        return LoadedRules(
            timezone=timezone,
            rules=[
                _loaded_rule(states[outlook.rule or ""], outlook, coverage) for outlook in found
            ],
            share=EpisodeShare(**share._asdict()),
        )

    @operation(
        right=Right.OPERATE,
        read_only=True,
        errors=(NoInputError,),
        example=Example(
            {"id": "home", "instants": 1, "coverage": True},
            {**LOADED_RULE, "rule_hash": HASH, "timezone": "UTC"},
        ),
    )
    async def rule(self, request: RuleForm, caller: Caller) -> RuleInForce:
        """Return one rule as the daemon holds it: its definition, its state, and when it fires.

        Raises:
            NoInputError: No such rule is in force.
        """
        loaded, timezone = self._loaded()
        known = {rule.id: rule for rule in loaded.rules}
        if request.id not in known:
            raise NoInputError(request.id, f"the rules in force are {', '.join(known) or 'none'}")
        asked = LoadedRulesForm(
            rules=[request.id], instants=request.instants, coverage=request.coverage
        )
        [found] = (await self.rules(asked, caller)).rules
        return RuleInForce(
            **dict(found), rule_hash=known[request.id].content_hash, timezone=timezone
        )

    async def _states(
        self, loaded: RuleSet, timezone: str, figures: LedgerFigures
    ) -> list[RuleState]:
        # Of all rules, whichever are wanted: the reader remembers since when each one is due.
        progresses = await self._progress.progresses(loaded.rules, figures)
        reads = self._stores.facts.reads
        batches = await reads.last_batches()
        readings = await reads.readings([rule.id for rule in loaded.rules if rule.reads_episodes])
        compute = partial(
            rule_statuses,
            progresses,
            timezone=timezone,
            now=self._clock.now(),
            tolerance_seconds=self._tolerance_seconds,
        )
        statuses = await asyncio.to_thread(compute)
        return [
            _state(loaded, found, status, batches, readings)
            for found, status in zip(progresses, statuses, strict=True)
        ]

    async def _coverage(self, loaded: RuleSet, wanted: set[str]) -> dict[str, Coverage]:
        """Return what the filter of each wanted rule selects; a graph rule has no filter."""
        return {
            rule.id: await self._count_selected(rule)
            for rule in loaded.rules
            if rule.id in wanted and rule.reads_episodes
        }

    async def _count_selected(self, rule: ConsolidationRule) -> Coverage:
        try:
            found = await self._stores.memory.matching(rule)
        except FilterError as error:
            return Coverage(episodes=0, selected=0, failed=0, problem=str(error))
        return Coverage(
            episodes=found.episodes,
            selected=found.matched,
            failed=found.failed,
            problem=found.problem,
        )


class CadenceReads:
    """Runs requests for the cadences of the rules in force.

    Args:
        loaded: Returns the rules in force.
        paused: Returns who paused each paused rule, by the rule's id.
        served: Returns the last cron instant that each rule has served, by the rule's id.
    """

    def __init__(
        self,
        loaded: Callable[[], Loaded],
        paused: Callable[[], Mapping[str, str]],
        served: Callable[[], Awaitable[Mapping[str, datetime]]],
    ) -> None:
        self._loaded = loaded
        self._paused = paused
        self._served = served

    @operation(
        right=Right.OPERATE,
        read_only=True,
        example=Example(
            {},
            {
                "timezone": "UTC",
                "rules": [
                    {
                        "id": "home",
                        "enabled": True,
                        "cadence": {"every": "5m"},
                        "paused_by": None,
                        "served": None,
                    }
                ],
            },
        ),
    )
    async def next(self, _: OperatorForm, __: Caller) -> Annotated[Answer, Cadences]:
        """Return the cadence of each rule, and who paused it."""
        loaded, timezone = self._loaded()
        return list_cadences(loaded.rules, self._paused(), timezone, await self._served())


async def served_instants(facts: EngineFactStore) -> dict[str, datetime]:
    """Return the last cron instant that each rule has served, by the rule's id."""
    marks = await facts.watermarks.positions()
    return {rule_id: at for rule_id, (_, at) in marks.items()}


def _choose(loaded: RuleSet, ids: Sequence[str] | None) -> list[ConsolidationRule]:
    return [*loaded.rules] if ids is None else choose_rules(loaded, ids)


def _state(
    loaded: RuleSet,
    found: tuple[ConsolidationRule, RuleProgress],
    status: RuleStatus,
    batches: Mapping[str, LastBatch],
    readings: Mapping[str, Readings],
) -> RuleState:
    rule, progress = found
    batch = batches.get(name_in_ledger(rule))
    return RuleState(
        rule=rule,
        file=loaded.sources[rule.id],
        status=limit_pending(status),
        oldest=progress.oldest_at.isoformat() if progress.oldest_at else None,
        fired_at=batch.at if batch else None,
        outcome=batch.counts if batch else None,
        readings=readings.get(rule.id),
    )


def _loaded_rule(
    state: RuleState, outlook: Outlook, coverage: Mapping[str, Coverage]
) -> LoadedRule:
    return LoadedRule(
        id=state.rule.id,
        state=state.document(),
        outlook=outlook.document(),
        due_at=state.status.due_at,
        late_seconds=state.status.late_seconds,
        coverage=coverage.get(state.rule.id),
    )
