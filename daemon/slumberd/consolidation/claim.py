"""Acts: what one version of one episode, or one hand, says in one channel."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from slumberd.model.episode import EpisodeVersion, instant
from slumberd.model.fact_ids import canonical, fact_id_of, key_of, owner_of
from slumberd.model.scope import unescape

ALL = ""
"""In place of an object: every object of a key."""

EPISODE, REFERRING, MANUAL = 0, 1, 2
"""Ranks: an episode, an update or delete that names ids (who names an id has seen it), a person."""

INTENTS = ("add", "update", "delete", "noop")

INTENT_UNKNOWN = "intent_unknown"
REPLACES_MALFORMED = "replaces_malformed"
DELETE_OF_NOTHING = "delete_of_nothing"


class Precedence(NamedTuple):
    """When something was said, in an order without ties.

    Attributes:
        at: Microseconds since 1970 UTC.
        rank: `EPISODE`, `REFERRING` or `MANUAL`.
        id: The episode's id; of hands their number, so that the later one wins.
    """

    at: int
    rank: int
    id: str


class Claim(NamedTuple):
    """What is asserted, and what is retracted.

    Attributes:
        fact_id: The id of the fact that it promotes, or would.
        owner: User, agent and channel, escaped and joined; ends with a slash.
        key: Owner, subject and predicate; without those two, the owner and the fact id.
        precedence: When it is said.
        asserts: Whether it says that `object` holds for `key`.
        object: Canonical JSON; `ALL` when a retraction gives none.
        names: Fact ids whose belief (key, object) it retracts.
        clears: Whether it retracts `object` of its own key, or all of its objects.
        confidence: 0 to 1.
        payload: The fact's body; of retractions only what they are about.
        lineage: Of hands, the own entries that they gave.
        metadata: Of hands, the fact's metadata.
        pinned_at: Of another program's row, the instant that it gave, in microseconds.
        declared: Whether it is a declared fact: its id alone identifies it, and it competes with
            no other claim of its key.
        stored: Of another program's row, the columns whose bytes differ from those that this store
            would write, by name: the type of the value (``text`` or ``blob``), and its text.
        near: Fact ids that it was found to be near to when it was met, with the cosine. Those that
            it says again word for word are in `names` too; with the others it is only linked.
    """

    fact_id: str
    owner: str
    key: str
    precedence: Precedence
    asserts: bool
    object: str
    names: tuple[str, ...]
    clears: bool
    confidence: float
    payload: dict[str, Any]
    lineage: tuple[dict[str, Any], ...] = ()
    metadata: dict[str, Any] | None = None
    pinned_at: int | None = None
    near: tuple[tuple[str, float], ...] = ()
    declared: bool = False
    stored: Mapping[str, Sequence[str]] | None = None

    @property
    def possible_duplicates(self) -> list[str]:
        """The ids of the facts that are near to it and stay beside it."""
        return [fact_id for fact_id, _ in self.near if fact_id not in self.names]


class Fault(NamedTuple):
    """Why an episode cannot be read as an act.

    Attributes:
        reason: One word of a closed set.
        detail: What was found, for a person.
    """

    reason: str
    detail: str


EMPTY_DELETE = Fault(
    DELETE_OF_NOTHING, "delete names no id and has no subject and predicate; give one of them"
)
"""The fault of a delete that retracts nothing."""


@lru_cache(maxsize=4_096)
def user_and_agent(owner: str) -> tuple[str, str]:
    """Return whose an owner, or the key that begins with one, says that it is."""
    user, agent, _ = owner.split("/", 2)
    return (unescape(user), unescape(agent)) if "%" in owner else (user, agent)


def has_subject(claim: Claim) -> bool:
    """Say whether an act's key is one of subject and predicate."""
    return not claim.key.startswith("//", len(claim.owner))


def deletes_by_key(claim: Claim) -> bool:
    """Say whether an act is a delete that names no id: it covers what its key says."""
    return claim.clears and claim.precedence.rank == EPISODE


