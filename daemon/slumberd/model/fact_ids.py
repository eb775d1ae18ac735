"""Make fact ids, keys and owners, and take them apart."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import orjson

from slumberd.model.rule import FACTS
from slumberd.model.scope import escape

_NUMBERED = re.compile(r"#[0-9]+\Z")
"""The end of an episode's id that looks like the number of one of several claims."""

_WHOLE = "#0"
"""Ends the id of an own claim that would look like one of several claims of another episode."""


def fact_id_of(channel: str, episode_id: str, part: int = 0) -> str:
    """Return the id of the fact that an episode promotes into a channel.

    Only the several claims of an episode have ids that end in ``#`` and a number from 1 on, but for
    ``@facts/{id}`` of an episode whose own id ends so. No two episodes share an id.

    Args:
        part: Which of several claims of the episode it is, from 1; 0 for the episode's own.
    """
    own = _own_id(channel, episode_id)
    return f"{own}#{part}" if part else own


def _own_id(channel: str, episode_id: str) -> str:
    numbered = _NUMBERED.search(episode_id)
    if numbered is None:
        return plain_fact_id(channel, episode_id)
    own = f"@{channel}/{episode_id}"
    is_clear = channel == FACTS and not episode_id.startswith("@")
    if is_clear and not _NUMBERED.search(episode_id[: numbered.start()]):
        return own
    return own + _WHOLE


def plain_fact_id(channel: str, name: str) -> str:
    """Return the id of a name in a channel, whatever the name ends in.

    Such is the id of a single fact that a claim names, and the id that slumberd 0.2 gave to an
    episode whose own id ends in ``#`` and digits.
    """
    if channel == FACTS and not name.startswith("@"):
        return name
    return f"@{channel}/{name}"


def named_ids(channel: str, name: str) -> tuple[str, ...]:
    """Return the ids that a name stands for: an episode's own fact, and one of several facts."""
    return tuple(dict.fromkeys((fact_id_of(channel, name), plain_fact_id(channel, name))))


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
        episode_id = fact_id.split("/", 1)[1]
        shorter = episode_id.removesuffix(_WHOLE)
        return shorter if _NUMBERED.search(shorter) else episode_id
    return fact_id
