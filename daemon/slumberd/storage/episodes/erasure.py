"""Find and erase the episodes of a scope, or some of them by their ids."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from slumberd.model.episode import LATEST, NaiveTimestamps
from slumberd.model.firing import Position
from slumberd.model.scope import (
    PLACEHOLDER_KEY,
    ErasedScopes,
    Scope,
    ScopeFilter,
    ScopeMismatch,
    episode_id_of,
    escape,
    scope_of,
)
from slumberd.storage.engine import Session
from slumberd.storage.episodes import access_tracking, recorded_answers
from slumberd.storage.episodes.rows import instant_or_zero, scope_in
from slumberd.storage.episodes.windows import episode_at, newest
from slumberd.storage.erased_scopes import (
    record_erased_episodes,
    record_erased_scope,
)

_EVER = -(2**63)


def facts_of_erased(session: Session, pasts: Sequence[ErasedScopes]) -> Counter[str]:
    """Return how many facts are of erased scopes or episodes, by user."""
    found: Counter[str] = Counter()
    for user, agent, at, its_session, fact_id in session.stream("erased_content.facts"):
        ids = (episode_id_of(fact_id), episode_id_of(fact_id).rpartition("#")[0])
        if any(
            past.covers(user, its_session or "", agent, at)
            or any(past.has_episode(user, eid) for eid in ids)
            for past in pasts
        ):
            found[user] += 1
    return found


def episodes_of_erased(session: Session, pasts: Sequence[ErasedScopes]) -> Counter[str]:
    """Return how many episodes are erased, by their scope keys or their ids, by user."""
    found = _erased_by_id(session, [past for past in pasts if past.may_have_episodes])
    for (key,) in session.rows("erased_content.scope_keys"):
        scope = scope_of(key) if isinstance(key, str) else None
        erased = scope and [past for past in pasts if past.covers(*scope, _EVER)]
        for (timestamp,) in session.stream("erased_content.timestamps", (key,)) if erased else ():
            if scope and any(past.covers(*scope, instant_or_zero(timestamp)) for past in pasts):
                found[scope.user] += 1
    return found


def _erased_by_id(session: Session, pasts: Sequence[ErasedScopes]) -> Counter[str]:
    found: Counter[str] = Counter()
    for eid, key in session.stream("erased_content.ids") if pasts else ():
        scope = scope_of(key) if isinstance(key, str) else None
        if scope and any(past.has_episode(scope.user, str(eid)) for past in pasts):
            found[scope.user] += 1
    return found


class Found(NamedTuple):
    """The episodes of a scope.

    Attributes:
        rowids: The rowids of their rows.
        newest: The latest instant of those whose content names the scope, microseconds; None
            when there are none.
        naming: How many rows of other scopes name this one, in their content or scope key.
        future: The ids of those whose instants are still to come; `newest` is of the others.
    """

    rowids: list[int]
    eids: list[str]
    newest: int | None
    naming: int = 0
    future: frozenset[str] = frozenset()


def find_scope(
    session: Session,
    scope: ScopeFilter,
    mismatch: ScopeMismatch,
    naive: NaiveTimestamps = "local",
    *,
    rowids: Iterable[int] | None = None,
    latest: int = LATEST,
) -> Found:
    """Return a scope's episodes: those that a rule reads, or would quarantine, as of that scope.

    Args:
        session: Of the episodes.
        mismatch: Which of scope key and content names the owner of a row.
        naive: The zone of a timestamp without an offset.
        rowids: The only rows that can belong to the scope; None when any can.
        latest: The last instant that is not still to come, microseconds.
    """
    rows, instants, naming, future = [], [], 0, set()
    for rowid, *row in _candidates(session, scope.user, rowids):
        owner, named = scope_in(row, mismatch=mismatch)
        if scope.holds(owner):
            rows.append((rowid, *row))
            at = instant_or_zero(row[3], naive)
            # A row whose content does not name the scope may be another user's. Its instant would
            # decide until when the scope's own episodes are refused.
            if at > latest:
                future.add(str(row[0]))
            elif mismatch == "trust_scope" or scope.holds(named):
                instants.append(at)
        elif scope.holds(named) or scope.holds(_scope_in_key(row[1])):
            naming += 1
    newest = max(instants, default=None)
    rowids, eids = [row[0] for row in rows], [str(row[1]) for row in rows]
    return Found(rowids, eids, newest, naming, frozenset(future))


def find_named(
    session: Session, scope: ScopeFilter, eids: Iterable[str], mismatch: ScopeMismatch
) -> Found:
    """Return those of some episodes that are of a scope."""
    rows = [
        (rowid, str(row[0]))
        for rowid, *row in session.rows("erased_scopes.episodes_of", {"eids": sorted(eids)})
        if scope.holds(scope_in(row, mismatch=mismatch)[0])
    ]
    return Found([rowid for rowid, _ in rows], [eid for _, eid in rows], None)


def users_of(session: Session, eids: Iterable[str], mismatch: ScopeMismatch) -> set[str]:
    """Return the users of some episodes."""
    rows = session.rows("erased_scopes.episodes_of", {"eids": sorted(eids)})
    owners = (scope_in(row, mismatch=mismatch)[0] for _, *row in rows)
    return {owner.user for owner in owners if owner is not None}


def _candidates(
    session: Session, user: str, rowids: Iterable[int] | None
) -> Iterator[Sequence[Any]]:
    """Yield some rows, or all rows that may name a user; most do not."""
    if rowids is None:
        # JSON may write any character as an escape, so content with a backslash may name anybody.
        parameters = {"escaped": escape(user), "plain": user.encode()}
        return session.stream("erased_scopes.episodes_that_may_name", parameters)
    return session.stream("erased_scopes.episodes_at", {"rowids": sorted(rowids)})


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
        eids: More ids of its episodes, which their host has deleted before.
        moment: The last instant that is erased, microseconds.
        key: The key of the hashes of scopes, if the database has none yet.
    """

    scope: ScopeFilter
    eids: frozenset[str]
    moment: int
    key: bytes | None


