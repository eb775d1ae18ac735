"""The precedence rule by brute force. The oracle shares no code with the daemon.

The current facts are a function of the set of claims. A retraction covers what is older than
itself. Per key (per object, when multi-valued) the assertion with the highest precedence is
current, unless a retraction covers it.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

ANY = object()


@dataclass(frozen=True)
class OracleClaim:
    """An effective claim: of an episode's newest version in one channel, or of a manual edit.

    Attributes:
        clears: ``all`` or ``object`` when the claim retracts its own key; else empty.
        about: The claim that a manual edit retracts; the edit has its key.
        declared: Whether a program declared the fact. Such a fact competes with no other; only a
            claim that names its id, or a delete by key, retracts it.
        sources: The episodes that a manual edit gives.
    """

    fact_id: str
    user: str
    agent: str
    channel: str
    precedence: tuple[Any, ...]
    asserts: bool
    subject: Any
    predicate: Any
    object: Any
    names: tuple[str, ...]
    clears: str
    confidence: float = 1.0
    rules: tuple[str, ...] = ()
    about: OracleClaim | None = None
    declared: bool = False
    sources: tuple[str, ...] = ()
    episode: str = ""
    """The id of its episode; empty for a manual edit."""
    whole: str = ""
    """Of one of several claims of an episode, the fact id of the episode's own claim."""

    def names_claim(self, other: OracleClaim) -> bool:
        if other.owner != self.owner:
            return False
        by_episode = self.episode and self.episode != other.episode
        return other.fact_id in self.names or bool(by_episode and other.whole in self.names)

    @property
    def owner(self) -> tuple[str, str, str]:
        return self.user, self.agent, self.channel

    @property
    def key(self) -> tuple[Any, ...]:
        if self.about is not None:
            return self.about.key
        keyed = all(isinstance(p, str) and p for p in (self.subject, self.predicate))
        return (*self.owner, *((self.subject, self.predicate) if keyed else (self.fact_id,)))

    @property
    def belief(self) -> str:
        return json.dumps(self.object, sort_keys=True)


def plain_id(channel: str, name: str) -> str:
    plain = channel == "facts" and not name.startswith("@")
    return name if plain else f"@{channel}/{name}"


def fact_id(channel: str, episode_id: str) -> str:
    """Return the id of an episode's own fact, which never looks like a part of another's."""
    stem, mark, digits = episode_id.rpartition("#")
    if not (mark and digits.isascii() and digits.isdigit()):
        return plain_id(channel, episode_id)
    inner = stem.rpartition("#")[2]
    looks_twice = "#" in stem and inner.isascii() and inner.isdigit()
    clear = channel == "facts" and not episode_id.startswith("@") and not looks_twice
    return f"@{channel}/{episode_id}" + ("" if clear else "#0")


STATED = ("subject", "predicate", "object", "intent", "replaces")


def claims_in(
    episode: dict[str, Any], channel: str, rules: tuple[str, ...] = ()
) -> list[OracleClaim]:
    """Return all claims of an episode in a channel; malformed ones are left out."""
    meta = episode["metadata"]
    triples = meta.get("triples")
    if triples is None:
        return [found for found in [claim_of(episode, channel, rules)] if found]
    if not isinstance(triples, list) or not all(isinstance(triple, dict) for triple in triples):
        return []
    own = meta if any(meta.get(key) is not None for key in STATED) else {"intent": "noop"}
    made = [claim_of({**episode, "metadata": own}, channel, rules)]
    made += [
        claim_of({**episode, "metadata": triple}, channel, rules, part=n + 1)
        for n, triple in enumerate(triples)
    ]
    return [claim for claim in made if claim is not None]


