"""Read the episodes of a scope for an index, and later only what has changed since.

The episode log numbers each new version. A second table holds the row of each episode that any
program deleted. Both tell which rows to read again; what a row holds now is then read from it.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

from slumberd.model.episode import NaiveTimestamps
from slumberd.model.feed import (
    Deletion,
    EpisodeChanges,
    FeedChanges,
    FeedPlace,
    NumberedVersion,
    ScopeReading,
    are_unknown,
)
from slumberd.model.scope import ScopeFilter, ScopeMismatch
from slumberd.storage.engine import EpisodeEngine, Session
from slumberd.storage.episodes import windows as episode_log
from slumberd.storage.episodes.recent import versions_in
from slumberd.storage.episodes.rows import decode

KEPT_ROWS = 50_000
"""So many of the last rows of the log are never pruned, by default."""


class IndexFeed:
    """Tells indexes what the store holds.

    Args:
        engine: Opens the transactions of the store.
        mismatch: Which of scope key and content names the owner of a row.
        naive: The zone of a timestamp without an offset.
        kept_rows: So many of the last rows of the log are never pruned.
    """

    def __init__(
        self,
        engine: EpisodeEngine,
        *,
        mismatch: ScopeMismatch,
        naive: NaiveTimestamps,
        kept_rows: int = KEPT_ROWS,
    ) -> None:
        self._engine = engine
        self._mismatch: ScopeMismatch = mismatch
        self._naive: NaiveTimestamps = naive
        self._kept_rows = kept_rows

    async def place(self) -> FeedPlace:
        """Return where a reader that reads scopes from now on goes on later."""
        return await self._engine.read(place_of)

    async def read_scope(self, scope: ScopeFilter) -> ScopeReading:
        """Return all readable episodes of a scope."""
        return await self._engine.read(partial(self._read_scope, scope=scope))

    def _read_scope(self, session: Session, scope: ScopeFilter) -> ScopeReading:
        found = versions_in(session, scope, mismatch=self._mismatch, naive=self._naive)
        versions = {version.id: version for version in found}
        rows = session.rows("index_feed.rows_of", {"ids": [*versions]})
        return ScopeReading(
            place_of(session), [NumberedVersion(row, versions[id]) for row, id in rows]
        )

    async def changes(self, place: FeedPlace, *, most: int) -> FeedChanges | None:
        """Return what changed after a place.

        Args:
            place: The place of an earlier reading.
            most: Return None when more rows than this were written.

        Returns:
            None also when the log does not tell: its rows were erased, or may be pruned, or the
            store was restored.
        """
        return await self._engine.read(partial(self._changes, place=place, most=most))

    def _changes(self, session: Session, place: FeedPlace, most: int) -> FeedChanges | None:
        seq, now = place.position.seq, place_of(session)
        if self._is_pruned(place, now) or not place.is_at(episode_log.episode_at(session, seq)):
            return None
        written = session.rows("index_feed.written_after", {"seq": seq, "limit": most + 1})
        deleted = _deleted_after(session, place.deletion)
        if len(written) > most or are_unknown(deleted, place.deletion):
            return None
        if now.deletion < place.deletion:  # a store that was restored had fewer
            return None
        gone = (one.row for one in deleted if one.row is not None)
        rows = frozenset(row for (row,) in written).union(gone)
        return FeedChanges(now, rows, self._versions(session, rows))

    def _is_pruned(self, place: FeedPlace, now: FeedPlace) -> bool:
        """Return whether the log may lack rows after a place."""
        return place.position.seq < now.position.seq - self._kept_rows

    async def versions(self, rows: Iterable[int]) -> list[NumberedVersion]:
        """Return what is readable in some rows."""
        return await self._engine.read(partial(self._versions, rows=[*rows]))

    async def deletions(self, number: int) -> list[Deletion]:
        """Return the deletions after one, the first first; the oldest of many may be missing.

        Args:
            number: The number of a deletion; 0 for all.
        """
        return await self._engine.read(partial(_deleted_after, number=number))

    async def changed_ids(self, place: FeedPlace | None) -> EpisodeChanges:
        """Return which episodes were written or deleted after a place.

        Args:
            place: None only asks for the last row, and the last deletion.
        """
        return await self._engine.read(partial(self._changed_ids, place=place))

    def _changed_ids(self, session: Session, place: FeedPlace | None) -> EpisodeChanges:
        now = place_of(session)
        if place is None:
            return EpisodeChanges(now)
        seq, eid = place.position
        if self._is_pruned(place, now):
            return EpisodeChanges(now, known=False)
        if seq and episode_log.episode_at(session, seq) != eid:
            return EpisodeChanges(now, known=False)
        deleted = _deleted_after(session, place.deletion)
        if are_unknown(deleted, place.deletion) or place.deletion > now.deletion:
            return EpisodeChanges(now, known=False)
        written = session.rows("index_feed.ids_written_after", {"seq": seq})
        rids = [rid for _, rid in deleted]
        gone = session.rows("index_feed.ids_of_rows", {"rids": rids}) if rids else []
        return EpisodeChanges(
            now,
            {eid: last for eid, last in written if isinstance(eid, str)},
            frozenset(eid for (eid,) in gone if isinstance(eid, str)),
        )

    def _versions(self, session: Session, rows: Iterable[int]) -> list[NumberedVersion]:
        found = session.rows("erased_scopes.episodes_at", {"rowids": sorted(rows)})
        versions = [
            NumberedVersion(row, decode(0, columns, mismatch=self._mismatch, naive=self._naive))
            for row, *columns in found
        ]
        return [one for one in versions if not one.version.fault]


def place_of(session: Session) -> FeedPlace:
    """Return the last row of the log, and the last deletion."""
    last = session.one("index_feed.last_deletion")
    return FeedPlace(episode_log.newest(session), last[0] if last else 0)


def _deleted_after(session: Session, number: int) -> list[Deletion]:
    return [Deletion(*one) for one in session.rows("index_feed.deleted_after", {"number": number})]
