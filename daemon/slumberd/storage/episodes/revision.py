"""Write episodes that depend on what the store has under their ids, in one transaction."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from slumberd.model.episode import Episode, EpisodeVersion
from slumberd.model.scope import Scope
from slumberd.storage.engine import Session
from slumberd.storage.episodes.rows import Row, decode, encode
from slumberd.storage.episodes.writes import write

Revise = Callable[[Mapping[str, EpisodeVersion]], Sequence[Episode]]
"""Returns the episodes to write, for the readable ones that the store has, by id."""


def write_revision(session: Session, ids: Iterable[str], revise: Revise) -> list[Episode]:
    """Write what a function makes of some episodes; return what was written.

    Args:
        session: In a transaction, so that no other writer comes between.
        ids: The ids of the episodes.
        revise: The function; its error rolls the transaction back.

    Raises:
        MemoryScopeError: A scope is malformed, or an id belongs to another scope.
        InputError: A value of an episode would not come back equal.
    """
    found = (session.one("episodes.by_id", (id,)) for id in ids)
    stored = (decode(0, row, mismatch="quarantine") for row in found if row is not None)
    episodes = [*revise({version.id: version for version in stored if not version.fault})]
    write(session, [_row(episode) for episode in episodes])
    return episodes


def _row(episode: Episode) -> Row:
    scope = Scope(episode.user, episode.session, episode.agent)
    return encode(episode, scope, operation="put")
