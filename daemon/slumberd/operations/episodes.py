"""List the episodes of one user, and read newest versions of episodes by their ids."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from functools import cache
from typing import Annotated, Any

from pydantic import Field

from slumberd.model.construct import construct
from slumberd.model.episode import Episode, EpisodeVersion, instant, speaker_of
from slumberd.model.errors import MemoryScopeError
from slumberd.model.rule import ConsolidationRule
from slumberd.model.scope import FACTS, ScopeFilter
from slumberd.operations import example_values as values
from slumberd.operations.caller import Caller, Right
from slumberd.operations.forms import Limit, Name, ReadForm, Result
from slumberd.operations.handlers import Example, operation
from slumberd.storage.episodes.store import EngineMemoryStore

MOST_SKIPPED = 1_000_000
"""The most episodes that a page leaves out; the store reads them all the same."""


class EpisodesForm(ReadForm):
    """The request ``episodes``: the latest ones.

    Attributes:
        id: Only this episode.
        session: Only episodes of this session.
        limit: At most this many.
        skip: So many of the latest ones are left out.
    """

    id: Name | None = None
    session: Name | None = None
    limit: Limit = 20
    skip: Annotated[int, Field(ge=0, le=MOST_SKIPPED)] = 0


class KnownEpisode(Result):
    """A stored episode.

    Attributes:
        source_node: The node, or the interface, that wrote it.
        speaker: Who spoke; None when nobody is known to have spoken.
    """

    id: str
    content: str
    timestamp: datetime
    source_node: str
    speaker: str | None = None
    user: str
    agent: str
    session: str
    metadata: dict[str, Any]


class EpisodeList(Result):
    """The latest episodes, newest first."""

    episodes: list[KnownEpisode]


class EpisodeReads:
    """Runs requests that list the episodes of one user."""

    def __init__(self, memory: EngineMemoryStore) -> None:
        self._memory = memory

    @operation(
        right=Right.READ,
        read_only=True,
        errors=(MemoryScopeError,),
        example=Example(
            {"limit": 1},
            {
                "episodes": [
                    {
                        "id": "e1",
                        "content": "I moved to Lisbon",
                        "timestamp": values.AT,
                        "source_node": "remember",
                        "speaker": "user",
                        "user": "ana",
                        "agent": "desk",
                        "session": "s1",
                        "metadata": {"speaker": "user"},
                    }
                ]
            },
        ),
    )
    async def episodes(self, request: EpisodesForm, caller: Caller) -> EpisodeList:
        """Return the latest episodes, newest first."""
        scope = caller.scope(
            request.user, request.agent, request.session, all_agents=request.all_agents
        )
        if request.id is not None:
            return construct(EpisodeList, {"episodes": await self._one(request.id, scope)})
        found = await self._memory.recent(
            scope.user, request.session, scope.agent, limit=request.skip + request.limit
        )
        listed = [
            _known_episode(one, one.timestamp, speaker_of(one.source_node, one.metadata))
            for one in found[request.skip :]
        ]
        return construct(EpisodeList, {"episodes": listed})

    async def _one(self, id: str, scope: ScopeFilter) -> list[KnownEpisode]:
        """Return an episode of a scope; nothing when the scope does not hold it."""
        stored = await newest_version(self._memory, id)
        if stored is None or stored.contested or not scope.holds(stored):
            return []
        return [_known_episode(stored, instant(stored.at), stored.speaker)]


def _known_episode(
    episode: Episode | EpisodeVersion, at: datetime, speaker: str | None
) -> KnownEpisode:
    # Not checked again: a page of many episodes would take twice as long.
    return construct(
        KnownEpisode,
        {
            "id": episode.id,
            "content": episode.content,
            "timestamp": at,
            "source_node": episode.source_node,
            "speaker": speaker,
            "user": episode.user,
            "agent": episode.agent,
            "session": episode.session,
            "metadata": episode.metadata,
        },
    )


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
