"""Make fact ids, keys and owners, and take them apart."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import orjson

from slumberd.model.rule import FACTS
from slumberd.model.scope import escape


def fact_id_of(channel: str, episode_id: str) -> str:
    """Return the id of the fact that an episode promotes into a channel."""
    if channel == FACTS and not episode_id.startswith("@"):
        return episode_id
    return f"@{channel}/{episode_id}"


def channel_of(fact_id: str) -> str:
    """Return the channel in a fact id; ``facts`` for an id without a channel."""
    if fact_id.startswith("@") and "/" in fact_id:
        return fact_id[1:].split("/", 1)[0] or FACTS
    return FACTS


@lru_cache(maxsize=4_096)
def owner_of(user: str, agent: str, channel: str) -> str:
    """Return the owner part of a key: user, agent and channel."""
    return f"{escape(user)}/{escape(agent)}/{escape(channel)}/"


def key_of(owner: str, payload: Mapping[str, Any], fact_id: str) -> str:
    """Return a payload's key; without subject and predicate, a key of its own."""
    subject, predicate = payload.get("subject"), payload.get("predicate")
    if isinstance(subject, str) and isinstance(predicate, str) and subject and predicate:
        return f"{owner}{escape(subject)}/{escape(predicate)}"
    return f"{owner}//{escape(fact_id)}"


def canonical(value: object) -> str:
    """Return JSON with sorted keys; two objects are equal when their canonical JSON is."""
    return orjson.dumps(value, option=orjson.OPT_SORT_KEYS).decode()


def episode_id_of(fact_id: str) -> str:
    """Return the id of the episode that a fact id was made from."""
    if fact_id.startswith("@") and "/" in fact_id:
        return fact_id.split("/", 1)[1]
    return fact_id
