"""Find and erase the episodes of a scope in memory.db."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from slumberd.model.episode import NaiveTimestamps
from slumberd.model.scope import (
    PLACEHOLDER_KEY,
    Scope,
    ScopeFilter,
    ScopeMismatch,
    escape,
    scope_of,
)
from slumberd.storage.engine import Session
from slumberd.storage.episodes import access_tracking
from slumberd.storage.episodes.rows import instant_or_zero, scope_in
from slumberd.storage.erased_scopes import record_erased_scope


class Found(NamedTuple):
    """The episodes of a scope.

    Attributes:
        rowids: The rowids of their rows.
        eids: Their ids.
        newest: The latest instant of those whose content names the scope, microseconds; None
            when there are none.
        naming: How many rows of other scopes name this one, in their content or scope key.
    """

    rowids: list[int]
    eids: list[str]
    newest: int | None
    naming: int


def find_scope(
    session: Session,
    scope: ScopeFilter,
    mismatch: ScopeMismatch,
    naive: NaiveTimestamps = "local",
) -> Found:
    """Return a scope's episodes: those that a rule reads, or would quarantine, as of that scope."""
    rows, instants, naming = [], [], 0
    escaped, plain = escape(scope.user), scope.user.encode()
    for rowid, *row in session.stream("erased_scopes.episodes", {}):
        if not _may_name(escaped, plain, row):
            continue
        owner, named = scope_in(row, mismatch=mismatch)
        if scope.holds(owner):
            rows.append((rowid, *row))
            # A row whose content does not name the scope may be another user's. Its instant would
            # decide until when the scope's own episodes are refused.
            if mismatch == "trust_scope" or scope.holds(named):
                instants.append(instant_or_zero(row[3], naive))
        elif scope.holds(named) or scope.holds(_scope_in_key(row[1])):
            naming += 1
    newest = max(instants, default=None)
    return Found([row[0] for row in rows], [str(row[1]) for row in rows], newest, naming)


def _may_name(escaped: str, plain: bytes, row: Sequence[Any]) -> bool:
    """Return whether a row may name a user; a quick test, since most rows do not."""
    key, content = row[1], row[2]
    if not (isinstance(key, str) and isinstance(content, bytes)):
        return True
    # JSON may write any character as an escape.
    return escaped in key or plain in content or b"\\" in content


def _scope_in_key(key: object) -> Scope | None:
    return scope_of(key) if isinstance(key, str) and key != PLACEHOLDER_KEY else None


def ids_outside(
    session: Session, scope: ScopeFilter, eids: Iterable[str], mismatch: ScopeMismatch
) -> set[str]:
    """Return those of the ids that belong to an episode outside of a scope."""
    parameters = {"eids": [*eids]}
    return {
        str(row[0])
        for _, *row in session.stream("erased_scopes.episodes_of", parameters)
        if not scope.holds(scope_in(row, mismatch=mismatch)[0])
    }


class EpisodeErasure(NamedTuple):
    """A request to erase a scope.

    Attributes:
        scope: The scope.
        eids: More ids of its episodes, which their host has deleted before.
        moment: The last instant that is erased, microseconds.
        key: The key of the hashes of scopes, if the database has none yet.
    """

    scope: ScopeFilter
    eids: frozenset[str]
    moment: int
    key: bytes | None


def erase_episodes(
    session: Session, erasure: EpisodeErasure, mismatch: ScopeMismatch
) -> dict[str, int]:
    """Erase the episodes of a scope and their ids in the log; store the scope as erased.

    Args:
        session: The transaction; the engine overwrites what it deletes.
        erasure: The request.
        mismatch: Which of scope key and content names the owner of a row.

    Returns:
        The number of erased rows, by table.
    """
    found = find_scope(session, erasure.scope, mismatch)
    names = sorted({*found.eids, *erasure.eids})
    session.do("erased_scopes.drop_episodes", {"rowids": found.rowids})
    blanked = session.do("erased_scopes.blank_log", {"eids": names})
    read = access_tracking.erase(session, names)
    record_erased_scope(session, erasure.scope, erasure.moment, erasure.key)
    return {
        "episodes": len(found.rowids),
        "slumberd_episode_log": blanked,
        "slumberd_accesses": read,
    }