def confidence_of(metadata: Mapping[str, Any]) -> float:
    """Return ``metadata.confidence`` when it is a finite number in 0..1, else 1.0."""
    value = metadata.get("confidence")
    if value is None:
        return 1.0
    if isinstance(value, bool) or not isinstance(value, int | float):
        return 1.0
    return float(value) if math.isfinite(value) and 0 <= value <= 1 else 1.0


def claim_of(version: EpisodeVersion, channel: str) -> Claim | Fault:
    """Read what one version of an episode says in one channel."""
    metadata = version.metadata
    intent = metadata.get("intent")
    if intent is None or intent == "add":
        return _assertion(version, channel, ())
    if intent not in INTENTS:
        return intent_fault(intent)
    if intent == "noop":
        return _retraction(version, channel, (), clears=False)
    names = names_in(metadata.get("replaces"))
    if isinstance(names, Fault):
        return names
    named = tuple(dict.fromkeys(fact_id_of(channel, name) for name in names))
    if intent == "update":
        return _assertion(version, channel, named)
    return _delete(version, channel, named)


def names_in(replaces: object) -> tuple[str, ...] | Fault:
    """Return the ids that ``replaces`` names; a fault when it is malformed."""
    match replaces:
        case None:
            return ()
        case str():
            return (replaces,)
        case list() if all(isinstance(name, str) for name in replaces):
            return tuple(replaces)
        case _:
            detail = f"replaces is {replaces!r}; write a list of episode ids"
            return Fault(REPLACES_MALFORMED, detail[:200])


def _assertion(version: EpisodeVersion, channel: str, names: tuple[str, ...]) -> Claim:
    fact_id = fact_id_of(channel, version.id)
    owner = owner_of(version.user, version.agent, channel)
    metadata = version.metadata
    payload = {
        "id": fact_id,
        "user": version.user,
        "agent": version.agent,
        "content": version.content,
        "source_node": version.source_node,
        "timestamp": instant(version.at).isoformat(),
    }
    add_triple(payload, metadata)
    return Claim(
        fact_id,
        owner,
        key_of(owner, payload, fact_id),
        Precedence(version.at, REFERRING if names else EPISODE, version.id),
        True,
        canonical(metadata.get("object")),
        names,
        False,
        confidence_of(metadata),
        payload,
    )


def intent_fault(intent: object) -> Fault:
    """Return the fault of an intent that is not known."""
    return Fault(INTENT_UNKNOWN, f"intent is {intent!r}; write one of {', '.join(INTENTS)}")


def add_triple(payload: dict[str, Any], metadata: Mapping[str, Any]) -> None:
    """Add subject, predicate and object to a body, those that metadata give."""
    subject, predicate = metadata.get("subject"), metadata.get("predicate")
    what = metadata.get("object")
    if subject is not None:
        payload["subject"] = subject
    if predicate is not None:
        payload["predicate"] = predicate
    if what is not None:
        payload["object"] = what


def _retraction(
    version: EpisodeVersion, channel: str, names: tuple[str, ...], *, clears: bool
) -> Claim:
    fact_id = fact_id_of(channel, version.id)
    owner = owner_of(version.user, version.agent, channel)
    payload = {"id": fact_id, "user": version.user, "agent": version.agent}
    add_triple(payload, version.metadata)
    return Claim(
        fact_id,
        owner,
        key_of(owner, payload, fact_id),
        Precedence(version.at, REFERRING if names else EPISODE, version.id),
        False,
        canonical(payload["object"]) if "object" in payload else ALL,
        names,
        clears,
        confidence_of(version.metadata),
        payload,
    )


def _delete(version: EpisodeVersion, channel: str, names: tuple[str, ...]) -> Claim | Fault:
    claim = _retraction(version, channel, names, clears=not names)
    return EMPTY_DELETE if claim.clears and not has_subject(claim) else claim
