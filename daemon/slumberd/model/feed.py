"""What an index reads of a store of episodes: all of a scope, and later only what has changed."""

from __future__ import annotations

from typing import NamedTuple

from slumberd.model.episode import EpisodeVersion
from slumberd.model.firing import Position


class FeedPlace(NamedTuple):
    """Up to where a reader knows the episodes.

    Attributes:
        position: The last row of the log.
        deletion: The number of the last deletion.
    """

    position: Position
    deletion: int


class NumberedVersion(NamedTuple):
    """An episode with the number of its row, which stays when its id changes."""

    row: int
    version: EpisodeVersion


class ScopeReading(NamedTuple):
    """The episodes of a scope.

    Attributes:
        place: Where the reader goes on.
        versions: The readable episodes, in no order.
    """

    place: FeedPlace
    versions: list[NumberedVersion]


class FeedChanges(NamedTuple):
    """What changed in the episodes of all scopes.

    Attributes:
        place: Where the reader goes on.
        rows: The rows that were written or deleted.
        versions: What is in these rows now; deleted and unreadable ones are left out.
    """

    place: FeedPlace
    rows: frozenset[int]
    versions: list[NumberedVersion]
