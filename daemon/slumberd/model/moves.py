"""Moves of users from one shard to another."""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple

from slumberd.model.errors import SlumberdError


class Move(NamedTuple):
    """A request to move a user.

    Attributes:
        target: The number of the shard that gets the user.
        at: The instant of the request.
        by: Who requested it.
    """

    user: str
    target: int
    at: datetime
    by: str


class MovedUser(NamedTuple):
    """A user who was moved, or who would be.

    Attributes:
        source: The shard that had the user.
        target: The shard that has the user now.
        episodes: How many episodes were moved.
        facts: How many facts were moved.
        rows: How many rows of the ledger were moved; 0 when an earlier holder moved them.
    """

    user: str
    source: int
    target: int
    episodes: int = 0
    facts: int = 0
    rows: int = 0


class FinishedMoves(NamedTuple):
    """What became of the moves that an earlier holder has begun.

    Attributes:
        moved: The users who were moved.
        failed: The users who were not, and why.
    """

    moved: list[MovedUser]
    failed: list[tuple[str, SlumberdError]]
