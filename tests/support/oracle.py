"""The precedence rule by brute force. The oracle shares no code with the daemon.

The current facts are a function of the set of claims. A retraction covers what is older than
itself. Per key (per object, when multi-valued) the assertions with the highest precedence are
current, unless a retraction covers them. The claims of one version hold together: per key they have
one precedence, and they retract each other only by name. Under law 1 each has its own precedence.
"""

from __future__ import annotations

import json
import unicodedata
from dataclasses import dataclass
from typing import Any

ANY = object()


@dataclass(frozen=True, eq=False)
class OracleClaim:
    """An effective claim: of an episode's newest version in one channel, or of a manual edit.

    Attributes:
        clears: ``all``, ``object`` or the words of an object when the claim retracts its own key;
            else empty.
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
    clears: str | tuple[str, ...]
    confidence: float = 1.0
    rules: tuple[str, ...] = ()
    about: OracleClaim | None = None
    declared: bool = False
    sources: tuple[str, ...] = ()
    episode: str = ""
    """The id of its episode; empty for a manual edit."""
    covers: int = 0
    """Of another program's edit, the newest version of the episode that any rule had evaluated."""
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


def words_of(value: Any) -> set[str]:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    words, word = set(), ""
    for c in unicodedata.normalize("NFD", unicodedata.normalize("NFD", text).casefold()) + " ":
        if c.isalnum() or unicodedata.category(c) in ("Mn", "Mc", "Me") or c in "_\u200c\u200d":
            word += c
        else:
            words.add(word)
            word = ""
    return {word for word in words if any(c.isalnum() or c == "_" for c in word)}


def claims_in(
    episode: dict[str, Any], channel: str, rules: tuple[str, ...] = ()
) -> list[OracleClaim]:
    """Return all claims of an episode in a channel; malformed ones are left out."""
    meta = episode["metadata"]
    if is_withdrawn(meta):
        return []
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


def is_withdrawn(meta: dict[str, Any]) -> bool:
    """Return whether the speaker of an episode took it back: then it makes no claim."""
    return isinstance(meta.get("withdrawn"), str) and meta["withdrawn"] != ""


def cleared_by(meta: dict[str, Any]) -> str | tuple[str, ...]:
    """Return what a delete by key, or a set, retracts."""
    if meta["intent"] == "set":
        return "all"
    if meta.get("object_words"):
        return tuple(word for text in meta["object_words"] for word in words_of(text))
    return "all" if meta.get("object") is None else "object"


