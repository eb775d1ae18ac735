"""The fact stores of a state directory, each with its channels, and what is done in all of them."""

from __future__ import annotations

import asyncio
import gc
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from slumberd.config.rule_loader import RuleSet
from slumberd.consolidation.consolidator import Consolidator, Part, Report
from slumberd.errors import SlumberdError, UsageError
from slumberd.graph.promotion import Promoter
from slumberd.model.fact_ids import channel_of
from slumberd.model.firing import UNTIMED, Held, Limits, Position, Timing, Trigger
from slumberd.model.record import Outcome
from slumberd.model.rule import ConsolidationRule
from slumberd.scheduling.due_finder import Mark
from slumberd.storage.facts.store import SQLiteFactStore


@dataclass(frozen=True, slots=True)
class Branch:
    """One fact store, and what consolidates into it.

    Attributes:
        part: The name of the store, as the configuration has it, and its channels.
        facts: The store.
        consolidator: Into it.
        promoter: What promotes a graph's triples into it; None where no graph can be.
    """

    part: Part
    facts: SQLiteFactStore
    consolidator: Consolidator
    promoter: Promoter | None = None

    @property
    def name(self) -> str:
        """The name of the store."""
        return self.part.store

    async def rehearse(self, rule: ConsolidationRule, at: datetime) -> Report:
        """Say what a firing would do now; write nothing."""
        return await self.firing(rule).rehearse(rule, at)

    def firing(self, rule: ConsolidationRule) -> Consolidator | Promoter:
        """Return who fires a rule.

        Raises:
            UsageError: It promotes a graph, and there is none.
        """
        if rule.reads_episodes:
            return self.consolidator
        if self.promoter is None:
            raise UsageError(f"rule {rule.id!r} promotes a graph, and there is none here")
        return self.promoter

    def takes(self, channel: str) -> bool:
        """Say whether a channel's facts are in the store."""
        return self.part.takes(channel)


