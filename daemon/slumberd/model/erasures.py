"""What a store and a ledger record of erasures."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Literal, NamedTuple

from slumberd.model.record import Break

StoreName = Literal["facts", "episodes"]
"""The stores that an erasure removes content from, as its certificate names them."""


QUIET = "the next quiet window"
"""What a store waits for that is not rewritten at once, as a certificate says it."""


class ErasedList(NamedTuple):
    """The list of erased scopes of one store; it also holds episodes that were erased by their ids.

    Attributes:
        key: The key of the hashes; None when nothing was ever erased here.
        moments: The last erased instant of each scope, by its hash, microseconds since 1970 UTC.
    """

    key: bytes | None
    moments: Mapping[bytes, int]


class Rewrite(NamedTuple):
    """What is left to do until the bytes of an erasure are gone from one store.

    Attributes:
        row: The ledger row of the erasure.
        is_rewritten: Whether the store was rewritten, so that only its log has old bytes.
    """

    store: StoreName
    row: int
    is_rewritten: bool = False


class RecordedErasures(NamedTuple):
    """The erased scopes as the ledger records them.

    Attributes:
        moments: The last erased instant of each scope, by its hash, microseconds since 1970 UTC.
        keys: What `name_of` returns of the key of each hash; an older slumberd recorded none.
        begun: The hashes of erasures that the store of episodes may lack, since they are
            unfinished.
    """

    moments: Mapping[bytes, int]
    keys: Mapping[bytes, str] = {}
    begun: Set[bytes] = frozenset()

    def finished(self) -> RecordedErasures:
        """Return those that the store of episodes has, too."""
        moments = {one: at for one, at in self.moments.items() if one not in self.begun}
        keys = {one: key for one, key in self.keys.items() if one not in self.begun}
        return self._replace(moments=moments, keys=keys)

    def missing_from(self, kept: ErasedList) -> dict[bytes, int]:
        """Return the moments that a list lacks, or has earlier."""
        return {
            digest: moment
            for digest, moment in self.moments.items()
            if kept.moments.get(digest, moment - 1) < moment
        }

    def describe_fault(self, kept: ErasedList) -> str:
        """Return how a list contradicts the ledger; an empty text when it does not."""
        scopes = len(self.missing_from(kept))
        if scopes:
            some = "1 entry" if scopes == 1 else f"{scopes} entries"
            return f"the list of erased scopes lacks {some} that the ledger names as erased"
        name = None if kept.key is None else name_of(kept.key)
        if any(other != name for other in self.keys.values()):
            return "the list of erased scopes has another key than the ledger names"
        return ""


def name_of(key: bytes) -> str:
    """Return a text that differs between keys and does not reveal the key."""
    return hashlib.sha256(b"slumberd erasure" + key).hexdigest()[:16]


@dataclass(frozen=True, slots=True)
class ErasedRows:
    """How the blank rows of a ledger compare with its erasures.

    Attributes:
        foreign: The numbers of blank rows that no erasure names.
        unclear: How many more there are at least, among those that a cumulative hash should name.
        broken: The first contradiction; None without one.
        base: The rows that the last cumulative hash names; None when there is none, or when an
            erasure named them since.
    """

    foreign: Sequence[int] = ()
    unclear: int = 0
    broken: Break | None = None
    base: Sequence[int] | None = None

    @property
    def foreign_rows(self) -> int:
        """How many blank rows no erasure names, at least."""
        return len(self.foreign) + self.unclear
