"""The values of the memory contract, and records as episodes: check, write and read them."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple
from uuid import uuid4

import orjson

from slumberd.model.episode import Episode, EpisodeVersion, instant, is_visible
from slumberd.model.errors import MemoryScopeError, RecordRefusedError
from slumberd.model.scope import Scope, validate_scope
from slumberd.storage.strict_json import MOST_DEPTH, too_deep


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryWriteRecord:
    """A record to write.

    Attributes:
        content: The text.
        metadata: Values of JSON, which a search can filter by.
        item_id: Replaces the record of the same namespace and id; None or blank makes a new id.
    """

    content: str
    metadata: dict[str, object] = field(default_factory=dict)
    item_id: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return a copy of the fields by name."""
        return asdict(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class MemorySearchQuery:
    """A question to a memory.

    Attributes:
        text: The question.
        namespace: The only namespace that is searched.
        top_k: At most this many records, at least 1.
        min_score: The least score, inclusive; None for any score above 0.
        metadata_filters: Each key must be in the metadata of a record, with an equal value of the
            same type.
    """

    text: str
    namespace: str = "default"
    top_k: int = 5
    min_score: float | None = None
    metadata_filters: dict[str, object] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """Return a copy of the fields by name."""
        return asdict(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryRecord:
    """A record that was written or found.

    Attributes:
        item_id: Unique in its namespace.
        namespace: The namespace.
        content: The text.
        metadata: As it was written; a copy.
        created_at: When the id was first written: ISO 8601 in UTC.
        updated_at: When the record was last written: ISO 8601 in UTC.
        score: How much of a question it answers, above 0 and up to 1; None unless searched.
        lexical_score: The part of the words, 0 to 1; None unless searched.
        vector_score: The part of the meaning, 0 to 1; None without vectors.
    """

    item_id: str
    namespace: str
    content: str
    metadata: dict[str, object] = field(default_factory=dict)
    created_at: str | None = None
    updated_at: str | None = None
    score: float | None = None
    lexical_score: float | None = None
    vector_score: float | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return a copy of the fields by name."""
        return asdict(self)


SESSION, AGENT = "records", "contract"
"""The session and the agent of all records; the user is the namespace."""

_DEFAULT_NAMESPACE = "default"
_KEY = "record"
"""The key of an episode's metadata below which the caller's metadata lies."""

_SPOKEN_BY = ("speaker", "role")
"""The keys of the caller's metadata that say who spoke; rules and searches read copies of them."""

_STEP = timedelta(microseconds=1)


class Draft(NamedTuple):
    """A record that was checked, and is not stored yet.

    Attributes:
        item_id: Its id, not blank.
        content: The text.
        metadata: A copy.
    """

    episode_id: str
    item_id: str
    content: str
    metadata: dict[str, Any]


def scope_of_namespace(namespace: str, *, operation: str) -> Scope:
    """Return the scope that holds a namespace; a blank one is the default namespace.

    Raises:
        MemoryScopeError: The namespace is no text, no valid Unicode, or holds a control character.
    """
    if type(namespace) is not str:
        raise MemoryScopeError((None, SESSION, AGENT), operation, "the namespace is no text")
    scope = Scope(namespace.strip() or _DEFAULT_NAMESPACE, SESSION, AGENT)
    return validate_scope(scope, operation=operation)


def draft_records(records: Sequence[MemoryWriteRecord], namespace: str) -> list[Draft]:
    """Return checked copies of records.

    Raises:
        RecordRefusedError: A record is of another type, has no JSON form that comes back equal, or
            an id occurs twice.
        ValueError: There is no sequence of records.
    """
    if not isinstance(records, Sequence):
        raise ValueError(f"records is {type(records).__name__}, not a sequence")  # noqa: TRY004 # as for other wrong values
    drafts = [_draft(number, record, namespace) for number, record in enumerate(records)]
    first: dict[str, int] = {}
    for number, draft in enumerate(drafts):
        before = first.setdefault(draft.item_id, number)
        if before != number:
            raise RecordRefusedError(number, f"record {before} has the id {draft.item_id!r}, too")
    return drafts


def _draft(number: int, record: object, namespace: str) -> Draft:
    if not isinstance(record, MemoryWriteRecord):
        raise RecordRefusedError(number, f"{type(record).__name__} is no MemoryWriteRecord")
    if not isinstance(record.metadata, dict):
        raise RecordRefusedError(number, "metadata is no dict")
    item_id = uuid4().hex if record.item_id is None else record.item_id
    values = {"content": record.content, "item_id": item_id, "metadata": record.metadata}
    for name, value in values.items():
        if problem := json_problem(value, name):
            raise RecordRefusedError(number, problem)
    for name in ("content", "item_id"):
        if type(values[name]) is not str:
            raise RecordRefusedError(number, f"{name} is no text")
    item_id = item_id.strip() or uuid4().hex
    metadata = orjson.loads(orjson.dumps(record.metadata))
    return Draft(episode_id_of(namespace, item_id), item_id, record.content, metadata)


def episode_id_of(namespace: str, item_id: str) -> str:
    """Return the id of a record's episode: different for each namespace and item id."""
    pair = orjson.dumps([namespace, item_id])
    return f"record-{hashlib.blake2b(pair, digest_size=20).hexdigest()}"


def json_problem(value: object, path: str) -> str:
    """Return why a value would not come back equal from JSON; empty when it would."""
    try:
        decoded = orjson.loads(orjson.dumps(value))
    except TypeError as error:
        return f"{path} is not JSON: {error}"
    # The caller's metadata lies two levels deep in the metadata of the episode.
    if isinstance(decoded, dict) and too_deep({_KEY: {"metadata": decoded}}):
        return f"{path} is nested deeper than {MOST_DEPTH - 2} levels"
    found = _difference(value, decoded, path)
    return f"{found} is no plain value of JSON, and would change" if found else ""


def _difference(value: object, decoded: object, path: str) -> str:
    """Return the path of the first value that JSON changes; empty without one."""
    if type(value) is not type(decoded):
        return path
    parts: list[tuple[object, object, str]] = []
    if isinstance(value, dict) and isinstance(decoded, dict):
        parts = [(part, decoded[key], f"{path}.{key}") for key, part in value.items()]
    elif isinstance(value, list) and isinstance(decoded, list):
        pairs = enumerate(zip(value, decoded, strict=True))
        parts = [(*pair, f"{path}[{place}]") for place, pair in pairs]
    return next((found for part in parts if (found := _difference(*part))), "")


def are_equal(one: object, other: object) -> bool:
    """Return whether two values of JSON are equal and of the same types: True is not 1."""
    if type(one) is not type(other):
        return False
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(are_equal(one[key], other[key]) for key in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(are_equal, one, other))
    return one == other


def episodes_of(
    drafts: Sequence[Draft], scope: Scope, stored: Mapping[str, EpisodeVersion], at: datetime
) -> list[Episode]:
    """Return the episodes that keep records.

    Args:
        drafts: The records.
        scope: The scope of their namespace.
        stored: What the store has under the ids of the episodes.
        at: Now. A record that was updated later, by another clock, gets the next microsecond.
    """
    return [_episode(draft, scope, stored.get(draft.episode_id), at) for draft in drafts]


def _episode(draft: Draft, scope: Scope, stored: EpisodeVersion | None, at: datetime) -> Episode:
    before = record_of(stored) if stored else None
    updated = max(at, instant(stored.at) + _STEP) if stored and before else at
    created_at = before.created_at if before else _text(at)
    kept = {"item_id": draft.item_id, "created_at": created_at, "metadata": draft.metadata}
    return Episode(
        id=draft.episode_id,
        content=draft.content,
        timestamp=updated,
        source_node=AGENT,
        agent=scope.agent,
        user=scope.user,
        session=scope.session,
        metadata={**_spoken_by(draft.metadata), _KEY: kept},
    )


def _spoken_by(metadata: Mapping[str, Any]) -> dict[str, str]:
    return {key: name for key in _SPOKEN_BY if is_visible(name := metadata.get(key))}


def record_of(episode: Episode | EpisodeVersion) -> MemoryRecord | None:
    """Return the record that an episode keeps; None when it keeps none."""
    match episode.metadata.get(_KEY):
        case {"item_id": str(item_id), "created_at": str(created_at), "metadata": dict(metadata)}:
            pass
        case _:
            return None
    if episode.id != episode_id_of(episode.user, item_id):
        return None
    at = episode.timestamp if isinstance(episode, Episode) else instant(episode.at)
    return MemoryRecord(
        item_id=item_id,
        namespace=episode.user,
        content=episode.content,
        metadata=metadata,
        created_at=created_at,
        updated_at=_text(at),
    )


def _text(at: datetime) -> str:
    # Always with microseconds, so that the order of the texts is the order of the instants.
    return at.astimezone(UTC).isoformat(timespec="microseconds")
