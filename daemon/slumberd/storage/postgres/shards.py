"""Which shard of a database holds a user's episodes and facts with one agent."""

from __future__ import annotations

from hashlib import sha256

from slumberd.model.scope import escape


def shard_of(user: str, agent: str, shards: int) -> int:
    """Return the shard of a user and an agent; the database computes the same.

    Args:
        user: The user.
        agent: The agent.
        shards: How many shards the database has, at least 1.
    """
    place = f"/user/{escape(user)}/agent/{escape(agent)}/"
    return int.from_bytes(sha256(place.encode()).digest()[:4]) % shards
