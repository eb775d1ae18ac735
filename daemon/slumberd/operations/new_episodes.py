"""Make episodes of requests: their ids, their speakers and their instants. Does no I/O."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from slumberd.errors import KeyReusedError, UsageError
from slumberd.model.episode import (
    Episode,
    EpisodeVersion,
    id_of_key,
    instant,
    speaker_of,
    withdrawn_of,
)
from slumberd.model.scope import ScopeFilter
from slumberd.operations.forms import MOST_NAME
from slumberd.operations.memory_forms import EpisodeForm, RememberForm, TurnForm
from slumberd.storage.episodes.writes import refused_at

DEFAULT = "default"
"""The agent and the session of an episode, where neither request nor caller names one."""

SOURCE = "remember"
"""What writes the episodes of requests."""

_FORGOTTEN, _REWOUND = "forgotten", "rewound"
"""Why a turn was taken back: the person asked to forget it, or went back to before it."""

_PERSON_SPEAKS = "user"


def named_by(request: EpisodeForm) -> str | None:
    """Return what names the episode of a request: its key or its id; None for a new id.

    Raises:
        UsageError: The request gives several names.
    """
    once = request.idempotency_key if isinstance(request, RememberForm) else None
    given = [name for name in (request.id, request.key, once) if name is not None]
    if len(given) > 1:
        raise UsageError("give one name of the episode: an id, a key, or an idempotency key")
    return given[0] if given else None


def episode_of(
    request: EpisodeForm, scope: ScopeFilter, session: str | None, now: datetime
) -> Episode:
    """Return the episode of a request.

    Args:
        request: The request.
        scope: Its user and agent.
        session: The conversation, when the request names none.
        now: The instant, when the request gives none.

    Raises:
        UsageError: The request gives several names, or too long a key.
    """
    metadata: dict[str, Any] = {**request.metadata}
    if request.speaker is not None:
        metadata["speaker"] = request.speaker
    if speaker_of(SOURCE, metadata) is None:
        metadata["speaker"] = _PERSON_SPEAKS
    triples = [one.model_dump(exclude_none=True) for one in request.triples]
    if triples:
        # A filter of a rule sees only the triple of the episode itself.
        metadata |= triples[0]
    if triples[1:]:
        metadata["triples"] = triples[1:]
    user, agent = scope.user, scope.agent or DEFAULT
    return Episode(
        id=_id_of(request, user, agent),
        content=request.text,
        timestamp=request.when or now,
        source_node=SOURCE,
        user=user,
        agent=agent,
        session=request.session or session or DEFAULT,
        metadata=metadata,
    )


def episode_of_turn(turn: TurnForm, scope: ScopeFilter, now: datetime) -> Episode:
    """Return the episode of a turn of a transcript.

    Args:
        turn: The turn.
        scope: Its user and agent.
        now: The instant, when the transcript gives none.
    """
    form = EpisodeForm(
        **turn.model_dump(exclude={"is_copy", "withdrawn", "forgotten"}),
        metadata={"withdrawn": _REWOUND} if turn.withdrawn else {},
    )
    return episode_of(form, scope, None, now)


def keep_turn(turn: TurnForm, episode: Episode, stored: EpisodeVersion | None) -> Episode | None:
    """Return what is put of a turn; None when the stored version stays.

    What a person asked to forget loses its text, and never comes back.

    Args:
        turn: The turn.
        episode: Its episode.
        stored: The stored version; None when there is none.
    """
    if stored is None:
        return episode
    if _is_forgotten(stored):
        return None
    if turn.forgotten:
        metadata = {"speaker": turn.speaker, "withdrawn": _FORGOTTEN}
        return _as_stored(episode, stored, content="", metadata=metadata)
    if turn.is_copy or (turn.withdrawn is None and stored.withdrawn):
        return None
    at = turn.when or instant(stored.at)
    return episode.model_copy(update={"timestamp": at})


def _is_forgotten(stored: Episode | EpisodeVersion) -> bool:
    return withdrawn_of(stored.metadata) == _FORGOTTEN and not stored.content


def _as_stored(
    episode: Episode, stored: Episode | EpisodeVersion, *, content: str, metadata: dict[str, Any]
) -> Episode:
    """Return an episode with the instant, the session and the writer of the stored one."""
    update = {
        "content": content,
        "timestamp": _instant_of(stored),
        "session": stored.session,
        "source_node": stored.source_node,
        "metadata": metadata,
    }
    return episode.model_copy(update=update)


def _id_of(request: EpisodeForm, user: str, agent: str) -> str:
    name = named_by(request)
    if name is None:
        return str(uuid.uuid4())
    if request.id is not None:
        return request.id
    id = id_of_key(user, agent, name)
    if len(id) > MOST_NAME:
        raise UsageError(
            f"the key is too long: with the user and the agent, the id has {len(id):,} characters,"
            f" at most {MOST_NAME:,}"
        )
    return id


def keep_instants(
    requests: Sequence[EpisodeForm],
    episodes: Sequence[Episode],
    known: Mapping[str, EpisodeVersion],
) -> list[Episode]:
    """Return the episodes of requests; one that repeats a stored one keeps that one's instant.

    One that repeats what its speaker took back stays withdrawn, and nothing new comes of what a
    person asked to forget. A request may be sent again because its answer was lost.

    Args:
        requests: The requests.
        episodes: Their episodes.
        known: The stored episodes by id.

    Raises:
        RecordRefusedError: A key was used for other content, and may not be.
    """
    kept: list[Episode] = []
    before: dict[str, Episode | EpisodeVersion] = {**known}
    for position, (request, episode) in enumerate(zip(requests, episodes, strict=True)):
        with refused_at(position):
            kept.append(_keep_instant(request, episode, before.get(episode.id)))
        before[episode.id] = kept[-1]
    return kept


def _keep_instant(
    request: EpisodeForm, episode: Episode, stored: Episode | EpisodeVersion | None
) -> Episode:
    if stored is None or (stored.user, stored.agent) != (episode.user, episode.agent):
        return episode
    if _is_forgotten(stored):
        return _as_stored(episode, stored, content="", metadata=stored.metadata)
    if (withdrawn := _keep_withdrawn(episode, stored)) is not None:
        return withdrawn
    repeats = _content_of(episode) == _content_of(stored, spoke=episode.metadata.get("speaker"))
    by_key = request.id is None
    if by_key and not repeats:
        _check_key_free(request, episode, stored)
    if not repeats or not (by_key or request.when is None):
        return episode
    return episode.model_copy(update={"timestamp": _instant_of(stored)})


def _keep_withdrawn(episode: Episode, stored: Episode | EpisodeVersion) -> Episode | None:
    """Return an episode that repeats what its speaker took back, as it is stored; else None."""
    why = withdrawn_of(stored.metadata)
    if not why or "withdrawn" in episode.metadata:
        return None
    said = {**episode.metadata, "withdrawn": why}
    again = episode.model_copy(update={"metadata": said, "timestamp": _instant_of(stored)})
    spoke = episode.metadata.get("speaker")
    return again if _content_of(again) == _content_of(stored, spoke=spoke) else None


def _instant_of(stored: Episode | EpisodeVersion) -> datetime:
    return stored.timestamp if isinstance(stored, Episode) else instant(stored.at)


def _check_key_free(
    request: EpisodeForm, episode: Episode, stored: Episode | EpisodeVersion
) -> None:
    """Refuse other content where the caller wants none; an episode never changes its session."""
    once = isinstance(request, RememberForm) and request.idempotency_key is not None
    if once or stored.session != episode.session:
        raise KeyReusedError(named_by(request) or "")


def _content_of(
    episode: Episode | EpisodeVersion, *, spoke: object = None
) -> tuple[str, str, dict[str, Any]]:
    """Return what an episode says, in which session.

    slumberd 0.2.0 stored no speaker where the request named none. Who spoke is no other statement.
    """
    said = episode.metadata
    if isinstance(episode, EpisodeVersion) and episode.speaker is None:
        said = {**said, "speaker": spoke}
    return episode.session, episode.content, said
