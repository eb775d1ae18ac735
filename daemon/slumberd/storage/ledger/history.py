"""Compute facts that were current at an instant, and which quoted claims are current no more."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import orjson

from slumberd.consolidation.claim import MANUAL, Claim, Precedence
from slumberd.consolidation.key_history import (
    Successor,
    claim_of_episode,
    is_held,
    retracting_claim,
    successor_of,
)
from slumberd.consolidation.manual import edit_id
from slumberd.consolidation.precedence import Evaluation, MultiValued
from slumberd.consolidation.state import CurrentFact, KnownState
from slumberd.model.episode import instant
from slumberd.model.fact import (
    QuotedEpisode,
    Superseded,
    SupersededByEpisode,
    SupersededClaims,
    words_of_payload,
)
from slumberd.model.scope import FACTS, channel_of, escape, named_ids, owner_of
from slumberd.storage.engine import Session
from slumberd.storage.ledger.arrivals import arrivals_in, first_row_of
from slumberd.storage.ledger.rows import evaluation_from, evaluations_from
from slumberd.storage.ledger.state_loader import LoadedState, law_at, whole_known_state

_EVERYTHING = 2**63 - 1


def channels_at(session: Session, seq: int = _EVERYTHING) -> MultiValued:
    """Return the predicates that were multi-valued when a ledger row was written."""
    row = session.one("ledger.channels", (seq,))
    return MultiValued.from_document(orjson.loads(row[0]) if row else {})


def seq_at(session: Session, believed_at: int | None) -> int:
    """Return the number of the last ledger row at an instant in microseconds."""
    if believed_at is None:
        return _EVERYTHING
    # Instants never decrease, so the query finds the last firing from the end.
    found = session.one("ledger.last_seq_by", (believed_at,))
    return found[0] if found else 0


def facts_at(
    session: Session,
    *,
    user: str | None,
    depth: int,
    valid_at: int | None = None,
    believed_at: int | None = None,
) -> list[CurrentFact]:
    """Return the facts that were current, of one user or of all, by fact id.

    Args:
        session: Inside a snapshot.
        user: The user; None for all users.
        depth: Links of lineage.
        valid_at: Claims later than this instant, in microseconds, do not count.
        believed_at: Rows recorded after this instant, in microseconds, do not count.
    """
    found: list[CurrentFact] = []
    for part in _parts_at(session, user, believed_at):
        evaluations, referrers = _known(session, user, part)
        multi, law = channels_at(session, part.upto), law_at(session, part.upto)
        state = whole_known_state(evaluations, referrers, multi, depth, law=law, until=valid_at)
        found += current_facts_on(state)
    return sorted(found, key=lambda fact: fact.fact_id)


class _Part(NamedTuple):
    """Rows that were recorded by an instant, from the first to the last."""

    first: int
    upto: int


def _parts_at(session: Session, user: str | None, believed_at: int | None) -> list[_Part]:
    """Return the rows that were recorded by an instant: those of a user, or of all.

    The rows of a user who came later than the instant were recorded in another shard.
    """
    upto = seq_at(session, believed_at)
    own = _Part(0, upto)
    if believed_at is None:
        return [own]
    moved = [
        (arrival, _Part(arrival.first, _last_moved_by(session, arrival.first, n, believed_at)))
        for n, arrival in arrivals_in(session)
        if n > upto
    ]
    if user is None:
        return [own, *(part for _, part in moved)]
    first = first_row_of(session, user) if moved else None
    later = [part for arrival, part in moved if arrival.first <= (first or 0)]
    # The newest of them comes first; the user came with the newest that begins before the row.
    return [later[0]] if first is not None and first > upto and later else [own]


def _last_moved_by(session: Session, first: int, arrival: int, believed_at: int) -> int:
    values = {"first": first, "arrival": arrival, "at": believed_at}
    found = session.one("ledger.last_moved_by", values)
    return found[0] if found else 0


def _known(
    session: Session, user: str | None, part: _Part
) -> tuple[dict[str, list[Evaluation]], list[tuple[str, str]]]:
    if user is None:
        parameters = {"first": part.first, "upto": part.upto}
        evaluations = evaluations_from(session.stream("ledger.all_evaluations", parameters))
    else:
        evaluations = _known_of(session, user, part.upto)
    names = {"values": list(evaluations)}
    return evaluations, session.rows("ledger.referrers", names)


def _known_of(session: Session, user: str, upto: int) -> dict[str, list[Evaluation]]:
    low = f"{escape(user)}/"
    between = {"low": low, "high": f"{low[:-1]}0", "upto": upto}
    found: dict[str, list[Evaluation]] = {}
    again: set[str] = set()
    for *evaluation, others in session.stream("ledger.evaluations_between", between):
        if others:
            again.add(evaluation[0])
        else:
            found[evaluation[0]] = [evaluation_from(evaluation)]
    if again:
        parameters = {"values": list(again)}
        rows = session.stream("ledger.evaluations", parameters)
        # Rows after that instant must not count: an undo among them has no effect yet.
        found |= evaluations_from(row for row in rows if row[1] <= upto)
    return found


def current_facts_on(known_state: KnownState) -> Iterator[CurrentFact]:
    """Yield the current facts of every fully loaded key."""
    for key in known_state.complete_keys:
        for slot, top in known_state.current_assertions(key):
            yield known_state.current(key, slot, top)


_MOST_STEPS = 8
"""The most replacements that are followed from a claim to the value that is current now."""

_ClaimId = tuple[str, Precedence]


def read_superseded(
    session: Session, episodes: Sequence[QuotedEpisode], *, depth: int, valid_at: int | None
) -> SupersededByEpisode:
    """Return which claims of episodes, in the channel ``facts``, are not current any more.

    The number of reads does not depend on the number of episodes.

    Args:
        session: Inside a snapshot.
        depth: Links of lineage.
        valid_at: Claims later than this instant, in microseconds, do not count; None counts all.
    """
    law = law_at(session)
    loaded = LoadedState(session, channels_at(session), depth, law, until=valid_at)
    claims = _read_claims(loaded, episodes)
    successions = _Successions(loaded)
    successions.follow([claim for some in claims.values() for claim in some])
    found = {}
    for episode, some in claims.items():
        gone = [(claim, successions.ends_of(claim)) for claim in some]
        superseded = [_superseded(claim, end) for claim, ends in gone for end in ends]
        if superseded:
            found[episode] = SupersededClaims(superseded, all(ends for _, ends in gone))
    return found


def _read_claims(loaded: LoadedState, episodes: Sequence[QuotedEpisode]) -> dict[str, list[Claim]]:
    """Return what the texts of episodes assert in the channel ``facts``, by episode."""
    known = loaded.known_state
    own = {episode.id: named_ids(FACTS, episode.id) for episode in episodes}
    loaded.load_parts(id for ids in own.values() for id in ids)
    all_ids = {
        episode_id: [*ids, *(part for id in ids for part in sorted(known.parts.get(id, ())))]
        for episode_id, ids in own.items()
    }
    loaded.load_evaluations(dict.fromkeys(id for ids in all_ids.values() for id in ids))
    return {
        episode.id: _asserted_by(
            episode, [claim_of_episode(id, known) for id in all_ids[episode.id]], known.until
        )
        for episode in episodes
    }


def _asserted_by(
    episode: QuotedEpisode, claims: Iterable[Claim | None], until: int | None
) -> list[Claim]:
    owner = owner_of(episode.user, episode.agent, FACTS)
    found = [
        claim
        for claim in claims
        if claim is not None
        and claim.asserts
        and (claim.source, claim.owner) == (episode.id, owner)
        and claim.payload.get("content") == episode.content
        and (until is None or claim.precedence.at <= until)
    ]
    return sorted(found, key=lambda claim: claim.precedence.part)


class _Successions:
    """Follows claims to what is current in their place."""

    def __init__(self, loaded: LoadedState) -> None:
        self._loaded = loaded
        self._known = loaded.known_state
        self._next: dict[_ClaimId, list[Claim] | None] = {}
        """By claim what took its place; None while the claim is held."""

    def follow(self, claims: Sequence[Claim]) -> None:
        """Read what took the place of claims, and of what took their place."""
        for _ in range(_MOST_STEPS):
            claims = [claim for claim in claims if _id_of(claim) not in self._next]
            if not claims:
                return
            claims = self._follow_once(claims)

    def _follow_once(self, claims: Sequence[Claim]) -> list[Claim]:
        """Read what took the place of claims; return those of them that assert something."""
        self._loaded.load_heads(claims)
        self._next |= {_id_of(claim): None for claim in claims}
        keys = {claim.key for claim in claims}
        declared = {key: self._known.declared_slots(key) for key in keys}
        gone = [
            (claim, successor_of(claim, self._known))
            for claim in claims
            if not is_held(claim, declared[claim.key], self._known)
        ]
        self._loaded.load_referrers_of([claim for claim, by in gone if by.retraction])
        wanted = [(claim, by, self._candidates(claim, by)) for claim, by in gone]
        self._loaded.load_whole(id for _, _, ids in wanted for id in ids)
        later = []
        for claim, by, fact_ids in wanted:
            found = self._find(claim, by, fact_ids)
            self._next[_id_of(claim)] = found
            later += [one for one in found if one.asserts]
        return later

    def _candidates(self, claim: Claim, by: Successor) -> list[str]:
        """Return the fact ids that what took the place of a claim may have."""
        if by.retraction is None:
            return [assertion.fact_id for assertion in by.assertions]
        if by.retraction.rank != MANUAL:
            return [*named_ids(channel_of(claim.fact_id), by.retraction.id)]
        return [claim.fact_id, *sorted(self._known.referrers_of(claim)), edit_id(by.retraction.id)]

    def _find(self, claim: Claim, by: Successor, fact_ids: Sequence[str]) -> list[Claim]:
        if by.retraction is None:
            return [
                effective.claim
                for assertion in by.assertions
                for effective in self._known.effective_claims(assertion.fact_id)
                if effective.claim.precedence == assertion.precedence and effective.claim.asserts
            ]
        parts = [part for id in fact_ids for part in sorted(self._known.parts.get(id, ()))]
        ids = [*fact_ids, *parts]
        found = retracting_claim(claim, by.retraction, ids, self._known)
        if found is None:  # a person replaced every value of the key
            self._loaded.load_in_full({claim.key})
            ids = sorted(self._known.complete_keys[claim.key])
            found = retracting_claim(claim, by.retraction, ids, self._known)
        return [] if found is None else [found]

    def ends_of(self, claim: Claim) -> list[Claim]:
        """Return what is current in place of a claim, or retracted it; nothing while it is held."""
        return list({_id_of(end): end for end in self._ends(claim, set())}.values())

    def _ends(self, claim: Claim, seen: set[_ClaimId]) -> list[Claim]:
        seen.add(_id_of(claim))
        found: list[Claim] = []
        for by in self._next.get(_id_of(claim)) or ():
            if _id_of(by) not in seen:
                found += (self._ends(by, seen) if by.asserts else []) or [by]
        return found


def _id_of(claim: Claim) -> _ClaimId:
    return claim.fact_id, claim.precedence


def _superseded(claim: Claim, by: Claim) -> Superseded:
    payload = claim.payload
    return Superseded(
        subject=payload.get("subject"),
        predicate=payload.get("predicate"),
        object=payload.get("object"),
        kind="replaced" if by.asserts else "retracted",
        by=by.payload.get("object") if by.asserts else None,
        at=instant(by.precedence.at),
        fact_id=by.fact_id,
        text=words_of_payload(by.payload if by.asserts else payload),
    )
