"""What callers read of the ledger: firings, changes, checkpoints, breaks of the chain, erasures.

Also the facts that went within a day.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import groupby
from typing import Literal, NamedTuple

from slumberd.model.firing import Counts, Kind


class FiringPlace(NamedTuple):
    """A place in the order of firings: before a number, and not after an instant.

    Attributes:
        number: Only firings with a smaller number.
        at: Only firings up to this instant, microseconds since 1970 UTC.
    """

    number: int
    at: int


class RecordedFiring(NamedTuple):
    """A firing as the ledger records it.

    Attributes:
        number: The number of its own row.
        firing_id: ``{rule}@{number}``.
        rule_id: The rule; edits, undos and erasures have ids that begin with ``@``.
        by: The person or program that requested it; empty for a cadence.
        reason: Why it was requested; empty when no reason was given.
        counts: What became of the episode versions, in all channels together. A firing without
            a window, such as an undo, counts its rows.
        run: The id of the command or the due cadence that it belongs to; empty without one.
        undone_by: The firing that undid it; empty when it is not undone now.
        undoes: The firing that it undoes; empty when it is no undo.
    """

    number: int
    firing_id: str
    rule_id: str
    at: datetime
    trigger: str
    by: str
    reason: str
    counts: Counts
    run: str
    undone_by: str
    undoes: str


class ChangeGroup(NamedTuple):
    """Rows of one firing that are alike.

    Attributes:
        firing: The number of the firing's own row.
        kind: What each row did.
        marks: Whether they concern marks or weights of episodes, not facts.
        user: Whose they are; empty when it is not known.
        agent: Who knows them; empty as `user`.
        rows: How many rows there are.
    """

    firing: int
    rule_id: str
    at: datetime
    kind: Kind
    marks: bool
    user: str
    agent: str
    rows: int


class GroupedChanges(NamedTuple):
    """The rows of some whole firings, in groups.

    Attributes:
        groups: The groups, by firing, oldest first.
        last: The number of the last row of these firings; where to go on.
        erasure: The number of the last erasure in the ledger; 0 for none. Rows before it may have
            changed: an erasure removes their owners.
    """

    groups: list[ChangeGroup]
    last: int
    erasure: int


class Break(NamedTuple):
    """The first defect of a ledger.

    Attributes:
        seq: The defective row, or the last row before a missing one; 0 for no single row.
    """

    seq: int
    problem: str


class ForeignBlank(Break):
    """Nothing is wrong with a ledger but that another program blanked rows of it.

    Nobody can mend it, so it stops no backup and no copy.
    """

    __slots__ = ()


class Checkpoint(NamedTuple):
    """The length and the head of a ledger at one moment.

    Attributes:
        rows: The number of its last row.
        head: The chain hash of that row.
        logged_at: The timestamp of the log line with this checkpoint; empty when it is from no log.
    """

    rows: int
    head: bytes
    logged_at: str = ""


WITHIN = timedelta(hours=24)
"""The time in which a reduction is alarming."""

FEW_FACTS = 20
"""Of so many facts or fewer, no reduction is alarming."""


class Reduction(NamedTuple):
    """An alarming reduction of facts.

    Attributes:
        user: Whose facts they were; None for the facts of all users together.
        before: How many facts there were at most within the last day.
        now: How many there are.
    """

    user: str | None
    before: int
    now: int

    def words(self) -> str:
        """Return the reduction in words, with the user."""
        whose = "there are" if self.user is None else f"user {self.user!r} has"
        share = 100 * (self.before - self.now) // self.before
        was = f"{self.before:,} facts within the last 24 hours ({share} % went)"
        return f"{whose} {self.now:,} of {was}"


class Shrinkage(NamedTuple):
    """How the number of facts fell within the last day, without those of the channels of stages.

    Facts that were erased within the day count as if they were there from its beginning.

    Attributes:
        now: How many facts each user has.
        most: How many facts each user had at most.
        most_of_all: How many facts there were at most.
    """

    now: Mapping[str, int]
    most: Mapping[str, int]
    most_of_all: int

    def reductions(self, fraction: float | None) -> Iterator[Reduction]:
        """Yield the alarming reductions: of all facts first, then of each user.

        Args:
            fraction: The fraction of the facts that must have gone; None alarms never.
        """
        if fraction is None:
            return
        counted: list[tuple[str | None, int, int]] = [
            (None, self.most_of_all, sum(self.now.values()))
        ]
        counted += [(user, self.most[user], self.now.get(user, 0)) for user in sorted(self.most)]
        for user, before, now in counted:
            if now < before and before > FEW_FACTS and before - now >= fraction * before:
                yield Reduction(user, before, now)


class Retraction(NamedTuple):
    """How many facts one firing retracted, without a replacement.

    Attributes:
        rule_id: Its rule, or the command, as ``@undo``.
        run: The id that all firings of its command share; empty without one.
        retracted: The facts, without those of the channels of stages.
    """

    firing_id: str
    rule_id: str
    run: str
    retracted: int


class FiringGrowth(NamedTuple):
    """How many more facts a firing made current.

    Attributes:
        user: Whose facts they are; empty when that is unknown or erased.
        more: How many more; negative for fewer.
    """

    firing: int
    user: str
    more: int


def shrinkage_of(now: Mapping[str, int], changes: Iterable[FiringGrowth]) -> Shrinkage:
    """Return how the number of facts fell, from the numbers of today and all changes before."""
    counts, most = dict(now), dict(now)
    total = most_of_all = sum(now.values())
    newest_first = sorted(changes, key=lambda change: -change.firing)
    for _, some in groupby(newest_first, key=lambda change: change.firing):
        grown: Counter[str] = Counter()
        for _, user, more in some:  # an undo removes facts of a user, and restores others
            grown[user] += more
        total -= grown.total()
        for user, more in grown.items():
            if user:
                counts[user] = counts.get(user, 0) - more
                most[user] = max(most.get(user, 0), counts[user])
        most_of_all = max(most_of_all, total)
    return Shrinkage(now, most, most_of_all)


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
