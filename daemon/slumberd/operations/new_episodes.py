"""Make episodes of requests: their ids, their speakers and their instants. Does no I/O."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, JsonValue

from slumberd.model.episode import (
    KEY_PREFIX,
    Episode,
    EpisodeVersion,
    id_of_key,
    instant,
    speaker_of,
    withdrawn_of,
)
from slumberd.model.errors import KeyReusedError, UsageError
from slumberd.model.scope import ScopeFilter
from slumberd.operations.forms import (
    MOST,
    MOST_NAME,
    Instant,
    LongText,
    Name,
    ScopedForm,
)
from slumberd.rules.validation import Form
from slumberd.storage.episodes.writes import refused_at

DEFAULT = "default"
"""The agent and the session of an episode, where neither request nor caller names one."""

SOURCE = "remember"
"""What writes the episodes of requests."""

_FORGOTTEN, _REWOUND = "forgotten", "rewound"
"""Why a turn was taken back: the person asked to forget it, or went back to before it."""

_PERSON_SPEAKS = "user"


def _refuse_prefix(id: str) -> str:
    if id.startswith(KEY_PREFIX):
        raise ValueError(
            f"it begins with {KEY_PREFIX!r}, as only ids made from a key do; give `key`"
        )
    return id


NewId = Annotated[Name, AfterValidator(_refuse_prefix)]
"""An id that a caller chooses for an episode."""


class TripleForm(BaseModel):
    """One thing that an episode says.

    Attributes:
        subject: What it is about.
        predicate: What it says of it.
        object: The value; any JSON.
        confidence: 0 to 1.
        intent: ``add``; ``delete`` to retract; ``set`` to replace every older value.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    subject: Name
    predicate: Name
    object: JsonValue = None
    confidence: Annotated[float, Field(ge=0, le=1)] | None = None
    intent: Literal["add", "update", "delete", "set"] | None = None


class EpisodeForm(Form):
    """One new episode.

    Attributes:
        text: What happened.
        triples: What it says, as triples.
        when: When it was said; by default now. An instant that is still to come is refused.
        key: A name of the caller's own for the episode, of this user and agent alone. The same
            key, text, metadata and session again change nothing; other content is a new version.
        id: The id of the episode, which no other user may have; prefer ``key``. The same id and
            text again change nothing. By default a new one.
        session: The conversation; by default ``default``.
        speaker: Who said it; by default whom ``metadata`` name, else ``user``, by MCP ``agent``.
        metadata: Any other keys.
    """

    text: LongText
    triples: Annotated[list[TripleForm], Field(max_length=MOST, default_factory=list)]
    when: Instant | None = None
    key: Name | None = None
    id: NewId | None = None
    session: Name | None = None
    speaker: Name | None = None
    metadata: dict[str, JsonValue] = Field(default_factory=dict)


class TurnForm(BaseModel):
    """A turn of a transcript.

    Attributes:
        id: The id of its episode.
        text: What was said.
        session: The conversation.
        speaker: Who said it.
        when: When it was said; None when the transcript does not say.
        is_copy: Whether another transcript has the turn, too; then a stored one stays as it is.
        withdrawn: Whether its speaker took it back, or said it again after that; by default a
            stored turn stays as it is in this.
        forgotten: Whether the person asked to forget it; then a stored turn loses its text for
            ever, and one that is not stored is left out.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    id: Name
    text: LongText
    session: Name
    speaker: Name
    when: Instant | None = None
    is_copy: bool = False
    withdrawn: bool | None = None
    forgotten: bool = False


class RememberForm(EpisodeForm, ScopedForm):
    """The request ``remember``: an episode.

    Attributes:
        idempotency_key: As ``key``, but other content is refused.
        seconds: How long the answer may wait for what becomes of the episode, 0 to 60. It never
            waits for a rule that is not due, and needs the right to read.
    """

    idempotency_key: Name | None = None
    seconds: Annotated[float, Field(ge=0, le=60)] = 0.0


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
