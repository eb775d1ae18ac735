"""What an index reads of a store: all that a scope has, and later only what has changed."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Container, Mapping, Sequence, Set
from hashlib import blake2b
from typing import Any, Generic, NamedTuple, TypeVar

from slumberd.model.episode import EpisodeVersion
from slumberd.model.fact import Fact
from slumberd.model.firing import Position
from slumberd.model.record import Checkpoint
from slumberd.model.scope import ScopeFilter

P = TypeVar("P")
V = TypeVar("V")


class FeedPlace(NamedTuple):
    """Up to where a reader knows the episodes.

    Attributes:
        position: The last row of the log. In a file, a hash stands for the id of its episode,
            which may be another user's.
        deletion: The number of the last deletion.
    """

    position: Position
    deletion: int

    def saved(self) -> list[Any]:
        """Return the place as values of JSON, with a hash in place of the id of the episode."""
        seq, eid = self.position
        return [seq, _hash_of(seq, eid), self.deletion]

    @classmethod
    def of_saved(cls, saved: Sequence[Any]) -> FeedPlace:
        """Return a place that was saved."""
        seq, eid, deletion = saved
        return cls(Position(seq, eid), deletion)

    def is_at(self, eid: str | None) -> bool:
        """Return whether the last row of the log is of an episode; None stands for no row."""
        seq, own = self.position
        return not seq or (eid is not None and own in (eid, _hash_of(seq, eid)))


def _hash_of(seq: int, eid: str) -> str:
    return blake2b(f"{seq} {eid}".encode(errors="surrogatepass"), digest_size=16).hexdigest()


class Deletion(NamedTuple):
    """A row of the episodes that a program deleted.

    Attributes:
        number: Counts the deletions.
        row: The row; None stands for rows that are unknown.
    """

    number: int
    row: int | None


def are_unknown(deletions: Sequence[Deletion], number: int) -> bool:
    """Return whether rows were deleted after a number that the deletions after it do not name."""
    if not deletions:
        return False
    return deletions[0].number != number + 1 or any(one.row is None for one in deletions)


class FactPlace(NamedTuple):
    """Up to where a reader knows the facts.

    Attributes:
        ledger: The last row of the ledger.
        unrecorded: Ids of facts that other programs changed, and the ledger did not record yet.
    """

    ledger: Checkpoint
    unrecorded: frozenset[str]

    def saved(self) -> list[Any] | None:
        """Return the place as values of JSON; None when the ledger alone does not tell it."""
        # A hash of an id would not do: after a restart, the store is asked for these ids.
        if self.unrecorded or not self.ledger.rows:
            return None
        return [self.ledger.rows, self.ledger.head.hex()]

    @classmethod
    def of_saved(cls, saved: Sequence[Any]) -> FactPlace:
        """Return a place that was saved."""
        rows, head = saved
        return cls(Checkpoint(rows, bytes.fromhex(head)), frozenset())


class NumberedVersion(NamedTuple):
    """An episode with the number of its row, which stays when its id changes."""

    row: int
    version: EpisodeVersion


class NumberedFact(NamedTuple):
    """A current fact with its row, which is its id."""

    row: str
    version: Fact


FindRows = Callable[[ScopeFilter], Awaitable[Container[Any]]]
"""Returns the rows that a scope has now."""


class Reading(NamedTuple, Generic[P, V]):
    """What a scope has.

    Attributes:
        place: Where the reader goes on. Later changes may be in `versions` already.
        versions: What is readable, in no order.
    """

    place: P
    versions: list[V]


class Changes(NamedTuple, Generic[P, V]):
    """What changed in all scopes.

    Attributes:
        place: Where the reader goes on.
        rows: The rows that were written or deleted.
        versions: What is in these rows now; deleted and unreadable ones are left out.
        find_rows: Given when other rows may be gone, too: returns the rows that a scope has now.
    """

    place: P
    rows: frozenset[Any]
    versions: list[V]
    find_rows: FindRows | None = None


ScopeReading = Reading[FeedPlace, NumberedVersion]
"""The episodes of a scope."""

FeedChanges = Changes[FeedPlace, NumberedVersion]
"""What changed in the episodes of all scopes."""


class EpisodeChanges(NamedTuple):
    """Which episodes changed after a place of the log.

    Attributes:
        place: The last row of the log, and the last deletion.
        written: The number of the newest log row of each episode that was written, by id.
        deleted: The ids of episodes that were deleted, and perhaps of others.
        known: Whether the log tells all changes: it does not when a table was rebuilt, rows were
            erased, or the store was restored.
    """

    place: FeedPlace
    written: Mapping[str, int] = {}
    deleted: Set[str] = frozenset()
    known: bool = True


class LedgerChanges(NamedTuple):
    """Which facts of the channels of stages changed after a row of the ledger.

    Attributes:
        place: The last row.
        generation: The generation of the episode log.
        fact_ids: The ids of the facts that changed, or that a person named.
        known: Whether the ledger tells all changes: it does not after an erasure or a new law, and
            when the store was restored.
    """

    place: Checkpoint
    generation: int
    fact_ids: Set[str] = frozenset()
    known: bool = True
