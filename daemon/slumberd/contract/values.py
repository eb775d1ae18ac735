"""The values of the memory contract: what is written, what is asked, and what is found."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any


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
