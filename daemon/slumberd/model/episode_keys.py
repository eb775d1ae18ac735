"""Ids of episodes that are made from a user, an agent and a key of the caller's own."""

from __future__ import annotations

from slumberd.model.scope import escape

KEY_PREFIX = "key:"
"""How an id begins that is made from a key."""


def id_of_key(user: str, agent: str, key: str) -> str:
    """Return the id of a key; other users and agents get other ids."""
    return f"{_prefix(user, agent)}{escape(key)}"


def may_have_id(user: str, agent: str, id: str) -> bool:
    """Return whether an episode of a user and an agent may have an id."""
    return not id.startswith(KEY_PREFIX) or id.startswith(_prefix(user, agent))


def _prefix(user: str, agent: str) -> str:
    return f"{KEY_PREFIX}{escape(user)}/{escape(agent)}/"