def claim_of(
    episode: dict[str, Any], channel: str, rules: tuple[str, ...], part: int = 0
) -> OracleClaim | None:
    """Return the claim of an episode in a channel; None when the episode is malformed."""
    meta = episode["metadata"]
    intent, replaces = meta.get("intent"), meta.get("replaces")
    if intent not in (None, "add", "update", "delete", "noop", "set"):
        return None
    confidence = meta.get("confidence", 1.0)
    if type(confidence) not in (int, float) or not 0 <= confidence <= 1:
        return None
    names: list[str] = []
    if intent in ("update", "delete", "set"):
        names = [replaces] if isinstance(replaces, str) else (replaces or [])
        if not isinstance(names, list) or not all(isinstance(n, str) for n in names):
            return None
    subject, predicate = meta.get("subject"), meta.get("predicate")
    keyed = all(isinstance(p, str) and p for p in (subject, predicate))
    clears = "" if names or intent not in ("delete", "set") else cleared_by(meta)
    words_beside = (
        intent == "delete"
        and meta.get("object_words")
        and (names or meta.get("object") is not None)
    )
    if (clears and not keyed) or (intent == "set" and names) or words_beside:
        return None
    whole = fact_id(channel, episode["id"])
    named = {id for name in names for id in (fact_id(channel, name), plain_id(channel, name))}
    return OracleClaim(
        f"{whole}#{part}" if part else whole, episode["user"], episode["agent"], channel,
        (episode["at"], 1 if names else 0, episode["id"], part),
        intent in (None, "add", "update", "set"),
        subject, predicate, meta.get("object"), tuple(named),
        clears, confidence, rules,
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


def of_one_version(claim: OracleClaim, other: OracleClaim, law: int = 2) -> bool:
    """Return whether two claims are of one version of one episode; only one version counts."""
    return law > 1 and claim.episode != "" and claim.episode == other.episode


def places(claims: list[OracleClaim], law: int = 2) -> dict[OracleClaim, tuple[Any, ...]]:
    """Return the precedence of each claim in its key; a version has one for all of its claims."""
    if law == 1:
        return {claim: claim.precedence for claim in claims}
    ranks: dict[Any, int] = {}
    for claim in claims:
        version = claim.key, claim.episode or claim.precedence
        ranks[version] = max(ranks.get(version, 0), claim.precedence[1])
    return {
        claim: (
            claim.precedence[0],
            ranks[claim.key, claim.episode or claim.precedence],
            claim.precedence[2],
        )
        for claim in claims
    }


def named_pairs(claims: list[OracleClaim]) -> list[tuple[OracleClaim, OracleClaim]]:
    """Return each claim that names an assertion, with that; of one id, each names the others."""
    holders: dict[Any, list[OracleClaim]] = {}
    for claim in claims:
        holders.setdefault((claim.fact_id, claim.owner), []).append(claim)
    pairs = [(by, other) for by in claims if by.names for other in claims if by.names_claim(other)]
    for rivals in holders.values():
        if len(rivals) > 1:
            pairs += [(by, other) for by in rivals for other in rivals]
    return [(by, other) for by, other in pairs if other.asserts]


def current_claims(
    claims: list[OracleClaim], multi: set[tuple[str, str]], law: int = 2
) -> dict[str, OracleClaim]:
    """Return the current claims, by fact id."""
    place = places(claims, law)
    best: dict[Any, tuple[Any, ...]] = {}
    for claim in filter(lambda claim: claim.asserts, claims):
        best[slot(claim, multi)] = max(best.get(slot(claim, multi), ()), place[claim])
    winners = [b for b in claims if b.asserts and place[b] == best[slot(b, multi)]]
    facts = [b for b in winners if not any(is_repetition(b, other, law) for other in winners)]
    covered = covered_claims(facts, claims, law)
    return {claim.fact_id: claim for claim in facts if claim not in covered}


def covered_claims(
    facts: list[OracleClaim], claims: list[OracleClaim], law: int
) -> set[OracleClaim]:
    """Return those of some assertions that a retraction covers."""
    place, named = places(claims, law), named_pairs(claims)

    def retracts_by_name(by: OracleClaim, other: OracleClaim, claim: OracleClaim) -> bool:
        if own(other) != own(claim) or other.belief != claim.belief:
            return False
        if not of_one_version(by, claim, law):
            return place[by] > place[claim]
        repeats = by.asserts and own(by) == own(other) and by.belief == other.belief
        return of_one_version(by, other, law) and by.fact_id != other.fact_id and not repeats

    def retracts_by_key(by: OracleClaim, claim: OracleClaim) -> bool:
        # A person retracts the belief of one fact; only an episode deletes a whole key.
        if not by.clears or by.key != claim.key or (claim.declared and by.names):
            return False
        if of_one_version(by, claim, law) or place[by] <= place[claim]:
            return False
        if isinstance(by.clears, tuple):
            return set(by.clears) <= words_of(claim.object)
        return by.clears == "all" or by.belief == claim.belief

    return {
        claim
        for claim in facts
        if any(retracts_by_name(by, other, claim) for by, other in named)
        or any(retracts_by_key(by, claim) for by in claims)
    }


def is_repetition(claim: OracleClaim, other: OracleClaim, law: int = 2) -> bool:
    """Return whether another claim of the version says the same, and has a lower number."""
    same = of_one_version(claim, other, law) and claim.key == other.key
    return same and claim.belief == other.belief and other.precedence[3] < claim.precedence[3]


def own(claim: OracleClaim) -> tuple[Any, ...]:
    """Return the key in which a claim competes; that of a declared fact is its own."""
    return (claim.key, claim.fact_id if claim.declared else None)


def slot(claim: OracleClaim, multi: set[tuple[str, str]]) -> tuple[Any, ...]:
    several = (
        (claim.channel, claim.predicate) in multi and len(claim.key) == 5 and not claim.declared
    )
    return (*own(claim), claim.belief if several else None)


def replaced_ids(
    claim: OracleClaim,
    claims: list[OracleClaim],
    multi: set[tuple[str, str]],
    depth: int,
    law: int = 2,
) -> list[str]:
    """Return the ids of the facts that a claim replaced: those it names, then those of its key.

    Each part is newest first. Of its key there are at most ``depth``, without those it names.
    """
    place = places(claims, law)
    older = [b for b in claims if b.asserts and place[b] < place[claim]]
    older = [b for b in older if not of_one_version(b, claim, law)]
    older.sort(key=lambda b: (place[b], b.precedence[3:]), reverse=True)
    facts = [b for b in older if not any(is_repetition(b, c, law) for c in older)]
    mine = [b.fact_id for b in facts if slot(b, multi) == slot(claim, multi)][:depth]
    named = [
        b.fact_id for b in older
        if claim.names_claim(b) and b.fact_id != claim.fact_id
    ]  # fmt: skip
    return [*dict.fromkeys(named), *(id_ for id_ in mine if id_ not in named)]


def asserted_at(claim: OracleClaim) -> int | None:
    """Return the instant of an episode's claim, in microseconds; None of a manual edit."""
    at, rank, *_ = claim.precedence
    return at if rank < 2 else None
