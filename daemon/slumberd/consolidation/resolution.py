"""Settle what is newly met against what is known: the deltas are the difference it makes.

Pure. Most acts are appends, decided by the heads of the slots they touch. Whatever takes back
something said before (an edit, a withdrawal) folds the keys it touches again from all of their
acts, so of those keys the ground must hold every act (`keys_to_load`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Literal, NamedTuple

from slumberd.consolidation.claim import ALL, Act, deletes_by_key
from slumberd.consolidation.incoming import Incoming
from slumberd.consolidation.precedence import Assertion, Counted, Meeting, MultiValued, counting
from slumberd.consolidation.state import Ground, Standing
from slumberd.model.firing import Toll
from slumberd.model.scope import FORGOTTEN

What = Literal[
    "act", "withdrawal", "quarantine", "known", "restored", "undone", "forgotten", "gated"
]
Delta = Literal["add", "update", "delete", "noop", "quarantine"]

Place = tuple[str, str]
"""A key, and a slot of it."""

ID_TAKEN = "id_taken"

BELOW_SALIENCE = "below_salience"
"""The reason of what a rule's gate holds back."""


class Entry(NamedTuple):
    """One row for the ledger.

    Attributes:
        seq: Its number.
        what: What was met.
        delta: The difference that it made.
        met: What was met; None for a fact that came back because another went.
        fact_id: The fact it speaks of; empty when contested.
        key: The key it speaks of; empty when contested.
        replaces: Ids of the facts that went.
        reason: Of a noop or a quarantine.
        first: Number of the row that met the same before; its own when it is the first.
    """

    seq: int
    what: What
    delta: Delta
    met: Incoming | None
    fact_id: str
    key: str
    replaces: tuple[str, ...] = ()
    reason: str = ""
    first: int = 0


def order_of(incoming: Incoming) -> tuple[int, int, str]:
    """Return the place of what is met within a batch: by stamp."""
    return incoming.act.stamp if incoming.act else (incoming.at, 0, incoming.eid)


def is_heard(met: Incoming, ground: Ground) -> bool:
    """Say whether what is met comes before the law: no gate holds it back, nor was it passed.

    Args:
        met: What is met.
        ground: Holds the meetings of its fact id, and what its rule waits for.
    """
    if met.reread and met.fact_id not in ground.waiting:
        return False
    return met.gated is None or _in_force(met, ground.meetings.get(met.fact_id, ()))


def keys_to_load(incoming: Sequence[Incoming], ground: Ground) -> set[str]:
    """Return the keys whose every act must be in the ground before these can be settled.

    The ground holds the meetings of every fact id that is met or named, and the heads of
    their keys.
    """
    keys: set[str] = set()
    arriving = {one.fact_id: one.act for one in incoming if one.act}
    for one in incoming:
        if one.fact_id in ground.meetings:
            keys |= _keys_of_a_change(one, ground, arriving)
        elif one.act is not None and _needs_all(one.act, ground):
            keys.add(one.act.key)
    return keys


def _keys_of_a_change(incoming: Incoming, ground: Ground, arriving: dict[str, Act]) -> set[str]:
    before = [one.act for one in ground.counted(incoming.fact_id)]
    acts = before if incoming.act is None else [*before, incoming.act]
    if incoming.act is not None and before == [incoming.act]:
        # Why it changes nothing must not depend on which objects happen to be known.
        return {incoming.act.key} if _takes_a_whole_key(incoming.act, ground) else set()
    keys = {act.key for act in acts}
    for act in acts:
        keys |= {target.key for target in ground.targets(act)}
        keys |= {arriving[name].key for name in act.names if name in arriving}
    return keys


def _takes_a_whole_key(act: Act, ground: Ground) -> bool:
    return act.clears and act.object == ALL and act.key in ground.multi


def _needs_all(act: Act, ground: Ground) -> bool:
    if not act.asserts:
        return _takes_a_whole_key(act, ground)
    slots = ground.heads.get(act.key)
    head = slots.get(ground.multi.slot_of(act)) if slots else None
    return head is not None and head.top is not None and act.stamp < head.top.stamp


