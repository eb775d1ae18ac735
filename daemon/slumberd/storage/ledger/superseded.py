"""Read from the ledger which claims of quoted episodes are not current any more."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from slumberd.consolidation.claim import MANUAL, Claim, Precedence
from slumberd.consolidation.key_history import (
    Successor,
    claim_of_episode,
    is_held,
    retracting_claim,
    successor_of,
)
from slumberd.consolidation.manual import edit_id
from slumberd.model.episode import instant
from slumberd.model.fact_ids import channel_of, named_ids, owner_of
from slumberd.model.rule import FACTS
from slumberd.model.superseded import (
    QuotedEpisode,
    Superseded,
    SupersededByEpisode,
    SupersededClaims,
    words_of_payload,
)
from slumberd.storage.engine import Session
from slumberd.storage.ledger.history import channels_at
from slumberd.storage.ledger.state_loader import LoadedState, law_at

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
        episodes: The episodes.
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
