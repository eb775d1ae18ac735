"""Read what a version of an episode states, and the claim that it makes in a channel."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import orjson

from slumberd.model.episode import EpisodeVersion, instant_text
from slumberd.model.scope import canonical, fact_id_of, key_of, named_ids, owner_of, unescape
from slumberd.model.stages import SUMMARISES
from slumberd.model.texts import words_of

ALL = ""
"""In place of an object: every object of a key."""

WORDS = "~"
"""Begins what a retraction covers that gives words in place of an object; no JSON begins so."""

EPISODE, REFERRING, MANUAL = 0, 1, 2
"""Ranks: an episode, an update or delete that names ids (who names an id has seen it), a person."""

INTENTS = ("add", "update", "delete", "noop", "set")
"""The values of ``metadata.intent``."""

UNREADABLE = "unreadable"
"""The reason of a fault that gives none."""

INTENT_UNKNOWN = "intent_unknown"
CONFIDENCE_MALFORMED = "confidence_malformed"
REPLACES_MALFORMED = "replaces_malformed"
OBJECT_WORDS_MALFORMED = "object_words_malformed"
DELETE_OF_NOTHING = "delete_of_nothing"


class Precedence(NamedTuple):
    """A place in the order of claims; only the claims of one version about one key share one.

    Attributes:
        at: Microseconds since 1970 UTC.
        rank: `EPISODE`, `REFERRING` or `MANUAL`; the highest of the version's claims of the key.
        id: The episode's id; of a manual edit its number, so that the later edit wins.
        part: Which of several claims of the episode it is, from 1; 0 for the episode's own. It
            numbers the claims of a version, and gives none of them precedence.
    """

    at: int
    rank: int
    id: str
    part: int = 0


class Claim(NamedTuple):
    """What one version of an episode, or one manual edit, asserts and retracts in one channel.

    Attributes:
        fact_id: The id of the fact that it promotes, or would promote.
        owner: User, agent and channel, escaped and joined; ends with a slash.
        key: Owner, subject and predicate; without those two, the owner and the fact id.
        precedence: Its place in the order of claims.
        asserts: Whether it asserts `object` for `key`.
        object: Canonical JSON. Of a retraction that gives none `ALL`, or its words after `WORDS`.
        names: Fact ids; the claim retracts the key and object of each.
        clears_key: Whether it retracts `object` of its own key, or all of its objects. With
            `asserts` (the intent ``set``) it retracts all older objects of its key.
        confidence: 0 to 1.
        payload: The fact's body; of a retraction only the subject, predicate and object.
        lineage: Of a manual edit, its own lineage entries.
        metadata: Of a manual edit, the fact's metadata.
        pinned_at: Of another program's row, the instant in the row, in microseconds.
        declared: Whether it is a declared fact: its id alone identifies it, and it competes with
            no other claim of its key.
        stored: Of another program's row, the columns whose bytes differ from those that this store
            would write, by name: the type of the value (``text`` or ``blob``), and its text.
        covers: Of another program's edit of a promoted fact, the newest version of the episode that
            any rule had evaluated; a newer version ends the edit. None for all other claims.
        near: The ids of similar facts that it is linked with, and the cosine of each. They were
            found when its version was first evaluated.
    """

    fact_id: str
    owner: str
    key: str
    precedence: Precedence
    asserts: bool
    object: str
    names: tuple[str, ...]
    clears_key: bool
    confidence: float
    payload: dict[str, Any]
    lineage: tuple[dict[str, Any], ...] = ()
    metadata: dict[str, Any] | None = None
    pinned_at: int | None = None
    near: tuple[tuple[str, float], ...] = ()
    declared: bool = False
    stored: Mapping[str, Sequence[str]] | None = None
    covers: int | None = None

    @property
    def ids(self) -> tuple[str, ...]:
        """The ids by which ``replaces`` names it: its fact id, and that of the whole episode."""
        part = self.precedence.part
        if not part:
            return (self.fact_id,)
        return self.fact_id, self.fact_id.removesuffix(f"#{part}")

    def names_claim(self, other: Claim) -> bool:
        """Return whether it names another claim, by the claim's own id or by its episode's.

        A manual edit names single claims only, and so does a claim of the same episode.
        """
        fact_id, *whole = other.ids
        if fact_id in self.names:
            return True
        return bool(whole) and whole[0] in self.names and self.source not in ("", other.source)

    @property
    def cleared(self) -> str:
        """What a claim that clears its key retracts: an object, words, or `ALL`."""
        return ALL if self.asserts else self.object

    @property
    def clears_several(self) -> bool:
        """Whether it retracts more than one given object of its key."""
        return self.clears_key and is_wide(self.cleared)

    @property
    def sources(self) -> tuple[str, ...]:
        """The ids of the episodes that it comes from, each once; of a summary, all of its own."""
        if self.precedence.rank != MANUAL:
            return tuple(self.payload.get(SUMMARISES, (self.precedence.id,)))
        return sources_in_lineage(self.lineage)

    @property
    def source(self) -> str:
        """The id of its episode; empty for a manual edit."""
        return "" if self.precedence.rank == MANUAL else self.precedence.id


class Fault(NamedTuple):
    """Why an episode cannot be read as a claim.

    Attributes:
        reason: One word of a closed set.
        detail: The invalid value and the remedy, for a person.
    """

    reason: str
    detail: str


def sources_in_lineage(lineage: Iterable[Mapping[str, Any]]) -> tuple[str, ...]:
    """Return the ids of the episodes that lineage entries name, each once."""
    given = (entry.get("source_episode_ids") for entry in lineage)
    found = (source for sources in given if isinstance(sources, list | tuple) for source in sources)
    return tuple(dict.fromkeys(source for source in found if isinstance(source, str)))


EMPTY_DELETE = Fault(
    DELETE_OF_NOTHING, "delete names no id and has no subject and predicate; give one of them"
)
"""The fault of a delete that has neither an id nor a key."""

EMPTY_SET = Fault(DELETE_OF_NOTHING, "set has no subject and predicate; give both")
"""The fault of a set without a key."""

REPLACES_BESIDE_SET = Fault(
    REPLACES_MALFORMED, "replaces stands beside the intent set; give one of them"
)
"""The fault of a set that names ids."""


@lru_cache(maxsize=4_096)
@lru_cache(maxsize=4_096)
def user_and_agent(owner: str) -> tuple[str, str]:
    """Return the user and agent of an owner, or of a key, which begins with its owner."""
    user, agent, _ = owner.split("/", 2)
    return (unescape(user), unescape(agent)) if "%" in owner else (user, agent)


def has_subject(claim: Claim) -> bool:
    """Return whether a claim's key consists of a subject and a predicate."""
    return not claim.key.startswith("//", len(claim.owner))


