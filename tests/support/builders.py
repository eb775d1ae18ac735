"""Values for tests: each builder has a sensible default for what a test does not care about."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from slumberd.model.episode import Episode, EpisodeVersion, microseconds
from slumberd.model.provenance import Promotion
from slumberd.model.rule import ConsolidationRule

START = datetime(2026, 1, 1, 12, tzinfo=UTC)
"""The first instant of every test."""


def at(seconds: float) -> datetime:
    """Return the instant this many seconds after `START`."""
    return START + timedelta(seconds=seconds)


def episode(id: str = "e1", **overrides: Any) -> Episode:
    """Return an episode of alice, talking to rag in session s1."""
    fields: dict[str, Any] = {
        "content": f"content of {id}",
        "timestamp": START,
        "source_node": "chat",
        "agent": "rag",
        "user": "alice",
        "session": "s1",
        "metadata": {},
    }
    return Episode(id=id, **(fields | overrides))


def triple(id: str, subject: Any, predicate: Any, object: Any, **overrides: Any) -> Episode:
    """Return an episode that asserts one triple; `metadata` overrides are merged in."""
    metadata = {"subject": subject, "predicate": predicate, "object": object}
    metadata |= overrides.pop("metadata", {})
    return episode(id, metadata=metadata, **overrides)


def version(id: str = "e1", *, seq: int = 1, **overrides: Any) -> EpisodeVersion:
    """Return what a firing reads of `episode(id, **overrides)`."""
    return version_of(episode(id, **overrides), seq=seq)


def version_of(episode: Episode, *, seq: int) -> EpisodeVersion:
    """Return what a firing reads of an episode."""
    return EpisodeVersion(
        seq=seq,
        id=episode.id,
        user=episode.user,
        session=episode.session,
        agent=episode.agent,
        at=microseconds(episode.timestamp),
        content=episode.content,
        source_node=episode.source_node,
        metadata=episode.metadata,
    )


def rule(id: str = "everything", **overrides: Any) -> ConsolidationRule:
    """Return a rule that promotes every episode into the channel ``facts``."""
    fields: dict[str, Any] = {
        "cadence": {"every": 1},
        "when_filter": "",
        "then_emits": ["facts"],
    }
    return ConsolidationRule(id=id, **(fields | overrides))


def promotion(seq: int = 1, **overrides: Any) -> Promotion:
    """Return a row of a ledger that adds a fact of alice's."""
    usual = Promotion(
        seq, "add", "everything@1", "everything", START, f"e{seq}", "alice", "rag", "facts",
        "alice", "drinks", '"tea"', 1.0, (),
    )  # fmt: skip
    return usual._replace(**overrides)
