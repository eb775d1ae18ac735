"""Find and erase the episodes of a scope in memory.db."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import orjson

from slumberd.model.episode import NaiveTimestamps
from slumberd.model.firing import Position
from slumberd.model.scope import (
    PLACEHOLDER_KEY,
    Scope,
    ScopeFilter,
    ScopeMismatch,
    escape,
    scope_of,
)
from slumberd.sql_statements import statements
from slumberd.storage.episodes import access_tracking
from slumberd.storage.episodes.log import episode_at, newest
from slumberd.storage.episodes.rows import instant_or_zero, scope_in
from slumberd.storage.sqlite.connection import lenient_text, snapshot, transaction
from slumberd.storage.sqlite.erased_scopes import record_erased_scope
from slumberd.storage.sqlite.scrubbing import Scrubbed, scrub

_SQL = statements("erased_scopes")


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
    connection: sqlite3.Connection,
    scope: ScopeFilter,
    mismatch: ScopeMismatch,
    naive: NaiveTimestamps = "local",
    *,
    rowids: Iterable[int] | None = None,
) -> Found:
    """Return a scope's episodes: those that a rule reads, or would quarantine, as of that scope.

    Args:
        connection: Of memory.db.
        scope: The scope.
        mismatch: Which of scope key and content names the owner of a row.
        naive: The zone of a timestamp without an offset.
        rowids: The only rows that can belong to the scope; None when any can.
    """
    rows, instants, naming = [], [], 0
    for rowid, *row in _candidates(connection, scope.user, rowids):
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


def _candidates(
    connection: sqlite3.Connection, user: str, rowids: Iterable[int] | None
) -> Iterator[Sequence[Any]]:
    """Yield some rows, or all rows that may name a user; most do not."""
    if rowids is None:
        # JSON may write any character as an escape, so content with a backslash may name anybody.
        parameters: dict[str, Any] = {"escaped": escape(user), "plain": user.encode()}
        return _rows(connection, "episodes_that_may_name", parameters)
    return _rows(connection, "episodes_at", {"rowids": orjson.dumps(sorted(rowids)).decode()})


def _scope_in_key(key: object) -> Scope | None:
    return scope_of(key) if isinstance(key, str) and key != PLACEHOLDER_KEY else None


def ids_outside(
    connection: sqlite3.Connection, scope: ScopeFilter, eids: Iterable[str], mismatch: ScopeMismatch
) -> set[str]:
    """Return those of the ids that belong to an episode outside of a scope."""
    parameters = {"eids": orjson.dumps([*eids]).decode()}
    return {
        str(row[0])
        for _, *row in _rows(connection, "episodes_of", parameters)
        if not scope.holds(scope_in(row, mismatch=mismatch)[0])
    }


def _rows(
    connection: sqlite3.Connection, query: str, parameters: dict[str, Any]
) -> Iterator[Sequence[Any]]:
    connection.text_factory = lenient_text
    try:
        yield from connection.execute(_SQL[query], parameters)
    finally:
        connection.text_factory = str


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
    connection: sqlite3.Connection, erasure: EpisodeErasure, mismatch: ScopeMismatch
) -> dict[str, int]:
    """Erase the episodes of a scope and their ids in the log; store the scope as erased.

    Args:
        connection: Outside of any transaction.
        erasure: The request.
        mismatch: Which of scope key and content names the owner of a row.

    Returns:
        The number of erased rows, by table.
    """
    # To look at all rows takes long, and other programs must not wait for it.
    with snapshot(connection):
        last = newest(connection)
        before = find_scope(connection, erasure.scope, mismatch).rowids
    with transaction(connection):
        candidates = _rows_since(connection, last, before)
        found = find_scope(connection, erasure.scope, mismatch, rowids=candidates)
        rowids = {"rowids": orjson.dumps(found.rowids).decode()}
        names = sorted({*found.eids, *erasure.eids})
        parameters = {"eids": orjson.dumps(names).decode()}
        connection.execute(_SQL["drop_episodes"], rowids)
        blanked = connection.execute(_SQL["blank_log"], parameters).rowcount
        read = access_tracking.erase(connection, names)
        record_erased_scope(connection, erasure.scope, erasure.moment, erasure.key)
    return {
        "episodes": len(found.rowids),
        "slumberd_episode_log": blanked,
        "slumberd_accesses": read,
    }


def _rows_since(
    connection: sqlite3.Connection, last: Position, before: Iterable[int]
) -> set[int] | None:
    """Return some rows and those that were written after a place of the log.

    Returns:
        None when the log does not tell: another program may have rebuilt it.
    """
    if last.seq and episode_at(connection, last.seq) != last.eid:
        return None
    written = connection.execute(_SQL["written_since"], {"seq": last.seq})
    return {*before, *(rowid for (rowid,) in written)}


def scrub_memory(connection: sqlite3.Connection) -> Scrubbed:
    """Remove the erased bytes from the file and from its log; return what was done."""
    done = scrub(connection)
    if done.rewritten is not None:
        # VACUUM may change the rowids of episodes; the log finds them again by id.
        with transaction(connection):
            connection.execute(_SQL["renumber_log"])
    return done