class Search(NamedTuple):
    """Where a search for the episodes of a scope has looked.

    Attributes:
        newest: The last position of the log at the time.
        rowids: The rows that it has found.
    """

    newest: Position
    rowids: list[int]


def search_episodes(session: Session, erasure: EpisodeErasure, mismatch: ScopeMismatch) -> Search:
    """Search all rows for an erasure; that takes long, and other programs must not wait for it."""
    return Search(newest(session), find_scope(session, erasure.scope, mismatch).rowids)


def purge_episodes(session: Session, seqs: Mapping[str, int]) -> list[str]:
    """Delete episodes whose newest log row has not changed; return the ids of the deleted.

    The log keeps their rows, as it does for episodes that their host deletes.

    Args:
        session: In a transaction.
        seqs: The number of the newest log row of each episode, by id.
    """
    rows = session.rows("episode_log.moved", {"ids": [*seqs]})
    found = {row[2]: row[1] for row in rows if row[0] == seqs[row[2]]}
    session.do("erased_scopes.drop_episodes", {"rowids": [*found.values()]})
    access_tracking.erase(session, found)
    recorded_answers.erase(session, found)
    return [*found]


def erase_episodes(
    session: Session, erasure: EpisodeErasure, mismatch: ScopeMismatch, before: Search
) -> dict[str, int]:
    """Erase the episodes of a scope and their ids in the log; store the scope as erased.

    Args:
        erasure: The request.
        mismatch: Which of scope key and content names the owner of a row.
        before: The result of a search before the transaction.

    Returns:
        The number of erased rows, by table.
    """
    session.exclude_other_writers()
    candidates = _rows_since(session, before)
    found = find_scope(session, erasure.scope, mismatch, rowids=candidates)
    record_erased_scope(session, erasure.scope, erasure.moment, erasure.key)
    return drop_episodes(session, found.rowids, {*found.eids, *erasure.eids})


class NamedErasure(NamedTuple):
    """A request to erase some episodes by their ids.

    Attributes:
        scope: Whose they are.
        eids: Their ids; the host may have deleted them before.
        key: The key of the hashes, if the database has none yet.
    """

    scope: ScopeFilter
    eids: frozenset[str]
    key: bytes | None


def erase_named(session: Session, erasure: NamedErasure, mismatch: ScopeMismatch) -> dict[str, int]:
    """Erase episodes and their ids in the log; store their ids as erased.

    Args:
        erasure: The request.
        mismatch: Which of scope key and content names the owner of a row.

    Returns:
        The number of erased rows, by table.
    """
    session.exclude_other_writers()
    found = find_named(session, erasure.scope, erasure.eids, mismatch)
    record_erased_episodes(session, erasure.scope.user, erasure.eids, erasure.key)
    # Another user may have one of the ids by now.
    others = ids_outside(session, erasure.scope, erasure.eids, mismatch)
    return drop_episodes(session, found.rowids, {*found.eids, *erasure.eids} - others)


def drop_episodes(session: Session, rowids: list[int], eids: Iterable[str]) -> dict[str, int]:
    """Delete episodes, and all that is kept of them and of some ids; return the numbers of rows."""
    names = sorted(eids)
    session.do("erased_scopes.drop_episodes", {"rowids": rowids})
    blanked = session.do("erased_scopes.blank_log", {"eids": names})
    read = access_tracking.erase(session, names)
    answers = recorded_answers.erase(session, names)
    return {
        "episodes": len(rowids),
        "slumberd_episode_log": blanked,
        "slumberd_accesses": read,
        "slumberd_extractions": answers,
        "slumberd_model_requests": recorded_answers.erase_traces(session, names),
    }


def _rows_since(session: Session, before: Search) -> set[int] | None:
    """Return the rows of a search and those that were written after it.

    Returns:
        None when the log does not tell: another program may have rebuilt it.
    """
    last = before.newest
    if last.seq and episode_at(session, last.seq) != last.eid:
        return None
    written = session.rows("erased_scopes.written_since", {"seq": last.seq})
    return {*before.rowids, *(rowid for (rowid,) in written)}
