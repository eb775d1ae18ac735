"""Load what a batch must know: the end of the ledger, and the known state; save slot states."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence, Set
from typing import Any, NamedTuple

import orjson

from slumberd.consolidation.claim import ALL, Claim, Precedence, deletes_by_key
from slumberd.consolidation.incoming import Candidate
from slumberd.consolidation.precedence import (
    DELETIONS,
    FIRST_LAW,
    LAWS,
    Assertion,
    Evaluation,
    History,
    MultiValued,
    SlotState,
    newest_law,
    slot_of_declared,
)
from slumberd.consolidation.state import KnownState, keys_to_load
from slumberd.model.episode import is_part_of
from slumberd.model.errors import SchemaError
from slumberd.storage.engine import Row, Session
from slumberd.storage.ledger.rows import EVENTS, GENESIS, evaluations_from, histories_from
from slumberd.storage.strict_json import written

LAW_RULE_ID = "@law"
"""The rule id of the firing that changes the law."""

_LAW_KEY = b'"law":'
"""It is in the document of a firing under a later law than the first."""

_EVERYTHING = 2**63 - 1
_BEFORE_ALL = -(2**62)
"""In place of the instant of the last batch: microseconds before any instant."""


class LedgerEnd(NamedTuple):
    """The end of the ledger.

    Attributes:
        seq: The number of the last row; 0 without rows.
        chain: The chain hash of that row.
        at: The instant of the last batch, microseconds.
        key_number: Differs between the keys of ledgers; 0 without a key.
        multi_valued: The multi-valued predicates.
        law: The number of the law that rows are resolved under.
        has_quarantine: Whether any episode is quarantined.
        has_erasures: Whether any scope was ever erased.
        generations: The log row after which each generation of the log begins, and the number of
            that generation; the newest generation first.
    """

    seq: int
    chain: bytes
    at: int
    key_number: int
    multi_valued: MultiValued
    law: int
    has_quarantine: bool
    has_erasures: bool
    generations: Sequence[tuple[int, int]]

    @property
    def has_batches(self) -> bool:
        """Whether `at` is the instant of a batch."""
        return self.at != _BEFORE_ALL


def read_end(session: Session) -> LedgerEnd:
    """Return the end of the ledger."""
    [row] = session.rows("ledger.end")
    seq, chain, at, key_number, multi_valued, quarantine, erasures, generations = row
    found = [(after, generation) for generation, after in orjson.loads(generations)]
    return LedgerEnd(
        seq or 0,
        chain or GENESIS,
        _BEFORE_ALL if at is None else at,
        key_number,
        MultiValued.from_document(orjson.loads(multi_valued) if multi_valued else {}),
        law_at(session),
        bool(quarantine),
        bool(erasures),
        found,
    )


def law_at(session: Session, seq: int = _EVERYTHING) -> int:
    """Return the number of the law that was in force when a ledger row was written.

    The row of each firing names it. A ledger without rows begins with the newest law.

    Raises:
        SchemaError: A newer slumberd wrote the row, under a law that is unknown here.
    """
    row = session.one("ledger.firing_document", (seq,))
    return newest_law() if row is None else law_of(session, row[0])


def law_of(session: Session, document: bytes | None) -> int:
    """Return the number of the law that the document of a firing names.

    Raises:
        SchemaError: The law is unknown here.
    """
    if not document or _LAW_KEY not in document:
        return FIRST_LAW
    law = orjson.loads(document).get("law", FIRST_LAW)
    if law not in LAWS:
        problem = f"was written under a newer law ({law!r}, ours is {newest_law()})"
        raise SchemaError(session.where, problem, "use the slumberd that wrote it, or a newer one")
    return int(law)


_GATED = EVENTS.index("gated")

_StateRow = tuple[Any, ...]


class LoadedState:
    """The known state of a batch, with the stored rows of its slot states.

    Attributes:
        known_state: The state that a resolution works on.
        key_ids: The number of each key of the ledger.
    """

    def __init__(
        self,
        session: Session,
        multi: MultiValued,
        depth: int,
        law: int,
        *,
        until: int | None = None,
    ) -> None:
        """Begin with nothing loaded.

        Args:
            multi: The multi-valued predicates.
            depth: Links of lineage.
            law: The number of the law that claims are resolved under.
            until: Claims later than this instant, in microseconds, do not count; None counts all.
        """
        self._session = session
        self._stored: dict[tuple[str, str], _StateRow] = {}
        self.key_ids: dict[str, int] = {}
        self.known_state = KnownState(multi, depth, law=law, until=until)

    def load(self, candidates: Sequence[Candidate]) -> None:
        """Load the state that the resolution of these candidates needs."""
        arriving = {candidate.fact_id for candidate in candidates}
        claims = [candidate.claim for candidate in candidates if candidate.claim is not None]
        self._load_named(claims, arriving)
        claims += self._known_claims(arriving)
        named_by = arriving | episodes_of(claims)
        self._load_referring_ids(named_by)
        claims += self._known_claims(self._referrers_of(named_by) - arriving)
        self._load_named(claims)
        self._load_states(self._slots(claims))
        self._load_declared({claim.key for claim in claims if deletes_by_key(claim)})
        self.load_in_full(keys_to_load(candidates, self.known_state))

    def load_parts(self, fact_ids: Iterable[str]) -> None:
        """Load the parts of the episodes whose own claims have these fact ids."""
        for whole, part in self._select("parts", fact_ids):
            if is_part_of(part, whole):
                self.known_state.parts.setdefault(whole, set()).add(part)

    def load_claims_of_parts(self, fact_ids: Sequence[str]) -> dict[str, list[Claim]]:
        """Load the parts of episodes, with their evaluations.

        Returns:
            All claims of the parts, undone ones too, by the fact id of the part.
        """
        self.load_parts(fact_ids)
        known = self.known_state
        parts = {part for whole in fact_ids for part in known.parts.get(whole, ())}
        histories = histories_from(self._select("evaluations", parts))
        known.evaluations |= {part: history.remaining() for part, history in histories.items()}
        return {
            part: [found.claim for found in history.evaluations if found.claim is not None]
            for part, history in histories.items()
        }

    def load_waiting(self, rule_id: str, fact_ids: Sequence[str]) -> None:
        """Load the fact ids whose last evaluation by a rule was below its salience minimum."""
        parameters = {"rule": rule_id, "ids": [*fact_ids]}
        for fact_id, what, version in self._session.stream("ledger.last_of_rule", parameters):
            if what == _GATED:
                self.known_state.waiting[fact_id] = version
            else:
                self.known_state.waiting.pop(fact_id, None)

    def load_histories(self, fact_ids: Sequence[str]) -> dict[str, History]:
        """Load the state that a change of some fact ids needs; return their histories."""
        histories = histories_from(self._select("evaluations", fact_ids))
        for fact_id, history in histories.items():
            self.known_state.evaluations[fact_id] = history.remaining()
        evaluations = [found for history in histories.values() for found in history.evaluations]
        known = [evaluation.claim for evaluation in evaluations]
        claims = [claim for claim in known if claim is not None]
        named_by = histories.keys() | episodes_of(claims)
        self._load_referring_ids(named_by)
        self._load_referrers(named_by)
        self._load_named(claims)
        targets = [target for claim in claims for target in self.known_state.targets(claim)]
        self._load_states(self._slots(claims))
        self.load_in_full({claim.key for claim in (*claims, *targets)})
        return histories

    def load_heads(self, claims: Sequence[Claim]) -> None:
        """Load the slot states of claims, and those of the declared facts of their keys.

        The stored states hold for every instant; for an earlier one they are computed from all
        claims of the keys.
        """
        keys = {claim.key for claim in claims}
        if self.known_state.until is not None:
            self.load_in_full(keys - self.known_state.complete_keys.keys())
            return
        multi = self.known_state.multi_valued
        self._load_states({(claim.key, multi.slot_of(claim)) for claim in claims})
        self._load_declared(keys)

    def load_referrers_of(self, claims: Sequence[Claim]) -> None:
        """Load the claims that name some claims."""
        self._load_referring_ids({id for claim in claims for id in claim.ids})

    def load_whole(self, fact_ids: Iterable[str]) -> None:
        """Load the evaluations of some fact ids, and of the parts of their episodes."""
        wanted = [*dict.fromkeys(fact_ids)]
        self.load_parts(wanted)
        parts = {part for id in wanted for part in self.known_state.parts.get(id, ())}
        self.load_evaluations([*wanted, *sorted(parts)])

    def load_in_full(self, keys: set[str]) -> None:
        """Load every claim about some keys."""
        if not keys:
            return
        self._load_states((key, ALL) for key in keys)
        self.known_state.complete_keys |= {key: set() for key in keys}
        for fact_id, evaluations in self.known_state.evaluations.items():
            for evaluation in evaluations:
                if evaluation.claim is not None and evaluation.claim.key in keys:
                    self.known_state.complete_keys[evaluation.claim.key].add(fact_id)
        for key, fact_id in self._select("facts_of_keys", keys):
            self.known_state.complete_keys[key].add(fact_id)
        fact_ids = {fact_id for key in keys for fact_id in self.known_state.complete_keys[key]}
        self.load_evaluations(fact_ids)
        fact_ids |= episodes_of(self._known_claims(fact_ids))
        self._load_referring_ids(fact_ids)
        self._load_referrers(fact_ids)
        for key in keys:
            self.known_state.fold(key)

    def _load_referrers(self, fact_ids: set[str]) -> None:
        """Load the claims that name some fact ids, and the state that their lineage needs."""
        referrers = self._referrers_of(fact_ids)
        self._load_named(self._known_claims(fact_ids | referrers))
        self._load_states(self._slots(self._known_claims(referrers)))

    def _load_named(self, claims: Sequence[Claim], others: Set[str] = frozenset()) -> None:
        """Load the evaluations of the ids that claims name, with all parts, and of other ids."""
        names = {name for claim in claims for name in claim.names}
        self.load_parts(names)
        parts = {part for name in names for part in self.known_state.parts.get(name, ())}
        self.load_evaluations(others | names | parts)

    def _referrers_of(self, fact_ids: Iterable[str]) -> set[str]:
        """Return the fact ids whose claims name one of some fact ids."""
        known = self.known_state.referrers
        return {referrer for fact_id in fact_ids for referrer in known.get(fact_id, ())}

    def _known_claims(self, fact_ids: set[str]) -> list[Claim]:
        known = self.known_state.evaluations
        return [
            evaluation.claim
            for fact_id in known.keys() & fact_ids
            for evaluation in known[fact_id]
            if evaluation.claim is not None
        ]

    def _slots(self, claims: Sequence[Claim]) -> set[tuple[str, str]]:
        known_state = self.known_state
        touched = [
            *claims,
            *(target for claim in claims if claim.names for target in known_state.targets(claim)),
        ]
        wanted = {(claim.key, ALL) for claim in touched}
        for claim in touched:
            if not known_state.multi_valued.is_plain or claim.declared or claim.clears_key:
                wanted |= {(claim.key, slot) for slot in known_state.multi_valued.slots_of(claim)}
        return wanted

    def _select(self, query: str, values: Iterable[Any]) -> list[Row]:
        """Return the rows of a statement whose only parameter is a list."""
        wanted = list(values)
        return self._session.rows(f"ledger.{query}", {"values": wanted}) if wanted else []

    def load_evaluations(self, fact_ids: Iterable[str]) -> None:
        """Load the evaluations of some fact ids, where they are not loaded yet."""
        missing = [fact_id for fact_id in fact_ids if fact_id not in self.known_state.evaluations]
        if missing:
            self.known_state.evaluations |= evaluations_from(self._select("evaluations", missing))

    def _load_referring_ids(self, fact_ids: Iterable[str]) -> None:
        found = self._select("referrers", fact_ids)
        for name, referrer in found:
            self.known_state.referrers.setdefault(name, set()).add(referrer)
        self.load_evaluations({referrer for _, referrer in found})

    def _load_states(self, slots: Iterable[tuple[str, str]]) -> None:
        # The state of a fully loaded key comes from its claims, not from the stored row.
        full = self.known_state.complete_keys
        wanted = [slot for slot in slots if slot not in self._stored and slot[0] not in full]
        parts = {(key, slot_name(slot)): slot for key, slot in wanted if slot != ALL}
        for row in self._select("whole_states", [key for key, slot in wanted if slot == ALL]):
            self._keep(row, ALL)
        for row in self._select("states_of_slots", parts):
            self._keep(row, parts[row[0], row[1]])

    def _load_declared(self, keys: set[str]) -> None:
        """Load the slot states of all declared facts of some keys."""
        for row in self._select("declared_states", keys - self.known_state.complete_keys.keys()):
            slot = slot_of_declared(row[7])
            if (row[0], slot) not in self._stored:
                self._keep(row, slot)

    def _keep(self, row: _StateRow, slot: str) -> None:
        key = row[0]
        self.key_ids[key] = row[2]
        self._stored[(key, slot)] = row
        self.known_state.heads.setdefault(key, {})[slot] = _state_from(row)

    def save(self, changed: Sequence[_StateRow]) -> None:
        """Write the changed slot states, and delete those of slots that no longer exist."""
        self._session.do_each(
            "ledger.drop_states", [(key,) for key in self.known_state.complete_keys]
        )
        self._session.insert("ledger.put_state", changed)

    def changed_rows(self) -> Iterator[_StateRow]:
        """Yield the row of each slot state that changed, or that `save` deletes first."""
        folded = self.known_state.complete_keys
        for key, key_id in self.key_ids.items():
            slots = self.known_state.heads.setdefault(key, {})
            if ALL not in slots:
                slots[ALL] = SlotState()
            for slot, head in slots.items():
                row = _row_of(key, slot, key_id, head, self.known_state)
                deleted = slot != ALL and key in folded
                if deleted or self._stored.get((key, slot)) != row:
                    yield row


def episodes_of(claims: Iterable[Claim]) -> set[str]:
    """Return the ids that name the whole episodes of those claims that are one of several."""
    return {claim.ids[-1] for claim in claims if claim.precedence.part}


def slot_name(slot: str) -> str:
    """Return the stored name of a slot; objects can be long, so they are hashed.

    The slot of a declared fact begins with `DELETIONS`, so one range finds those of a key.
    """
    if slot in (ALL, DELETIONS):
        return slot
    hashed = hashlib.sha256(slot.encode()).hexdigest()[:32]
    return f"{DELETIONS}{hashed}" if slot.startswith(DELETIONS) else hashed


def _state_from(row: _StateRow) -> SlotState:
    _, _, _, at, rank, precedence_id, part, fact_id, object_, retractions, replaced = row
    if at is None:
        return SlotState(None, _retractions_from(retractions))
    winner = Assertion(Precedence(at, rank, precedence_id, part), fact_id, object_)
    found = orjson.loads(replaced) if replaced else []
    links, siblings = (found["replaced"], found["siblings"]) if type(found) is dict else (found, ())
    others = [
        Assertion(Precedence(at, rank, precedence_id, number), id, other)
        for number, id, other in siblings
    ]
    return SlotState(winner, _retractions_from(retractions), links, tuple(others))


def _retractions_json(head: SlotState) -> bytes:
    return written({object_: tuple(precedence) for object_, precedence in head.retractions.items()})


def _retractions_from(stored: bytes | None) -> dict[str, Precedence]:
    if not stored:
        return {}
    return {object_: Precedence(*parts) for object_, parts in orjson.loads(stored).items()}


def _row_of(
    key: str, slot: str, key_id: int, head: SlotState, known_state: KnownState
) -> _StateRow:
    retractions = _retractions_json(head) if head.retractions else None
    if head.winner is None:
        return (key, slot_name(slot), key_id, *(None,) * 6, retractions, None)
    links = head.replaced if head.replaced is not None else known_state.trail(key, slot)
    replaced = written(links) if links else None
    if head.siblings:
        siblings = [[one.precedence.part, one.fact_id, one.object] for one in head.siblings]
        replaced = written({"replaced": links, "siblings": siblings})
    precedence = head.winner.precedence
    return (
        key, slot_name(slot), key_id, precedence.at, precedence.rank, precedence.id,
        precedence.part, head.winner.fact_id, head.winner.object, retractions, replaced,
    )  # fmt: skip


def summary_rows(known_state: KnownState, key: str, key_id: int) -> Iterator[_StateRow]:
    """Yield the slot state rows of a key that is fully loaded."""
    heads = known_state.heads.get(key, {})
    if ALL not in heads:
        yield _row_of(key, ALL, key_id, SlotState(), known_state)
    for slot, head in heads.items():
        yield _row_of(key, slot, key_id, head, known_state)


def whole_known_state(
    evaluations: dict[str, list[Evaluation]],
    referrers: Iterable[tuple[str, str]],
    multi: MultiValued,
    depth: int,
    *,
    law: int,
    until: int | None = None,
) -> KnownState:
    """Return a state in which every key is fully loaded, from evaluations alone."""
    known_state = KnownState(multi, depth, evaluations=evaluations, until=until, law=law)
    for name, referrer in referrers:
        known_state.referrers.setdefault(name, set()).add(referrer)
    for fact_id, found in evaluations.items():
        for evaluation in found:
            if (claim := evaluation.claim) is not None:
                if claim.precedence.part:
                    known_state.parts.setdefault(claim.ids[-1], set()).add(fact_id)
                known_state.complete_keys.setdefault(claim.key, set()).add(fact_id)
    for key in known_state.complete_keys:
        known_state.fold(key)
    return known_state