class Settlement:
    """One batch being settled.

    Attributes:
        entries: The ledger rows so far, numbered without gaps.
        filtered: What was met and left no row: not selected, and nothing to withdraw.
        passed_over: What was not met: it was here because it was read, and the rule does not wait
            for that.
        dirty: Slots (key, slot) whose fact may have to be written again.
        gone: Fact ids that stood when the batch began to speak of them, and went.
        known: What was met again, unchanged, and left no row.
    """

    def __init__(self, ground: Ground, *, firing: int, at: int, again: bool = False) -> None:
        """Begin a batch.

        Args:
            ground: What is known.
            firing: The number of the batch's own row; its entries follow it.
            at: The firing's instant, microseconds since 1970 UTC.
            again: Whether the rule has passed what it meets; then what is known leaves no row.
        """
        self._ground = ground
        self._again = again
        self.known = 0
        self._firing = firing
        self._at = at
        self._next = firing + 1
        self.entries: list[Entry] = []
        self.filtered = self.passed_over = 0
        self.dirty: dict[Place, None] = {}
        self.gone: dict[str, None] = {}

    def meet(self, met: Incoming) -> None:
        """Settle what one rule, or hand, meets."""
        prior = self._ground.meetings.get(met.fact_id)
        if met.reread and met.fact_id not in self._ground.waiting:
            self.passed_over += 1
        elif prior is None and met.act is not None and not met.contested and met.gated is None:
            self._begin(met, met.act)
        elif met.reason == FORGOTTEN:
            self._enter_nothing()
        elif met.contested or (prior and self._is_taken(met)):
            self._quarantine_contested(met)
        elif met.gated is not None and not (prior and _in_force(met, prior)):
            self._hold_back(met)
        elif met.act is None and not met.reason and not (prior and _in_force(met, prior)):
            self.filtered += 1
        elif prior and (known := _met_before(met, prior)):
            self._enter_known(met, known.seq)
        else:
            self._change(met, self._meeting(met))

    def undo(self, met: Incoming, remaining: list[Meeting]) -> None:
        """Let a fact id be again what `remaining` of its meetings say.

        Quarantine what another owner's claim keeps from coming back under that id.
        """
        returning = self._taken_from(met.fact_id, remaining)
        if returning is not None:
            self._quarantine_contested(
                met._replace(
                    owner=returning.owner,
                    rule_id=returning.rule_id,
                    version=returning.version,
                    undoes=0,
                )
            )
            return
        before = self._ground.counted(met.fact_id)
        self._ground.meetings[met.fact_id] = remaining
        after = self._ground.counted(met.fact_id)
        met = met._replace(act=after[-1].act if after else None)
        if before == after:
            self._nothing(met)
        elif [one.act for one in before] == [one.act for one in after]:
            self._confirm(met, after)
        else:
            self._fold_again(met, before, after)

    def redraw(self) -> None:
        """Let every fact of the keys that are known in full be written again."""
        self.dirty |= dict.fromkeys(self._seen(self._ground.full))

    def forget(self, left: Mapping[str, list[Meeting]]) -> None:
        """Let only what is left of some fact ids' meetings have been met.

        Every key of these ids is known in full.
        """
        ground = self._ground
        gone = {fact_id for fact_id, meetings in left.items() if not meetings}
        before = self._seen(ground.full)
        ground.meetings |= left
        for fact_id in gone:
            ground.meetings.pop(fact_id, None)
        for known in (*ground.full.values(), *ground.namers.values()):
            known -= gone
        # What is never said can only let others come back: of the rest nothing goes.
        _, came = self._difference(self._folded(sorted(ground.full), before))
        self.dirty |= dict.fromkeys(place for place in before if place[0] in ground.full)
        self._restore(came)

    def resettle(self, keys: Iterable[str], former: MultiValued) -> None:
        """Fold keys again that were single- or multi-valued before; enter what went and came."""
        ground = self._ground
        for key in sorted(keys):
            ground.multi, current = former, ground.multi
            ground.fold(key)
            before = self._seen([key])
            ground.multi = current
            went, came = self._difference(self._folded([key], before))
            for fact_id in went:
                self._enter_alone("delete", fact_id, key)
            self._restore(came)

    def skip_to(self, seq: int) -> None:
        """Number the next row so; for rows that are settled again and have their numbers."""
        self._next = seq

    def standing(self) -> dict[str, Standing]:
        """Return the facts that stand now in every slot that was touched, by fact id."""
        found = {}
        ground = self._ground
        for key, slot in self.dirty:
            head = ground.heads[key].get(slot)
            top = head.standing if head else None
            if top is not None:
                found[top.fact_id] = ground.current(key, slot, top)
        return found

    def _is_taken(self, met: Incoming) -> bool:
        return any(one.act.owner != met.owner for one in self._ground.counted(met.fact_id))

    def _taken_from(self, fact_id: str, remaining: Sequence[Meeting]) -> Meeting | None:
        """Return a claim that would come back under an id which another owner holds."""
        said = _last_by_rule(self._ground.meetings.get(fact_id, ()))
        says = _last_by_rule(remaining)
        stays = counting([one for one in says if one in said])
        holders = {one.act.owner for one in stays}
        back = [one for one in says if one.act is not None and one not in said]
        return next((one for one in back if holders and one.owner not in holders), None)

    def _quarantine_contested(self, met: Incoming) -> None:
        taken = met.reason or ID_TAKEN
        detail = met.detail or f"fact id {met.fact_id!r} belongs to another user or agent"
        said = met._replace(act=None, contested=True, reason=taken, detail=detail)
        self._enter(said, "quarantine", "quarantine", reason=taken)

    def _enter_known(self, met: Incoming, first: int) -> None:
        if self._again:
            self.known += 1
        else:
            self._enter(met, "known", "noop", reason="known", first=first)

    def _hold_back(self, met: Incoming) -> None:
        """Enter that something is not worth taking in yet: no act, so nothing follows from it."""
        if self._again and self._ground.waiting.get(met.fact_id) == met.version:
            self.known += 1
        else:
            self._enter(met._replace(act=None), "gated", "noop", reason=BELOW_SALIENCE)

    def toll(self) -> Toll:
        """Return what all of this takes of the facts that stood before."""
        if all(one.delta != "delete" for one in self.entries):
            return Toll(0, 0)
        stood: dict[str, bool] = {}
        place: dict[str, str | None] = {}  # by fact: what is in its place, itself, or nothing
        for one in self.entries:
            asserts = one.delta in ("add", "update")
            for fact_id in one.replaces:
                stood.setdefault(fact_id, True)
                place[fact_id] = one.fact_id if asserts else None
            if asserts:
                stood.setdefault(one.fact_id, False)
                place[one.fact_id] = one.fact_id
        before = [fact_id for fact_id, did in stood.items() if did]
        lost = sum(_place(fact_id, place) is None for fact_id in before)
        stands = sum(fact_id == other for fact_id, other in place.items())
        return Toll(lost, len(before) - stands)

    def _begin(self, met: Incoming, act: Act) -> None:
        """Take what is said under a fact id for the first time."""
        meeting = self._meeting(met)
        self._ground.meetings[met.fact_id] = [meeting]
        self._append(met, act)

    def _meeting(self, met: Incoming) -> Meeting:
        return Meeting(
            self._next, met.rule_id, met.version, met.act, self._at, self._firing, met.owner
        )

    def _change(self, met: Incoming, meeting: Meeting) -> None:
        ground = self._ground
        before = ground.counted(met.fact_id)
        ground.meetings.setdefault(met.fact_id, []).append(meeting)
        after = ground.counted(met.fact_id)
        if [one.act for one in before] == [one.act for one in after]:
            self._confirm(met, after)
        elif before:
            self._fold_again(met, before, after)
        else:
            self._append(met, after[0].act)

    def _confirm(self, met: Incoming, after: tuple[Counted, ...]) -> None:
        """Enter a meeting that changes no act: at most who says it."""
        places = [self._place(one.act) for one in after]
        stands = [place for place in places if self._holds(place, met.fact_id)]
        self.dirty |= dict.fromkeys(stands)
        says = met.act is not None and met.rule_id in _promoters(after)
        if stands and (says or met.undoes):
            self._enter(met, *_of(met, "update"), went=(met.fact_id,))
        else:
            self._nothing(met)

    def _append(self, met: Incoming, act: Act) -> None:
        """Fold an act that is said for the first time into the heads it touches."""
        ground = self._ground
        if self._touches_one_slot(act):
            self._assert(met, act)
            return
        targets = ground.targets(act) if act.names else []
        if act.clears and act.object == ALL and act.key in ground.multi:
            self._learn(act)
            self._fold_keys(met, [act.key], stood=False)
            return
        # What only names others leaves its own slot alone, as folding its key does.
        spoken_of = [act, *targets] if act.asserts or act.clears else targets
        places = [self._place(one) for one in spoken_of]
        if deletes_by_key(act):
            places += [(act.key, slot) for slot in ground.declared_slots(act.key)]
        before = {place: ground.head(*place).standing for place in places}
        self._learn(act)
        self._redraw_referrers(act)
        ground.fold_in(act)
        for target in targets:
            ground.retract(target, by=act.stamp)
        if act.asserts:
            self.dirty[places[0]] = None
        self._enter_difference(met, before, stood=False)

    def _touches_one_slot(self, act: Act) -> bool:
        plain = act.asserts and not act.names and not act.declared
        return plain and act.fact_id not in self._ground.namers

    def _assert(self, met: Incoming, act: Act) -> None:
        """Fold an assertion that names nothing, and that nothing names, into its one slot."""
        ground = self._ground
        key, what = act.key, act.object
        place = key, ground.multi.slot(key, what)
        head = ground.head(*place)
        stood = head.standing
        if ground.full:
            self._learn(act)
        said = Assertion(act.stamp, act.fact_id, what)
        head.asserted(said, ground.depth)
        self.dirty[place] = None
        if head.standing is not said:
            self._enter_difference(met, {place: stood}, stood=False)
        elif stood is None:
            self._enter(met, *_of(met, "add"))
        else:
            self.gone[stood.fact_id] = None
            self._enter(met, *_of(met, "update"), went=(stood.fact_id,))

    def _fold_again(
        self, met: Incoming, before: tuple[Counted, ...], after: tuple[Counted, ...]
    ) -> None:
        """Fold every key again that an episode spoke of, or speaks of now."""
        keys: dict[str, None] = {}
        for one in (*before, *after):
            self._learn(one.act)
            self._redraw_referrers(one.act)
            keys |= dict.fromkeys((one.act.key, *(to.key for to in self._ground.targets(one.act))))
        stood = any(self._holds(self._place(one.act), met.fact_id) for one in before)
        self._fold_keys(met, sorted(keys), stood=stood)

    def _fold_keys(self, met: Incoming, keys: Sequence[str], *, stood: bool) -> None:
        before = self._folded(keys, self._seen(keys))
        self.dirty |= dict.fromkeys(before)
        self._enter_difference(met, before, stood=stood)

    def _folded(
        self, keys: Sequence[str], before: dict[Place, Assertion | None]
    ) -> dict[Place, Assertion | None]:
        """Fold keys; return what stood before in every slot that was there or is there now."""
        for key in keys:
            self._ground.fold(key)
        return dict.fromkeys(self._seen(keys)) | before

    def _seen(self, keys: Iterable[str]) -> dict[Place, Assertion | None]:
        heads = self._ground.heads
        return {
            (key, slot): head.standing for key in keys for slot, head in heads.get(key, {}).items()
        }

    def _redraw_referrers(self, act: Act) -> None:
        """Let the facts whose claims name an act's id be written again: their lineage links it."""
        if not act.asserts:
            return
        for referrer in self._ground.namers.get(act.fact_id, ()):
            for one in self._ground.counted(referrer):
                place = self._place(one.act)
                if one.act.owner == act.owner and self._holds(place, referrer):
                    self.dirty[place] = None

    def _learn(self, act: Act) -> None:
        if act.key in self._ground.full:
            self._ground.full[act.key].add(act.fact_id)
        for name in act.names:
            self._ground.namers.setdefault(name, set()).add(act.fact_id)

    def _place(self, act: Act) -> Place:
        return act.key, self._ground.multi.slot_of(act)

    def _holds(self, place: Place, fact_id: str) -> bool:
        stands = self._stands_at(place)
        return stands is not None and stands.fact_id == fact_id

    def _stands_at(self, place: Place) -> Assertion | None:
        head = self._ground.heads.get(place[0], {}).get(place[1])
        return None if head is None else head.standing

    def _difference(
        self, before: dict[Place, Assertion | None]
    ) -> tuple[dict[str, str], dict[str, str]]:
        """Return, with their keys, the ids of the facts that went and of those that came."""
        went: dict[str, str] = {}
        came: dict[str, str] = {}
        for place, stood in before.items():
            stands = self._stands_at(place)
            if stands == stood:
                continue
            self.dirty[place] = None
            if stood is not None:
                went[stood.fact_id] = place[0]
                self.gone[stood.fact_id] = None
            if stands is not None:
                came[stands.fact_id] = place[0]
        return went, came

    def _enter_difference(
        self, met: Incoming, before: dict[Place, Assertion | None], *, stood: bool
    ) -> None:
        went, came = self._difference(before)
        if (stood or met.fact_id in came) and met.act is not None and self._stands(met.act):
            came.pop(met.fact_id, None)
            if stood:
                went.setdefault(met.fact_id, "")
            self._enter(met, *_of(met, "update" if went else "add"), went=tuple(went))
        elif went:
            self._enter(met, *_of(met, "delete"), went=tuple(went), reason=met.reason)
        else:
            self._nothing(met)
        self._restore(came)

    def _stands(self, act: Act) -> bool:
        stands = self._stands_at(self._place(act))
        return stands is not None and stands.fact_id == act.fact_id and stands.stamp == act.stamp

    def _nothing(self, met: Incoming) -> None:
        if met.undoes:
            self._enter(met, "undone", "noop", reason="undone")
        elif met.reason:
            self._enter(met, "quarantine", "quarantine", reason=met.reason)
        elif met.act is None:
            self._enter(met, "withdrawal", "noop", reason="filtered")
        else:
            self._enter(met, "act", "noop", reason=self._why_nothing(met.act))

    def _why_nothing(self, act: Act) -> str:
        ground = self._ground
        if act.asserts:
            head = ground.heads[act.key][ground.multi.slot_of(act)]
            return "retracted" if head.top and head.top.fact_id == act.fact_id else "stale"
        if act.names:
            reached = [one for one in ground.targets(act) if one.stamp < act.stamp]
            return "stale" if reached else "unresolved"
        if act.clears:
            heads = ground.heads.get(act.key, {})
            # Not the key's other objects: which of them the ground holds is left to chance.
            spoken_of = heads.values() if act.object == ALL else [ground.head(*self._place(act))]
            return "stale" if any(head.top for head in spoken_of) else "unresolved"
        return "noop"

    def _restore(self, came: dict[str, str]) -> None:
        for fact_id, key in came.items():
            self._enter_alone("add", fact_id, key)

    def _enter(
        self,
        met: Incoming,
        what: What,
        delta: Delta,
        *,
        went: tuple[str, ...] = (),
        reason: str = "",
        first: int = 0,
    ) -> None:
        fact_id = "" if met.contested else met.fact_id
        key = met.act.key if met.act else ""
        seq = self._next
        self._next = seq + 1
        self.entries.append(Entry(seq, what, delta, met, fact_id, key, went, reason, first or seq))

    def _enter_nothing(self) -> None:
        """Enter that something was met which does not count, without a word of it."""
        self.entries.append(
            Entry(self._next, "forgotten", "noop", None, "", "", (), FORGOTTEN, self._next)
        )
        self._next += 1

    def _enter_alone(self, delta: Delta, fact_id: str, key: str) -> None:
        """Enter a fact that came or went by itself: nothing was met that says so."""
        went = (fact_id,) if delta == "delete" else ()
        self.entries.append(
            Entry(self._next, "restored", delta, None, fact_id, key, went, "", self._next)
        )
        self._next += 1


