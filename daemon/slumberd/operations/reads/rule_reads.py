"""Read what the rules in force have read, when they fire next, and what their filters select."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from slumberd.clock import Clock
from slumberd.config.rule_loader import RuleSet
from slumberd.errors import FilterError
from slumberd.model.episode import FUTURE_TOLERANCE_SECONDS
from slumberd.model.health import RuleStatus
from slumberd.model.rule import ConsolidationRule
from slumberd.model.store_status import LastBatch, Readings
from slumberd.operations import operator_forms as forms
from slumberd.operations import table
from slumberd.operations.caller import Caller
from slumberd.operations.handlers import Answer, Handler, typed_handler
from slumberd.operations.reads.outlooks import Outlook, outlooks
from slumberd.operations.reads.rule_progress import (
    LedgerFigures,
    RuleProgressReader,
    limit_pending,
)
from slumberd.operations.reads.rule_states import RuleState, name_in_ledger
from slumberd.operations.requests import choose_rules
from slumberd.operations.responses import list_cadences
from slumberd.operations.stores import Stores
from slumberd.scheduling.rule_status import RuleProgress, rule_statuses

Loaded = tuple[RuleSet, str]
"""The rules in force, and the time zone of rules without one."""


class RuleReads:
    """Runs requests that read the rules in force.

    Args:
        stores: The open stores.
        progress: Reads how far rules are.
        loaded: Returns the rules in force.
        paused: Returns who paused each paused rule, by the rule's id.
        clock: The time.
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

    def by_name(self) -> dict[str, Handler]:
        """Return the operation by its name."""
        return dict([typed_handler(table.RULES, self.rules)])

    async def rules(self, request: forms.LoadedRulesForm, _: Caller) -> Answer:
        """Return what rules have read, and when they fire next.

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
        return forms.LoadedRules(
            timezone=timezone,
            rules=[
                _loaded_rule(states[outlook.rule or ""], outlook, coverage) for outlook in found
            ],
            share=forms.EpisodeShare(**share._asdict()),
        ).document()

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

    async def _coverage(self, loaded: RuleSet, wanted: set[str]) -> dict[str, forms.Coverage]:
        """Return what the filter of each wanted rule selects; a graph rule has no filter."""
        return {
            rule.id: await self._count_selected(rule)
            for rule in loaded.rules
            if rule.id in wanted and rule.reads_episodes
        }

    async def _count_selected(self, rule: ConsolidationRule) -> forms.Coverage:
        try:
            found = await self._stores.memory.matching(rule)
        except FilterError as error:
            return forms.Coverage(episodes=0, selected=0, failed=0, problem=str(error))
        return forms.Coverage(
            episodes=found.episodes,
            selected=found.matched,
            failed=found.failed,
            problem=found.problem,
        )


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
    state: RuleState, outlook: Outlook, coverage: Mapping[str, forms.Coverage]
) -> forms.LoadedRule:
    return forms.LoadedRule(
        id=state.rule.id,
        state=state.document(),
        outlook=outlook.document(),
        due_at=state.status.due_at,
        late_seconds=state.status.late_seconds,
        coverage=coverage.get(state.rule.id),
    )
