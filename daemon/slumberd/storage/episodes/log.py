"""Read the episode log: the numbers of all versions of episodes, in the order of their commits."""

from __future__ import annotations

from slumberd.model.firing import Position
from slumberd.storage.engine import Session
from slumberd.storage.episodes.rows import shown


def newest(session: Session) -> Position:
    """Return the last position of the log."""
    row = session.one("episode_log.newest")
    return Position(row[0], shown(row[1])) if row else Position()


def episode_at(session: Session, seq: int) -> str | None:
    """Return the episode id of one log row; None when there is no such row."""
    row = session.one("episode_log.episode_at", {"seq": seq})
    return shown(row[0]) if row else None


def pending(session: Session, after: int, at_most: int) -> int:
    """Count the log rows after a position, up to `at_most`."""
    counted: int = session.value("episode_log.pending", {"after": after, "at_most": at_most})
    return counted


def oldest_timestamp(session: Session, after: int) -> str | None:
    """Return the stored timestamp of the first existing episode after a position."""
    row = session.one("episode_log.oldest_timestamp", {"after": after})
    return row[0] if row else None
