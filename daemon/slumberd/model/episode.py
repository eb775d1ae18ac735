"""Episodes, as callers put them and as a firing reads them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from pydantic import BaseModel, ConfigDict, Field

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


class Episode(BaseModel):
    """One experience of one agent.

    Attributes:
        id: Unique over all scopes of a memory store.
        content: What happened, in the host's words.
        timestamp: When it happened, by the caller's clock. ``memory.naive_timestamps`` decides
            how a store reads one without an offset; a store returns aware ones.
        source_node: The graph node that wrote it.
        agent: Part of the scope.
        user: Part of the scope.
        session: Part of the scope.
        metadata: Any JSON object; orjson also writes values such as dates. slumberd reads
            ``intent``, ``replaces``, ``subject``, ``predicate``, ``object``, ``confidence``.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    id: str
    content: str
    timestamp: datetime
    source_node: str
    agent: str
    user: str
    session: str
    metadata: dict[str, Any] = Field(default_factory=dict)


class SalienceShortfall(NamedTuple):
    """Why a salience gate holds an episode back.

    Attributes:
        score: The episode's salience, 0 to 1.
        least: The minimum of the rule.
        reads: How often the episode had been read.
    """

    score: float
    least: float
    reads: int = 0


class EpisodeVersion(NamedTuple):
    """One version of one episode, as a firing read it from the log.

    Attributes:
        seq: Its number in the episode log; with the log's generation in the high bits.
        id: The episode's id.
        user: From the scope.
        session: From the scope.
        agent: From the scope.
        at: Its instant, microseconds since 1970 UTC; 0 when it cannot be read.
        content: The episode's text.
        source_node: The node that wrote it.
        metadata: Decoded; empty when it cannot be read.
        matched: Whether the rule's filter selects it.
        fault: Why it cannot be read, ``reason: detail``; empty when it can.
        contested: Whether its owner is unknown, so nothing under its id may be changed.
        gated: Why the rule's gate holds it back; None when it does not.
        reread: Whether the rule has passed this version, and a read logged it again.
    """

    seq: int
    id: str
    user: str
    session: str
    agent: str
    at: int
    content: str
    source_node: str
    metadata: dict[str, Any]
    matched: bool = True
    fault: str = ""
    contested: bool = False
    gated: SalienceShortfall | None = None
    reread: bool = False


def microseconds(at: datetime) -> int:
    """Return an aware instant as microseconds since 1970 UTC."""
    return (at - _EPOCH) // _MICROSECOND


def instant(at: int) -> datetime:
    """Return microseconds since 1970 UTC as an aware UTC instant."""
    return _EPOCH + timedelta(microseconds=at)