def claim_of(
    episode: dict[str, Any], channel: str, rules: tuple[str, ...], part: int = 0
) -> OracleClaim | None:
    """Return the claim of an episode in a channel; None when the episode is malformed."""
    meta = episode["metadata"]
    intent, replaces = meta.get("intent"), meta.get("replaces")
    if intent not in (None, "add", "update", "delete", "noop"):
        return None
    names: list[str] = []
    if intent in ("update", "delete"):
        names = [replaces] if isinstance(replaces, str) else (replaces or [])
        if not isinstance(names, list) or not all(isinstance(n, str) for n in names):
            return None
    subject, predicate = meta.get("subject"), meta.get("predicate")
    keyed = all(isinstance(p, str) and p for p in (subject, predicate))
    if intent == "delete" and not names and not keyed:
        return None
    clears = "all" if meta.get("object") is None else "object"
    whole = fact_id(channel, episode["id"])
    named = {id for name in names for id in (fact_id(channel, name), plain_id(channel, name))}
    return OracleClaim(
        f"{whole}#{part}" if part else whole, episode["user"], episode["agent"], channel,
        (episode["at"], 1 if names else 0, episode["id"], part), intent in (None, "add", "update"),
        subject, predicate, meta.get("object"), tuple(named),
        clears if intent == "delete" and not names else "", meta.get("confidence", 1.0), rules,
        episode=episode["id"], whole=whole if part else "",
    )  # fmt: skip


def counting_version(
    versions: list[dict[str, Any]], firings: list[tuple[int, int]], tolerance: int
) -> dict[str, Any] | None:
    """Return the version of one episode that counts for a rule; None when it evaluated none.

    A firing evaluates the newest version that it reads, unless the filter selects it and its
    instant lies further ahead of the firing than the tolerance: then the older one still counts.

    Args:
        versions: In log order: ``seq``, ``at``, ``matched``.
        firings: In order: the last number that each reads, and its instant.
        tolerance: In microseconds.
    """
    counting = None
    for upto, now in firings:
        newest = next((one for one in reversed(versions) if one["seq"] <= upto), None)
        if newest and not (newest["matched"] and newest["at"] > now + tolerance):
            counting = newest
    return counting


def current_claims(
    claims: list[OracleClaim], multi: set[tuple[str, str]]
) -> dict[str, OracleClaim]:
    """Return the current claims, by fact id."""
    named, by_key = [], []
    for claim in claims:
        holders = [b for b in claims if (b.fact_id, b.owner) == (claim.fact_id, claim.owner)]
        named += [
            (claim.precedence, own(other), other.belief)
            for other in claims
            if other.asserts
            if claim.names_claim(other) or (len(holders) > 1 and other in holders)
        ]
        if claim.clears:
            what = ANY if claim.clears == "all" else claim.belief
            # A person retracts the belief of one fact; only an episode deletes a whole key.
            by_key.append((claim.precedence, claim.key, what, not claim.names))
    found = {}
    for claim in claims:
        rivals = [b for b in claims if b.asserts and slot(b, multi) == slot(claim, multi)]
        if claim.asserts and claim.precedence == max(b.precedence for b in rivals):
            covered = any(
                by > claim.precedence and place == own(claim) and what == claim.belief
                for by, place, what in named
            ) or any(
                by > claim.precedence and key == claim.key and what in (ANY, claim.belief)
                for by, key, what, deletes in by_key
                if deletes or not claim.declared
            )
            if not covered:
                found[claim.fact_id] = claim
    return found


def own(claim: OracleClaim) -> tuple[Any, ...]:
    """Return the key in which a claim competes; that of a declared fact is its own."""
    return (claim.key, claim.fact_id if claim.declared else None)


def slot(claim: OracleClaim, multi: set[tuple[str, str]]) -> tuple[Any, ...]:
    several = (
        (claim.channel, claim.predicate) in multi and len(claim.key) == 5 and not claim.declared
    )
    return (*own(claim), claim.belief if several else None)


def replaced_ids(
    claim: OracleClaim, claims: list[OracleClaim], multi: set[tuple[str, str]], depth: int
) -> list[str]:
    """Return the ids of the facts that a claim replaced: those it names, then those of its key.

    Each part is newest first. Of its key there are at most ``depth``, without those it names.
    """
    older = sorted(
        (b for b in claims if b.asserts and b.precedence < claim.precedence),
        key=lambda b: b.precedence,
    )
    older.reverse()
    mine = [b.fact_id for b in older if slot(b, multi) == slot(claim, multi)][:depth]
    named = [
        b.fact_id for b in older
        if claim.names_claim(b) and b.fact_id != claim.fact_id
    ]  # fmt: skip
    return [*dict.fromkeys(named), *(id_ for id_ in mine if id_ not in named)]


def asserted_at(claim: OracleClaim) -> int | None:
    """Return the instant of an episode's claim, in microseconds; None of a manual edit."""
    at, rank, *_ = claim.precedence
    return at if rank < 2 else None