def deletes_by_key(claim: Claim) -> bool:
    """Return whether an episode's claim retracts by its key: a delete without ids, or a set."""
    return claim.clears_key and claim.precedence.rank != MANUAL


def is_wide(what: str) -> bool:
    """Return whether a retraction may cover several objects of a key: all, or those with words."""
    return what == ALL or what.startswith(WORDS)


def covers(what: str, object_: str) -> bool:
    """Return whether a retraction of an object, of words or of `ALL` covers an object."""
    if what in (ALL, object_):
        return True
    return what.startswith(WORDS) and words_in(object_).issuperset(what[len(WORDS) :].split(" "))


@lru_cache(maxsize=4_096)
def words_in(object_: str) -> frozenset[str]:
    """Return the casefolded words of an object, given as canonical JSON."""
    value = orjson.loads(object_)
    return frozenset(words_of(value if isinstance(value, str) else object_))


def claims_hold_together(claims: Sequence[Claim]) -> list[Claim]:
    """Return the claims of one version, so that those of one key have one precedence."""
    referring = {claim.key for claim in claims if claim.precedence.rank == REFERRING}
    return [
        claim._replace(precedence=claim.precedence._replace(rank=REFERRING))
        if claim.key in referring and claim.precedence.rank == EPISODE
        else claim
        for claim in claims
    ]


def confidence_of(metadata: Mapping[str, Any]) -> float:
    """Return the confidence of readable metadata: 1.0 when they have none."""
    value = metadata.get("confidence")
    return 1.0 if value is None else float(value)


def confidence_fault(metadata: Mapping[str, Any]) -> Fault | None:
    """Return the fault of a ``metadata.confidence`` that is no number in 0..1; None without one."""
    value = metadata.get("confidence")
    if value is None:
        return None
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if is_number and 0 <= value <= 1:
        return None
    return Fault(CONFIDENCE_MALFORMED, f"confidence is {value!r}; write a number from 0 to 1"[:200])