class Branches:
    """The branches, the one of all channels without a store of their own first.

    A rule that emits into channels of several stores has a watermark in each: it is due where it
    lags behind, and what holds or fails in one store does not stop it in another.

    Args:
        branches: At least one.
        rules: Returns the rules in force.
    """

    def __init__(self, branches: Sequence[Branch], rules: Callable[[], RuleSet]) -> None:
        self._branches = tuple(branches)
        self._rules = rules
        self._collecting: asyncio.Handle | None = None

    def __iter__(self) -> Iterator[Branch]:
        return iter(self._branches)

    def of_rule(self, rule: ConsolidationRule) -> list[Branch]:
        """Return the branches that a rule fires into."""
        return [one for one in self._branches if any(map(one.takes, rule.then_emits))]

    async def concerned(self, rule: ConsolidationRule) -> list[Branch]:
        """Return the branches that a rule fires into, and those that it left.

        Where a rule emits nothing any more, an edit or a backfill still withdraws.
        """
        own = self.of_rule(rule)
        if not rule.reads_episodes:
            return own
        left = [one for one in self._branches if one not in own]
        return own + [one for one in left if await one.consolidator.left_channels(rule)]

    def of_channel(self, channel: str) -> Branch:
        """Return the branch that a channel's facts are in."""
        return next(one for one in self._branches if one.takes(channel))

    def of_facts(self, fact_ids: Sequence[str]) -> Branch:
        """Return the branch that some facts are in.

        Raises:
            UsageError: They are not all in one.
        """
        found = {branch.name: branch for branch in map(self._of_fact, fact_ids)}
        if len(found) > 1:
            stores = " and ".join(found)
            raise UsageError(f"these facts are in {stores}; name those of one store at a time")
        return next(iter(found.values()))

    def _of_fact(self, fact_id: str) -> Branch:
        return self.of_channel(channel_of(fact_id))

    async def of_firing(self, firing_id: str, channel: str | None) -> Branch:
        """Return the branch that a firing was in; ids are unique within a store only.

        Args:
            firing_id: The firing.
            channel: One that is in its store; None when there is but one store, or no doubt.

        Raises:
            UsageError: More than one store has such a firing, and no channel is given.
        """
        if channel is not None:
            return self.of_channel(channel)
        found = [one for one in self._branches if await one.facts.has_firing(firing_id)]
        if len(found) > 1:
            stores = " and ".join(one.name for one in found)
            raise UsageError(f"{stores} both have a firing {firing_id!r}; name a --channel")
        return found[0] if found else self._branches[0]

    async def fire(  # noqa: PLR0913 # each is asked for by another caller
        self,
        rule: ConsolidationRule,
        trigger: Trigger,
        at: datetime,
        *,
        by: str = "",
        stop: asyncio.Event | None = None,
        timing: Timing = UNTIMED,
        run: str = "",
    ) -> list[Report]:
        """Consolidate everything that is pending for a rule, in each of its stores.

        Args:
            rule: The rule.
            trigger: What made it due.
            at: The instant.
            by: Who asked for it.
            stop: When set, the batch under way is given up whole.
            timing: How it stands to the instants that it serves.
            run: The id that all of its batches share.

        Raises:
            SlumberdError: The first that one of the stores failed with; the others were tried.
        """
        reports, errors = [], []
        with self._uncollected():
            for branch in await self.concerned(rule):
                try:
                    who = branch.firing(rule)
                    fire = who.fire(rule, trigger, at, by=by, stop=stop, timing=timing, run=run)
                    reports.append(await fire)
                except SlumberdError as error:
                    errors.append(error)
        if errors:
            raise errors[0]
        return reports

    @contextmanager
    def _uncollected(self) -> Iterator[None]:
        """Keep Python's collector from walking a batch: it stops every thread for 50 to 100 ms.

        A pass makes no cycles of objects, so there is nothing for it to find.
        """
        enabled = gc.isenabled() or self._collecting is not None
        if self._collecting is not None:
            self._collecting.cancel()
            self._collecting = None
        gc.disable()
        try:
            yield
        finally:
            if enabled:
                # Whoever woke us with an error holds its batch, until we wait for something again.
                self._collecting = asyncio.get_running_loop().call_soon(self._collect)

    def _collect(self) -> None:
        self._collecting = None
        gc.enable()

    async def quarantine(
        self, rules: Sequence[str] | None, episodes: Sequence[str] | None
    ) -> list[dict[str, Any]]:
        """Return entries of the quarantine; of all rules for None, of all episodes for None."""
        return [
            entry
            for branch in self._branches
            for entry in await branch.facts.quarantine()
            if rules is None or entry["rule_id"] in rules
            if episodes is None or entry["episode_id"] in episodes
        ]

    @property
    def behind(self) -> bool:
        """Whether rows of a ledger wait for their log lines."""
        return any(one.consolidator.behind for one in self._branches)

    async def tell_again(self) -> int:
        """Write the log lines that were kept back, of every store; return how many."""
        return sum([await one.consolidator.tell_again() for one in self._branches])

    async def checkpoint(self) -> None:
        """Tell the log how far each ledger reaches."""
        for branch in self._branches:
            await branch.consolidator.checkpoint()

    def limit(self, limits: Limits) -> None:
        """Take other general limits from the next batch on."""
        for branch in self._branches:
            branch.consolidator.limits = limits

    async def redraw(self, at: datetime) -> dict[str, int]:
        """Write the lineages anew whose depth is no longer the configured one.

        Returns:
            How many keys that took, by store.
        """
        return {one.name: await one.facts.redraw(at=at) for one in self._branches}

    async def set_channels(
        self, multi_valued: Mapping[str, frozenset[str]], at: datetime
    ) -> dict[str, Outcome]:
        """Settle again what a change of multi-valued predicates touches.

        Args:
            multi_valued: The predicates that hold several objects at once, by channel.
            at: The instant.

        Returns:
            What came of it, by store; nothing of a store where nothing changed.
        """
        outcomes = {}
        for branch in self._branches:
            own = {name: some for name, some in multi_valued.items() if branch.takes(name)}
            outcome = await branch.facts.set_channels(own, at=at)
            if outcome is not None:
                outcomes[branch.name] = outcome
        return outcomes

    async def watermarks(self) -> dict[str, Mark]:
        """Return where each rule stands, in the store where it lags behind.

        A rule that was never seen in one of its stores is left out, so that it is begun there; a
        store where a batch of the rule waits for a person does not count, unless all of them do.
        """
        marks = {one.name: await one.facts.watermarks() for one in self._branches}
        waiting = await self._waiting()
        found = {}
        for rule in self._rules().rules:
            names = [one.name for one in self.of_rule(rule)]
            going = [name for name in names if name not in waiting[rule.id]] or names
            if all(rule.id in marks[name] for name in going):
                found[rule.id] = _least([marks[name][rule.id] for name in going])
        return found

    async def held(self) -> dict[str, Held]:
        """Return the batches that wait for a person in every store of their rule, by rule."""
        waiting = await self._waiting()
        return {
            rule.id: next(iter(waiting[rule.id].values()))
            for rule in self._rules().rules
            if rule.id in waiting and len(waiting[rule.id]) == len(self.of_rule(rule))
        }

    async def _waiting(self) -> dict[str, dict[str, Held]]:
        """Return the batches that wait for a person, by rule and store."""
        waiting: dict[str, dict[str, Held]] = defaultdict(dict)
        for branch in self._branches:
            for rule_id, held in (await branch.facts.held()).items():
                if not held.approved:
                    waiting[rule_id][branch.name] = held
        return waiting

    async def begin(self, rule_id: str, at: Position, *, served: datetime) -> None:
        """Give a rule its first watermark and served instant in each store that has none of it."""
        for branch in self._of_id(rule_id):
            await branch.facts.begin(rule_id, at, served=served)

    async def serve(
        self, rule_id: str, instant: datetime, *, succeeded_at: datetime | None = None
    ) -> None:
        """Record that a rule's cron instants are served up to an instant; never moves back.

        Args:
            rule_id: The rule.
            instant: The last one that is served.
            succeeded_at: When the firing for it began; None when there was none.
        """
        for branch in self._of_id(rule_id):
            await branch.facts.serve(rule_id, instant, succeeded_at=succeeded_at)

    def _of_id(self, rule_id: str) -> list[Branch]:
        return [b for rule in self._rules().rules if rule.id == rule_id for b in self.of_rule(rule)]


def _least(marks: Sequence[Mark]) -> Mark:
    return min(position for position, _ in marks), min(served for _, served in marks)