def _of(met: Incoming, delta: Delta) -> tuple[What, Delta]:
    if met.undoes:
        return "undone", delta
    if met.reason:
        return "quarantine", "quarantine"
    return ("act" if met.act is not None else "withdrawal"), delta


def _promoters(counted: tuple[Counted, ...]) -> set[str]:
    return {rule_id for one in counted for rule_id, _ in one.promoters}


def _in_force(met: Incoming, prior: Sequence[Meeting]) -> bool:
    last = _last(met, prior)
    return last is not None and last.act is not None


def _met_before(met: Incoming, prior: Sequence[Meeting]) -> Meeting | None:
    last = _last(met, prior)
    if last is None or last.version != met.version or last.act != met.act:
        return None
    return last


def _last_by_rule(meetings: Sequence[Meeting]) -> list[Meeting]:
    return [*{one.rule_id: one for one in meetings}.values()]


def _last(met: Incoming, prior: Sequence[Meeting]) -> Meeting | None:
    return next((one for one in reversed(prior) if one.rule_id == met.rule_id), None)


def _place(fact_id: str, place: Mapping[str, str | None]) -> str | None:
    """Return the fact that stands in the place of one, itself perhaps; None when none does."""
    other = place[fact_id]
    while other is not None and place[other] != other:
        other = place[other]  # asserted later than what it replaced, so this ends
    return other
