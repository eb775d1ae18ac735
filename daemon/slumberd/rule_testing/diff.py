"""What a candidate set of rules would make of real data, held against what the present one does."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Literal

from slumberd.clock import Clock
from slumberd.config.rule_loader import RuleSet
from slumberd.config.settings import Settings
from slumberd.consolidation.fire_request import FireRequest
from slumberd.errors import UsageError
from slumberd.model.rule import ConsolidationRule
from slumberd.rule_testing.data_copy import Copy, Telling, copied
from slumberd.rule_testing.preview import Tally
from slumberd.service.composition import rule_runner_of
from slumberd.storage.audit.compare import Comparison, Totals

Change = Literal["added", "removed", "changed", "unchanged"]

_FIELDS = tuple(name for name in ConsolidationRule.model_fields if name != "id")


@dataclass(frozen=True, slots=True)
class RuleChange:
    """What becomes of one rule.

    Attributes:
        rule_id: The rule.
        change: What becomes of it.
        before: As it is in force; None for one that is added.
        after: As the candidate has it; None for one that is removed.
        held: Limits at which the brake would hold its firing until a person decides.
        resting: Of a rule that is removed, how many facts rest on it alone, and stay.
    """

    rule_id: str
    change: Change
    before: ConsolidationRule | None
    after: ConsolidationRule | None
    held: Sequence[str] = ()
    resting: int = 0

    @property
    def fields(self) -> list[str]:
        """What is different in a rule that both sides have."""
        if self.before is None or self.after is None:
            return []
        return [one for one in _FIELDS if getattr(self.before, one) != getattr(self.after, one)]

    @property
    def left(self) -> list[str]:
        """The channels that the rule promotes into no more; what it has promoted there stays."""
        if self.before is None or self.after is None:
            return []
        return sorted({*self.before.then_emits} - {*self.after.then_emits})

    @property
    def backfilled(self) -> bool:
        """Whether the rule is to go over what it has passed: it promotes otherwise than before."""
        if self.after is None or not self.after.enabled:
            return False
        return self.before is None or _promotes(self.before) != _promotes(self.after)

    @property
    def fired(self) -> bool:
        """Whether the rule is to fire, which it would not do, or not so, by itself."""
        if self.after is None or not self.after.enabled:
            return False
        return self.backfilled or self.before is None or not self.before.enabled


def _promotes(rule: ConsolidationRule) -> tuple[object, ...]:
    """Return all of a rule that decides which facts there are."""
    return rule.when_filter, sorted(rule.then_emits), rule.salience


@dataclass(frozen=True, slots=True)
class Differences:
    """What a candidate would make of the facts.

    Attributes:
        rules: What becomes of each rule, by id.
        multi_valued: The predicates that hold several objects in force and in the candidate, by
            channel, where that differs.
        held: Rules in force whose firing the brake holds, or would hold now, and at which limit.
            On both sides they go on as if it had been approved.
        totals: How many facts differ.
        facts: The facts that do, until the block ends that the differences were made for.
    """

    rules: Sequence[RuleChange]
    multi_valued: Mapping[str, tuple[frozenset[str], frozenset[str]]]
    held: Mapping[str, str]
    totals: Totals
    facts: Comparison


def candidate_of(present: RuleSet, candidate: RuleSet, only: Sequence[str]) -> RuleSet:
    """Return a candidate, or the present rules with but some of them taken from it.

    Args:
        present: The rules in force.
        candidate: The rules that may take their place.
        only: Ids of the rules to take; none for the whole candidate, its channels too.

    Raises:
        UsageError: Neither side has such a rule.
    """
    if not only:
        return candidate
    ids = {rule.id for side in (present, candidate) for rule in side.rules}
    if unknown := [name for name in only if name not in ids]:
        told = ", ".join(sorted(ids)) or "none"
        raise UsageError(f"no rule {unknown[0]!r} on either side; there are {told}")
    rules = [
        *(rule for rule in present.rules if rule.id not in only),
        *(rule for rule in candidate.rules if rule.id in only),
    ]
    return replace(present, rules=tuple(sorted(rules, key=lambda rule: rule.id)))


def changes_of(before: RuleSet, after: RuleSet) -> list[RuleChange]:
    """Return what becomes of each rule of two sets, by id."""
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
async def differing(
    settings: Settings,
    present: RuleSet,
    candidate: RuleSet,
    *,
    clock: Clock,
    tell: Telling,
    user: str | None = None,
) -> AsyncIterator[Differences]:
    """Do on a copy what it takes to put a candidate in force, and say what that changes.

    Both sides begin with all that the present rules make of what is there now. Then the candidate's
    channels count, each rule that is new, or promotes otherwise, is backfilled and fires; what a
    rule has promoted that is no more stays, as it does when the daemon is restarted without it.

    Args:
        settings: Where the data is; a daemon may run on it.
        present: The rules in force.
        candidate: The rules that may take their place.
        clock: The time.
        tell: Hears what is done next.
        user: Only this user's facts; None compares all.

    Raises:
        NoInputError: There are no episodes yet.
        FilterError: A filter ran over its budget.
        StoreError: There is no room for a copy, or the originals cannot be read.
    """
    async with copied(settings, clock, tell) as copy:
        trying = _Trying(copy, present, clock, tell)
        held = await trying.settle()
        async with Comparison(copy.settings.facts_path, copy.folder / "compared.db") as facts:
            await facts.keep()
            changes = await trying.replace(candidate, changes_of(present, candidate))
            tell("comparing the facts")
            totals = await facts.compare(user)
            changes = await _rested(changes, facts)
            yield Differences(changes, _channels(present, candidate), held, totals, facts)


async def _rested(changes: Sequence[RuleChange], facts: Comparison) -> list[RuleChange]:
    """Return the changes, with the facts that rest on a removed rule alone counted."""
    if not any(one.change == "removed" for one in changes):
        return list(changes)
    resting = await facts.resting()
    return [
        replace(one, resting=resting.get(one.rule_id, 0)) if one.change == "removed" else one
        for one in changes
    ]


def _channels(before: RuleSet, after: RuleSet) -> dict[str, tuple[frozenset[str], frozenset[str]]]:
    none: frozenset[str] = frozenset()
    found = {
        name: (before.multi_valued.get(name, none), after.multi_valued.get(name, none))
        for name in sorted({*before.multi_valued, *after.multi_valued})
    }
    return {name: (old, new) for name, (old, new) in found.items() if old != new}


class _Trying:
    """Puts rules in force on one copy."""

    def __init__(self, copy: Copy, rules: RuleSet, clock: Clock, tell: Telling) -> None:
        self._rules = rules
        self._clock = clock
        self._tell = tell
        self._facts = copy.stores.facts
        self._consolidator = rule_runner_of(copy.settings, copy.stores, Tally(), clock).consolidator

    async def settle(self) -> dict[str, str]:
        """Let rules in force consume what is pending; return which the brake would have held."""
        await self._facts.redraw(at=self._clock.now())
        await self._facts.set_channels(self._rules.multi_valued, at=self._clock.now())
        enabled = [rule for rule in self._rules.rules if rule.enabled]
        held = {rule.id: await self._fired(rule) for rule in enabled}
        return {rule_id: problems[0] for rule_id, problems in held.items() if problems}

    async def replace(self, rules: RuleSet, changes: Sequence[RuleChange]) -> list[RuleChange]:
        """Let rules take the place of those in force; return the changes, with what was held."""
        self._rules = rules
        await self._facts.set_channels(rules.multi_valued, at=self._clock.now())
        return [await self._put_in_force(change) for change in changes]

    async def _put_in_force(self, change: RuleChange) -> RuleChange:
        rule = change.after
        if rule is None or not change.fired:
            return change
        if change.backfilled:
            self._tell(f"backfilling {rule.id}")
            await self._consolidator.backfill(rule, self._clock.now(), by="")
        return replace(change, held=await self._fired(rule))

    async def _fired(self, rule: ConsolidationRule) -> list[str]:
        """Fire a rule to the end of the log; return at which limits the brake would hold it."""
        self._tell(f"firing {rule.id}")
        problems = []
        request = FireRequest(rule, "manual", self._clock.now())
        while held := (await self._consolidator.fire(request)).held:
            problems.append(held.problem)
            await self._facts.decide(held, approve=True, at=self._clock.now(), by="")
        return problems
