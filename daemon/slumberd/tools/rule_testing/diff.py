"""Compare the facts that a candidate rule set would make with those of the present rules."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Literal

from slumberd.clock import Clock
from slumberd.consolidation.firing import FireRequest
from slumberd.daemon.composition import rule_runner_of
from slumberd.model.errors import UsageError
from slumberd.model.predicates import Several
from slumberd.model.rule import ConsolidationRule
from slumberd.rules.rule_loader import RuleSet
from slumberd.rules.settings import Settings
from slumberd.storage.audit.results import Totals
from slumberd.storage.sqlite.compare import Comparison
from slumberd.tools.rule_testing.preview import Copy, ProgressCallback, ReasonCounter, copy_data

ChangeKind = Literal["added", "removed", "changed", "unchanged"]

_FIELDS = tuple(name for name in ConsolidationRule.model_fields if name != "id")


@dataclass(frozen=True, slots=True)
class RuleChange:
    """The change of one rule.

    Attributes:
        before: The present rule; None for an added one.
        after: The rule of the candidate; None for a removed one.
        held: The deletion limits that its firing would exceed, so that it would await approval.
        resting: For a removed rule: how many facts only this rule promotes; they stay current.
        unrecorded: Whether episodes are left out, since the answer of a language model is missing.
    """

    rule_id: str
    change: ChangeKind
    before: ConsolidationRule | None
    after: ConsolidationRule | None
    held: Sequence[str] = ()
    resting: int = 0
    unrecorded: bool = False

    @property
    def fields(self) -> list[str]:
        """The keys that differ in a rule that both sides have."""
        if self.before is None or self.after is None:
            return []
        return [key for key in _FIELDS if getattr(self.before, key) != getattr(self.after, key)]

    @property
    def left(self) -> list[str]:
        """The channels that the rule no longer promotes into; its facts there stay current."""
        if self.before is None or self.after is None:
            return []
        return sorted({*self.before.then_emits} - {*self.after.then_emits})

    @property
    def backfilled(self) -> bool:
        """Whether the rule is backfilled: it selects or promotes otherwise than before."""
        if self.after is None or not self.after.enabled:
            return False
        return self.before is None or _promotion_keys(self.before) != _promotion_keys(self.after)

    @property
    def fired(self) -> bool:
        """Whether the rule fires in the comparison: it is new, changed or newly enabled."""
        if self.after is None or not self.after.enabled:
            return False
        return self.backfilled or self.before is None or not self.before.enabled


def _promotion_keys(rule: ConsolidationRule) -> tuple[object, ...]:
    """Return the keys of a rule that decide which facts it promotes."""
    return (
        rule.when_filter,
        sorted(rule.then_emits),
        rule.salience,
        rule.extract,
        rule.stages,
        rule.summariser,
    )


@dataclass(frozen=True, slots=True)
class Differences:
    """The differences between the facts of the present and the candidate rules.

    Attributes:
        rules: The changes of the rules, by id.
        multi_valued: The multi-valued predicates of the present rules and of the candidate, for
            each channel where they differ.
        held: The present rules whose batch exceeds a deletion limit, with that limit. The
            comparison approves such batches on both sides.
        totals: How many facts differ.
        facts: The facts that differ; usable until the context manager of `find_differences` ends.
    """

    rules: Sequence[RuleChange]
    multi_valued: Mapping[str, tuple[Several, Several]]
    held: Mapping[str, str]
    totals: Totals
    facts: Comparison


def select_candidate(present: RuleSet, candidate: RuleSet, only: Sequence[str]) -> RuleSet:
    """Return the candidate, or the present rules with only some rules of the candidate.

    Args:
        present: The rules in force.
        candidate: The rules that may take their place.
        only: The ids of the rules to take; empty for the whole candidate with its channels.

    Raises:
        UsageError: Neither side has one of the rules.
    """
    if not only:
        return candidate
    ids = {rule.id for side in (present, candidate) for rule in side.rules}
    if unknown := [name for name in only if name not in ids]:
        known = ", ".join(sorted(ids)) or "none"
        raise UsageError(f"no rule {unknown[0]!r} on either side; there are {known}")
    rules = [
        *(rule for rule in present.rules if rule.id not in only),
        *(rule for rule in candidate.rules if rule.id in only),
    ]
    return replace(present, rules=tuple(sorted(rules, key=lambda rule: rule.id)))


def changes_of(before: RuleSet, after: RuleSet) -> list[RuleChange]:
    """Return the changes between two rule sets, by rule id."""
    old = {rule.id: rule for rule in before.rules}
    new = {rule.id: rule for rule in after.rules}
    return [_change(name, old.get(name), new.get(name)) for name in sorted({*old, *new})]


def _change(
    rule_id: str, before: ConsolidationRule | None, after: ConsolidationRule | None
) -> RuleChange:
    if before is None:
        return RuleChange(rule_id, "added", before, after)
    if after is None:
        return RuleChange(rule_id, "removed", before, after)
    same = before.content_hash == after.content_hash
    return RuleChange(rule_id, "unchanged" if same else "changed", before, after)


@asynccontextmanager
async def find_differences(
    settings: Settings,
    present: RuleSet,
    candidate: RuleSet,
    *,
    clock: Clock,
    show_step: ProgressCallback,
    user: str | None = None,
) -> AsyncIterator[Differences]:
    """Apply a candidate rule set to a copy of the data, and yield the differences of the facts.

    First the present rules consolidate all pending episodes. Then the channels of the candidate
    apply, and each new or changed rule is backfilled and fires. The facts of a removed rule stay
    current, as after a restart of the daemon without it.

    Args:
        settings: The settings of the data; a daemon may run on it.
        present: The rules in force.
        candidate: The rules that may take their place.
        clock: The clock of the firings.
        show_step: Receives the next step, for a progress display.
        user: The user whose facts are compared; None compares all.

    Raises:
        NoInputError: There are no episodes yet.
        FilterError: A filter exceeded its budget.
        StoreError: The disk has no space for a copy, or the originals cannot be read.
    """
    async with copy_data(settings, clock, show_step) as copy:
        trial = _Trial(copy, present, clock, show_step)
        held = await trial.consolidate()
        async with Comparison(copy.settings.facts_path, copy.folder / "compared.db") as facts:
            await facts.keep()
            changes = await trial.replace(candidate, changes_of(present, candidate))
            show_step("comparing the facts")
            totals = await facts.compare(user)
            changes = await _count_resting(changes, facts)
            yield Differences(changes, _channel_changes(present, candidate), held, totals, facts)


async def _count_resting(changes: Sequence[RuleChange], facts: Comparison) -> list[RuleChange]:
    """Return the changes, with the number of facts that only a removed rule promotes."""
    if not any(change.change == "removed" for change in changes):
        return list(changes)
    resting = await facts.count_sole_promotions()
    return [
        replace(change, resting=resting.get(change.rule_id, 0))
        if change.change == "removed"
        else change
        for change in changes
    ]


def _channel_changes(before: RuleSet, after: RuleSet) -> dict[str, tuple[Several, Several]]:
    none: Several = frozenset()
    found = {
        name: (before.multi_valued.get(name, none), after.multi_valued.get(name, none))
        for name in sorted({*before.multi_valued, *after.multi_valued})
    }
    return {name: (old, new) for name, (old, new) in found.items() if old != new}


class _Trial:
    """Applies rules to one copy of the data."""

    def __init__(
        self, copy: Copy, rules: RuleSet, clock: Clock, show_step: ProgressCallback
    ) -> None:
        self._rules = rules
        self._clock = clock
        self._show_step = show_step
        self._facts = copy.stores.facts
        self._consolidator = rule_runner_of(
            copy.settings, copy.stores, ReasonCounter(), clock
        ).consolidator

    async def consolidate(self) -> dict[str, str]:
        """Consolidate pending episodes; return the rules that exceeded a deletion limit."""
        await self._facts.ledger.rewrite_facts(at=self._clock.now())
        await self._facts.ledger.set_channels(self._rules.multi_valued, at=self._clock.now())
        enabled = [rule for rule in self._rules.rules if rule.enabled]
        held = {rule.id: (await self._fire_all(rule))[0] for rule in enabled}
        return {rule_id: problems[0] for rule_id, problems in held.items() if problems}

    async def replace(self, rules: RuleSet, changes: Sequence[RuleChange]) -> list[RuleChange]:
        """Apply other rules; return the changes, with the deletion limits that they exceeded."""
        self._rules = rules
        await self._facts.ledger.set_channels(rules.multi_valued, at=self._clock.now())
        return [await self._apply(change) for change in changes]

    async def _apply(self, change: RuleChange) -> RuleChange:
        rule = change.after
        if rule is None or not change.fired:
            return change
        unrecorded = False
        problems = []
        if change.backfilled:
            self._show_step(f"backfilling {rule.id}")
            report = await self._consolidator.backfill(rule, self._clock.now(), by="")
            if report.held is not None:
                problems.append(report.held.problem)
                report = await self._consolidator.backfill(
                    rule, self._clock.now(), by="", approved=report.held
                )
            unrecorded = report.unrecorded
        held, waits = await self._fire_all(rule)
        return replace(change, held=[*problems, *held], unrecorded=unrecorded or waits)

    async def _fire_all(self, rule: ConsolidationRule) -> tuple[list[str], bool]:
        """Fire a rule to the end of the log, or to an episode that waits for a language model.

        Returns:
            The deletion limits that it exceeded, and whether an episode waits.
        """
        self._show_step(f"firing {rule.id}")
        problems = []
        request = FireRequest(rule, "manual", self._clock.now())
        while held := (report := await self._consolidator.fire(request)).held:
            problems.append(held.problem)
            await self._facts.ledger.decide(held, approve=True, at=self._clock.now(), by="")
        return problems, report.unrecorded
