"""Rows of episodes as Stargraph's own store writes them."""

from __future__ import annotations

from typing import Any

import orjson

from slumberd.model.episode import Episode

INSERT = "INSERT OR REPLACE INTO episodes VALUES (?, ?, ?, ?, ?)"
"""The statement by which it writes one."""


def row_of(
    episode: Episode, key: str | None = None, content: bytes | None = None
) -> tuple[Any, ...]:
    """Return the row that Stargraph's own store writes; by default under the episode's scope."""
    names = ("content", "source_node", "agent", "user", "session")
    document = orjson.dumps({name: getattr(episode, name) for name in names})
    key = key or f"/user/{episode.user}/session/{episode.session}/agent/{episode.agent}/"
    timestamp, metadata = episode.timestamp.isoformat(), orjson.dumps(episode.metadata)
    return (episode.id, key, content or document, timestamp, metadata)
