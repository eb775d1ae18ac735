"""Read the newest versions of episodes by their ids, whatever scope they have."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

from slumberd.model.episode import EpisodeVersion
from slumberd.model.rule import ConsolidationRule
from slumberd.model.scope import FACTS
from slumberd.storage.episodes.store import EngineMemoryStore

Versions = dict[str, EpisodeVersion]
"""The newest version of each episode, by the episode's id."""

NEWEST = 2**63 - 1
"""A number above that of every version."""


@cache
def _every_version() -> ConsolidationRule:
    """Return a rule that selects all; `recent` pays for none, so it is made at its first use."""
    every = {"cadence": {"every": 1}, "when_filter": "", "then_emits": [FACTS]}
    return ConsolidationRule(id="@why", **every)


async def newest_versions(
    memory: EngineMemoryStore | None,
    ids: Sequence[str],
    rule: ConsolidationRule | None = None,
) -> Versions:
    """Return the newest versions of those episodes that are stored, by id.

    Args:
        memory: The episodes; None when there are none yet.
        rule: Reads each version as this rule does; None selects all.
    """
    if memory is None:
        return {}
    found = await memory.reread(rule or _every_version(), ids, upto=NEWEST)
    return {version.id: version for version in found}


async def newest_version(memory: EngineMemoryStore, id: str) -> EpisodeVersion | None:
    """Return the newest version of an episode; None when it is not stored."""
    return (await newest_versions(memory, [id])).get(id)
