"""The ground that a batch is settled on: what the ledger knows of the acts and keys at hand."""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass, field
from typing import NamedTuple

from slumberd.consolidation.claim import ALL, HAND, Act, Stamp, deletes_by_key
from slumberd.consolidation.incoming import Incoming
from slumberd.consolidation.precedence import (
    DELETIONS,
    Assertion,
    Counted,
    Head,
    Link,
    Meeting,
    MultiValued,
    counting,
    is_declared_slot,
    link,
)

_NOBODY: frozenset[str] = frozenset()


class Standing(NamedTuple):
    """A fact that stands, with what its row is made of."""

    fact_id: str
    counted: Counted
    trail: tuple[Link, ...]


def sources_of_claim(act: Act) -> list[str]:
    """Return the ids of the episodes that a claim comes from, each once."""
    if act.stamp.rank != HAND:
        return [act.stamp.id]
    given = (entry.get("source_episode_ids") for entry in act.lineage)
    found = (one for sources in given if isinstance(sources, list | tuple) for one in sources)
    return list(dict.fromkeys(one for one in found if isinstance(one, str)))


@dataclass(slots=True)
class Ground:
    """What the ledger knows of the acts and keys that are at hand.

    Attributes:
        multi: Which keys hold several objects at once.
        depth: Links of lineage that are kept of what a fact replaced.
        meetings: Per fact id every meeting, oldest first.
        namers: Per fact id the fact ids of acts that name it, in any version.
        heads: Per key its heads by slot; `ALL` is the only slot of a single-valued key.
        full: Per key that is known in full the fact ids of all acts that speak of it.
        waiting: Of the rule that meets, per fact id the version that its gate held back, unless
            it has met it since.
        until: Acts later than this instant, in microseconds, do not count; None counts all.
    """

    multi: MultiValued
    depth: int
    meetings: dict[str, list[Meeting]] = field(default_factory=dict)
    namers: dict[str, set[str]] = field(default_factory=dict)
    heads: dict[str, dict[str, Head]] = field(default_factory=dict)
    full: dict[str, set[str]] = field(default_factory=dict)
    waiting: dict[str, int] = field(default_factory=dict)
    until: int | None = None

    def as_decided(self, met: Incoming) -> Incoming:
        """Return what is met with the act that was read from its version when it was met before.

        What an act is near to was found then, and stays as it was found.
        """
        if met.act is not None:
            for one in self.meetings.get(met.fact_id, ()):
                if one.version == met.version and one.act and one.act.payload == met.act.payload:
                    return met._replace(act=one.act)
        return met

    def counted(self, fact_id: str) -> tuple[Counted, ...]:
        """Return what counts of one fact id."""
        found = counting(self.meetings.get(fact_id, ()))
        if self.until is None:
            return found
        return tuple(one for one in found if one.act.stamp.at <= self.until)

    def counted_as(self, top: Assertion) -> Counted:
        """Return what counts of an assertion that stands."""
        found = self.counted(top.fact_id)
        if len(found) == 1:
            return found[0]
        return next(one for one in found if one.act.stamp == top.stamp and one.act.asserts)

    def targets(self, act: Act) -> list[Act]:
        """Return the assertions that an act names, in its own user, agent and channel."""
        return [
            one.act
            for name in act.names
            for one in self.counted(name)
            if one.act.asserts and one.act.owner == act.owner
        ]

    def head(self, key: str, slot: str) -> Head:
        """Return a slot's head; a new one knows what was retracted of the whole key."""
        slots = self.heads.get(key)
        if slots is None:
            slots = self.heads[key] = {}
        if slot not in slots:
            slots[slot] = Head()
            # Declared facts are covered by deletes only, which DELETIONS keeps.
            own = slot == ALL or slot.startswith(DELETIONS)
            if not own and ALL in slots and ALL in slots[ALL].reach:
                slots[slot].retracted(ALL, slots[ALL].reach[ALL])
        return slots[slot]

    def fold(self, key: str) -> None:
        """Work out a key's heads again from all of its acts."""
        acts = [
            one.act
            for fact_id in self.full[key]
            for one in self.counted(fact_id)
            if one.act.key == key
        ]
        self.heads[key] = {}
        for act in sorted(acts, key=_whole_key_first):
            self.fold_in(act)

    def fold_in(self, act: Act) -> None:
        """Fold what one act says of its own key, and what others say of it, into the heads."""
        if act.clears:
            self._clear(act)
        if act.asserts:
            head = self.head(act.key, self.multi.slot_of(act))
            head.asserted(Assertion(act.stamp, act.fact_id, act.object), self.depth)
            if act.declared:
                self._retract_by_deletions(act, head)
            self._retract_by_namers(act, head)

    def retract(self, target: Act, *, by: Stamp) -> None:
        """Fold a retraction of what an act asserts into its head."""
        self.head(target.key, self.multi.slot_of(target)).retracted(target.object, by)

    def declared_slots(self, key: str) -> list[str]:
        """Return the slots of a key's declared facts, as far as they are known."""
        return [slot for slot in self.heads.get(key, ()) if is_declared_slot(slot)]

    def _clear(self, act: Act) -> None:
        self.head(act.key, self.multi.slot(act.key, act.object)).retracted(act.object, act.stamp)
        if not deletes_by_key(act):
            return
        self.head(act.key, DELETIONS).retracted(act.object, act.stamp)
        for slot in self.declared_slots(act.key):
            head = self.head(act.key, slot)
            if act.object in (ALL, head.top and head.top.object):
                head.retracted(act.object, act.stamp)

    def _retract_by_deletions(self, act: Act, head: Head) -> None:
        for what, by in self.head(act.key, DELETIONS).reach.items():
            if what in (ALL, act.object):
                head.retracted(what, by)

    def _retract_by_namers(self, act: Act, head: Head) -> None:
        namers: Set[str] = self.namers.get(act.fact_id, _NOBODY)
        if len(self.meetings.get(act.fact_id, ())) > 1:
            namers = {*namers, act.fact_id}
        for namer in namers:
            for one in self.counted(namer):
                if act.fact_id in one.act.names and one.act.owner == act.owner:
                    head.retracted(act.object, one.act.stamp)

    def standing(self, key: str) -> dict[str, Assertion]:
        """Return what stands of a key, by slot."""
        heads = self.heads.get(key, {})
        return {slot: top for slot, head in heads.items() if (top := head.standing) is not None}

    def fact(self, fact_id: str) -> Standing | None:
        """Return the fact of an id, if it stands; the heads of its keys must be known."""
        for one in self.counted(fact_id):
            act, slot = one.act, self.multi.slot_of(one.act)
            top = self.standing(act.key).get(slot)
            if act.asserts and top == Assertion(act.stamp, fact_id, act.object):
                return self.current(act.key, slot, top)
        return None

    def current(self, key: str, slot: str, top: Assertion) -> Standing:
        """Return the fact that is current in a slot; its claim's named ids must be known."""
        counted = self.counted_as(top)
        links = self.trail(key, slot)
        if counted.act.names:
            named = self._links_to_named(counted.act)
            ids = {one["replaces"] for one in named}
            links = [*named, *(one for one in links if one["replaces"] not in ids)]
        return Standing(top.fact_id, counted, tuple(links))

    def _links_to_named(self, act: Act) -> list[Link]:
        """Return links to the older assertions that an act names, newest first, of any key."""
        older = [
            one for one in self.targets(act) if one.stamp < act.stamp and one.fact_id != act.fact_id
        ]
        older.sort(key=lambda one: one.stamp, reverse=True)
        found = {one.fact_id: sources_of_claim(one) for one in older}
        return [
            {"replaces": fact_id, "source_episode_ids": sources}
            for fact_id, sources in found.items()
        ]

    def trail(self, key: str, slot: str) -> list[Link]:
        """Return what a slot's top replaced, newest first, at most `depth` links."""
        head = self.heads[key][slot]
        if head.trail is None:
            head.trail = self._older(key, slot)
        return head.trail

    def _older(self, key: str, slot: str) -> list[Link]:
        mine = [
            Assertion(one.act.stamp, one.act.fact_id, one.act.object)
            for fact_id in self.full[key]
            for one in self.counted(fact_id)
            if one.act.key == key and one.act.asserts and self.multi.slot_of(one.act) == slot
        ]
        return [link(one) for one in sorted(mine, reverse=True)[1 : self.depth + 1]]


def _whole_key_first(act: Act) -> tuple[bool, Stamp]:
    # A retraction of a whole multi-valued key must be known before its slots get heads.
    return not (act.clears and act.object == ALL), act.stamp