def fault_of(version: EpisodeVersion) -> Fault:
    """Return the fault of a version that cannot be read."""
    reason, _, detail = version.fault.partition(": ")
    return Fault(reason or UNREADABLE, detail)


def claim_of(version: EpisodeVersion, channel: str) -> Claim | Fault:
    """Return the claim of one version of an episode in one channel; a fault if it has none."""
    if version.fault:
        return fault_of(version)
    found = _read_claim(version, channel)
    if isinstance(found, Fault) and version.part:
        return Fault(found.reason, f"triple {version.part}: {found.detail}")
    return found


def _read_claim(version: EpisodeVersion, channel: str) -> Claim | Fault:
    metadata = version.metadata
    if fault := confidence_fault(metadata):
        return fault
    intent = metadata.get("intent")
    if intent is None or intent == "add":
        return assertion_of(version, channel, ())
    if intent not in INTENTS:
        return intent_fault(intent)
    if intent == "noop":
        return _retraction(version, channel, (), clears_key=False)
    names = names_in(metadata.get("replaces"))
    if isinstance(names, Fault):
        return names
    if intent == "set":
        return _set(version, channel) if not names else REPLACES_BESIDE_SET
    named = tuple(dict.fromkeys(id for name in names for id in named_ids(channel, name)))
    if intent == "update":
        return assertion_of(version, channel, named)
    return _delete(version, channel, named)


def names_in(replaces: object) -> tuple[str, ...] | Fault:
    """Return the ids in ``metadata.replaces``; a fault when it is malformed."""
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


def assertion_of(version: EpisodeVersion, channel: str, names: tuple[str, ...] = ()) -> Claim:
    """Return the claim of a readable version that asserts something, and names some ids."""
    fact_id = fact_id_of(channel, version.id, version.part)
    owner = owner_of(version.user, version.agent, channel)
    metadata = version.metadata
    payload = {
        "id": fact_id,
        "user": version.user,
        "agent": version.agent,
        "content": version.content,
        "source_node": version.source_node,
        "timestamp": instant_text(version.at),
    }
    add_triple(payload, metadata)
    if version.part and "extracted" in metadata:
        payload["extracted"] = metadata["extracted"]
    asserts, clears_key = True, False
    # By position: names would take a fifth of the time of a claim.
    return Claim(
        fact_id, owner, key_of(owner, payload, fact_id), precedence_of(version, names), asserts,
        canonical(metadata.get("object")), names, clears_key, confidence_of(metadata), payload,
    )  # fmt: skip


def precedence_of(version: EpisodeVersion, names: tuple[str, ...]) -> Precedence:
    """Return the precedence of a version's claim, which names some ids."""
    return Precedence(version.at, REFERRING if names else EPISODE, version.id, version.part)


def intent_fault(intent: object) -> Fault:
    """Return the fault of an unknown intent."""
    return Fault(INTENT_UNKNOWN, f"intent is {intent!r}; write one of {', '.join(INTENTS)}")


def add_triple(payload: dict[str, Any], metadata: Mapping[str, Any]) -> None:
    """Add the subject, predicate and object of metadata to a fact's body, if they are given."""
    subject, predicate = metadata.get("subject"), metadata.get("predicate")
    object_ = metadata.get("object")
    if subject is not None:
        payload["subject"] = subject
    if predicate is not None:
        payload["predicate"] = predicate
    if object_ is not None:
        payload["object"] = object_


def _retraction(
    version: EpisodeVersion, channel: str, names: tuple[str, ...], *, clears_key: bool
) -> Claim:
    fact_id = fact_id_of(channel, version.id, version.part)
    owner = owner_of(version.user, version.agent, channel)
    payload: dict[str, Any] = {"id": fact_id, "user": version.user, "agent": version.agent}
    add_triple(payload, version.metadata)
    words = version.metadata.get("object_words") if clears_key else None
    if words:
        payload["object_words"] = [words] if isinstance(words, str) else words
    if version.part and "extracted" in version.metadata:
        payload["extracted"] = version.metadata["extracted"]
    if not version.part and "triples" in version.metadata:  # their number: see `statements_of`
        payload["triples"] = version.metadata["triples"]
    return Claim(
        fact_id=fact_id,
        owner=owner,
        key=key_of(owner, payload, fact_id),
        precedence=precedence_of(version, names),
        asserts=False,
        object=retracted_object(payload),
        names=names,
        clears_key=clears_key,
        confidence=confidence_of(version.metadata),
        payload=payload,
    )


