"""Find the latest episodes of a scope, by instant, however their timestamps are written.

Among timestamps as we write them (UTC, ``isoformat``) text order is instant order, so an index
gives the newest first. Other programs' rows may carry any offset. Their text lies within a day
of their instant in UTC, so they are looked through from a little below what was found.
"""

from __future__ import annotations

import heapq
import sqlite3
from datetime import timedelta

from slumberd.core.episode import Episode, EpisodeVersion, instant
from slumberd.core.scope import Reach, Scope, escape, scope_of
from slumberd.stores.decode import ScopeMismatch, decode, episode_of, lenient_text
from slumberd.stores.queries import statements

_SQL = statements("recent")
# A day for the offset, and one for a blank in place of the T, which sorts before it.
_SLACK = timedelta(days=2)


def _ranges(reach: Reach) -> list[tuple[str, dict[str, str | None]]]:
    """Return the kind of each index range to read, with its parameters."""
    raw = Scope(reach.user, reach.session or "", reach.agent or "")
    escaped = Scope(*(escape(part) for part in raw))
    # Stargraph does not escape: a % of its rows stands in the key as it is.
    spellings = [escaped, raw] if raw != escaped and "/" not in "".join(raw) else [escaped]
    return [_range(reach, *spelling) for spelling in spellings]


def _range(reach: Reach, user: str, session: str, agent: str) -> tuple[str, dict[str, str | None]]:
    if reach.session is None:
        tail = None if reach.agent is None else f"/agent/{agent}/"
        return "user", {"key": f"/user/{user}/", "tail": tail}
    within = f"/user/{user}/session/{session}/agent/"
    if reach.agent is None:
        return "session", {"key": within, "end": f"{within[:-1]}0"}
    return "exact", {"key": f"{within}{agent}/"}


class _Newest:
    """The best of what was seen so far, at most so many, the worst of them at hand."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._heap: list[tuple[int, str, EpisodeVersion]] = []

    def add(self, version: EpisodeVersion) -> None:
        """Keep a version if it is among the best."""
        entry = (version.at, version.id, version)
        if len(self._heap) < self._most:
            heapq.heappush(self._heap, entry)
        else:
            heapq.heappushpop(self._heap, entry)

    def floor(self, slack: timedelta) -> str:
        """Return the text below which no timestamp can matter any more."""
        if len(self._heap) < self._most:
            return ""
        at = instant(self._heap[0][0])
        if not slack:
            return at.isoformat()
        return (at - slack).date().isoformat() if at.year > 1 else ""

    def ordered(self) -> list[EpisodeVersion]:
        """Return what was kept, the best first."""
        return [version for _, _, version in sorted(self._heap, reverse=True)]


def recall(
    connection: sqlite3.Connection, reach: Reach, limit: int, mismatch: ScopeMismatch
) -> list[Episode]:
    """Return the latest readable episodes within reach, newest first, then by id from the last."""
    newest = _Newest(limit)
    connection.text_factory = lenient_text
    try:
        for suffix, slack in (("utc", timedelta(0)), ("other", _SLACK)):
            for kind, parameters in _ranges(reach):
                parameters["floor"] = newest.floor(slack)
                rows = connection.execute(_SQL[f"{kind}_{suffix}"], parameters)
                _take(rows, newest, reach=reach, mismatch=mismatch, slack=slack)
    finally:
        connection.text_factory = str
    return [episode_of(version) for version in newest.ordered()]


def _take(
    rows: sqlite3.Cursor,
    newest: _Newest,
    *,
    reach: Reach,
    mismatch: ScopeMismatch,
    slack: timedelta,
) -> None:
    """Add rows, which come in falling text order, until none that follows can matter."""
    for row in rows:
        if isinstance(row[3], str) and row[3] < newest.floor(slack):
            break
        version = decode(0, row, mismatch=mismatch)
        owner = Scope(version.user, version.session, version.agent)
        if not version.fault and reach.holds(owner) and reach.holds(scope_of(row[1])):
            newest.add(version)
    rows.close()
