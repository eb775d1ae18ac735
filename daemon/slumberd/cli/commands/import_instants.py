"""Keep the instants of imported episodes that only the time of a file or of an update dates."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from slumberd.interchange.instants import FILE, INSTANT_FROM, UPDATE
from slumberd.interchange.records import aware, without
from slumberd.model.episode import Episode, EpisodeVersion, instant
from slumberd.operations.reads.explainer import read_newest_of
from slumberd.storage.episodes.store import EngineMemoryStore


async def keep_instants(memory: EngineMemoryStore, episodes: Sequence[Episode]) -> list[Episode]:
    """Return episodes, each as it is stored if only the time of its file or update is later.

    A copied or rewritten file has a later time, and states nothing new.

    Args:
        memory: The store.
        episodes: The episodes of an import.
    """
    dated = [each.id for each in episodes if each.metadata.get(INSTANT_FROM) in (FILE, UPDATE)]
    stored = await read_newest_of(memory, dated) if dated else {}
    return [_kept(each, stored.get(each.id)) for each in episodes]


def _kept(episode: Episode, stored: EpisodeVersion | None) -> Episode:
    if stored is None or stored.fault or episode.metadata.get(INSTANT_FROM) not in (FILE, UPDATE):
        return episode
    at = instant(stored.at)
    if at > aware(episode.timestamp) or _said(episode) != _said(stored):
        return episode
    return episode.model_copy(update={"timestamp": at, "metadata": stored.metadata})


def _said(one: Episode | EpisodeVersion) -> tuple[Any, ...]:
    """Return what an episode says, and who says it where; its instant is no part of it."""
    own = without(one.metadata, [INSTANT_FROM])
    return one.user, one.session, one.agent, one.source_node, one.content, own
