"""Read the episode log: the numbers of all versions of episodes, in the order of their commits."""

from __future__ import annotations

from slumberd.model.episode import EpisodeVersion, NaiveTimestamps
from slumberd.model.firing import Position
from slumberd.storage.engine import Session
from slumberd.storage.episodes.rows import decode, shown


def newest(session: Session) -> Position:
    """Return the last position of the log."""
    row = session.one("episode_log.newest")
    return Position(row[0], shown(row[1])) if row else Position()


def latest_versions(
    session: Session, *, naive: NaiveTimestamps, limit: int
) -> list[EpisodeVersion]:
    """Return what the last rows of the log hold, oldest first.

    Args:
        session: Of the episodes.
        naive: How to read a timestamp without an offset.
        limit: At most this many rows of the log.
    """
    after = newest(session).seq - limit
    rows = session.rows("episode_log.window", {"after": max(after, 0), "limit": limit, "rule": ""})
    return [
        decode(row[0], row[5:], mismatch="trust_scope", naive=naive)
        for row in rows
        if row[4] is not None
    ]


def episode_at(session: Session, seq: int) -> str | None:
    """Return the episode id of one log row; None when there is no such row."""
    row = session.one("episode_log.episode_at", {"seq": seq})
    return shown(row[0]) if row else None


def pending(session: Session, after: int, at_most: int, rule_id: str = "") -> int:
    """Count the log rows after a position that a rule may read, up to `at_most`."""
    values = {"after": after, "at_most": at_most, "rule": rule_id}
    counted: int = session.value("episode_log.pending", values)
    return counted


def oldest_timestamp(session: Session, after: int, rule_id: str = "") -> str | None:
    """Return the stored timestamp of the first episode after a position that a rule may read."""
    row = session.one("episode_log.oldest_timestamp", {"after": after, "rule": rule_id})
    return row[0] if row else None