def retracted_object(payload: Mapping[str, Any]) -> str:
    """Return what a retraction gives: an object, words, or `ALL`."""
    if "object_words" in payload:
        words = {word for text in payload["object_words"] for word in words_of(text)}
        return WORDS + " ".join(sorted(words))
    return canonical(payload["object"]) if "object" in payload else ALL


def deleted_object(metadata: Mapping[str, Any]) -> str:
    """Return what a delete by key covers, if its metadata can be read."""
    words, object_ = metadata.get("object_words"), metadata.get("object")
    if words:
        return retracted_object({"object_words": [words] if isinstance(words, str) else words})
    return ALL if object_ is None else canonical(object_)


def _delete(version: EpisodeVersion, channel: str, names: tuple[str, ...]) -> Claim | Fault:
    problem = find_words_problem(version.metadata, names)
    if problem:
        return Fault(OBJECT_WORDS_MALFORMED, problem)
    claim = _retraction(version, channel, names, clears_key=not names)
    return EMPTY_DELETE if claim.clears_key and not has_subject(claim) else claim


def find_words_problem(metadata: Mapping[str, Any], names: Sequence[str]) -> str:
    """Return why the ``object_words`` of a delete cannot be read; empty when they can."""
    words = metadata.get("object_words")
    if words is None or words == []:
        return ""
    given = words if isinstance(words, list) else [words]
    if not all(isinstance(word, str) and words_of(word) for word in given):
        return f"object_words is {words!r}; write a list of words"[:200]
    if names or metadata.get("object") is not None:
        return "object_words stands beside replaces or object; give one of them"
    return ""


def _set(version: EpisodeVersion, channel: str) -> Claim | Fault:
    claim = assertion_of(version, channel)._replace(clears_key=True)
    return claim if has_subject(claim) else EMPTY_SET


MOST_TRIPLES = 1_000
"""How many triples one episode may have."""

TRIPLES_MALFORMED = "triples_malformed"
"""The reason of a fault: ``metadata.triples`` cannot be read."""

_OWN = ("intent", "subject", "predicate", "object", "replaces")
"""The keys of metadata that make a statement of the episode's own."""


def as_stated(version: EpisodeVersion) -> EpisodeVersion:
    """Return a version as its speaker lets it stand; no rule selects one that was taken back.

    So a rule that has evaluated an older version withdraws what that one claimed.
    """
    return version._replace(matched=False) if version.withdrawn and not version.fault else version


def statements_of(version: EpisodeVersion) -> list[EpisodeVersion]:
    """Return a version once for each of its statements, each with the metadata of its own.

    The first is the statement of the metadata itself. With ``triples`` and without keys of its
    own, the metadata states nothing, as with the intent ``noop``. A version whose ``triples``
    cannot be read is returned with a fault.
    """
    version = as_stated(version)
    triples = version.metadata.get("triples")
    if triples is None or version.fault or not version.matched:
        return [version]
    problem = _find_problem(triples)
    if problem:
        return [version._replace(fault=f"{TRIPLES_MALFORMED}: {problem}")]
    parts = [version._replace(metadata=triple, part=n) for n, triple in enumerate(triples, 1)]
    return [version._replace(metadata=_own_metadata(version.metadata, len(parts))), *parts]


def states_nothing(metadata: Mapping[str, Any]) -> bool:
    """Return whether metadata has neither a statement of its own nor ``triples``."""
    return all(metadata.get(key) is None for key in (*_OWN, "triples"))


def _own_metadata(metadata: dict[str, Any], triples: int) -> dict[str, Any]:
    own = {key: value for key, value in metadata.items() if key != "triples"}
    return {**own, "intent": "noop", "triples": triples} if states_nothing(own) else own


def _find_problem(triples: object) -> str:
    """Return why triples cannot be read; empty when they can."""
    if not isinstance(triples, list):
        return f"triples is {triples!r}; write a list of objects"[:200]
    if len(triples) > MOST_TRIPLES:
        return f"triples has {len(triples)} elements; write {MOST_TRIPLES} at most"
    wrong = next((triple for triple in triples if not isinstance(triple, dict)), None)
    if wrong is not None or None in triples:
        return f"triples holds {wrong!r}; each element is an object"[:200]
    return ""
