"""Sum up what a ledger's rows changed by rule, user and day, and find the largest batches."""

from __future__ import annotations

import asyncio
from collections import Counter, OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from heapq import nlargest, nsmallest
from itertools import groupby
from typing import Any, Literal, get_args

from slumberd.logs.lines import timestamp
from slumberd.model.firing import Kind, Record
from slumberd.model.record import ChangeGroup
from slumberd.model.scope import ScopeFilter
from slumberd.operations.forms import MOST
from slumberd.storage.facts.reads import FactReader
from slumberd.storage.ledger.rows import firing_id_of

PAGE_ROWS = 5_000
"""Ledger rows that are counted at a time."""

_COUNTED: dict[Kind, str] = {
    "add": "learned",
    "update": "changed",
    "delete": "retracted",
    "quarantine": "quarantined",
}
_MARKED: dict[Kind, str] = {"add": "marked", "update": "marked", "delete": "unmarked"}
_NAMES = (*_COUNTED.values(), "marked", "unmarked")


LargestBy = Literal["facts", "quarantined", "marked", "unmarked"]
"""What the largest batches of a report have the most of; ``facts`` are changes of facts."""

_LARGEST_BY: tuple[LargestBy, ...] = get_args(LargestBy)


@dataclass(slots=True)
class Changes:
    """How many facts and episodes changed.

    Attributes:
        learned: New facts, summaries too.
        changed: Facts that replaced others.
        retracted: Facts that are not current any more.
        quarantined: Episodes that could not be read.
        marked: Marks and weights that stages gave to episodes.
        unmarked: Marks and weights that ended.
    """

    learned: int = 0
    changed: int = 0
    retracted: int = 0
    quarantined: int = 0
    marked: int = 0
    unmarked: int = 0

    @property
    def facts(self) -> int:
        """How many changes of facts there are."""
        return self.learned + self.changed + self.retracted

    def add(self, name: str, count: int) -> None:
        """Add to the number of a name; a negative count subtracts."""
        setattr(self, name, getattr(self, name) + count)

    def add_all(self, other: Changes, sign: int) -> None:
        """Add all numbers of another; with -1 as the sign, subtract them."""
        for name in _NAMES:
            self.add(name, sign * getattr(other, name))

    def document(self) -> dict[str, int]:
        """Return the numbers by name; one of them also by the name that it had in 0.2.0."""
        numbers = {name: getattr(self, name) for name in _NAMES}
        return {**numbers, "forgotten": self.retracted}


_NOTHING = Changes()


@dataclass(slots=True)
class BatchChanges:
    """What one batch changed.

    Attributes:
        number: The number of its own row in the ledger.
        at: Its instant.
    """

    number: int
    rule_id: str
    at: datetime
    changes: Changes = field(default_factory=Changes)

    @property
    def firing_id(self) -> str:
        """The id of the batch."""
        return firing_id_of(self.rule_id, self.number)

    def size_by(self, largest_by: LargestBy) -> tuple[int, int]:
        """Return how large it is by some of its numbers; no two batches are equally large."""
        # Not the text of the firing: how many digits a number has depends on the rows of others.
        count: int = getattr(self.changes, largest_by)
        return count, self.number


@dataclass(slots=True)
class ChangeReport:
    """What the ledger's rows of a time changed.

    Attributes:
        changes: What they changed together.
        rules: What the batches of each rule changed. Manual edits, undos and erasures have rule ids
            that begin with ``@``.
        users: What changed for each user; rows whose user is unknown are in no entry.
        days: What changed on each day, in UTC, on which there were batches.
        largest_by: The batches with the most changes of facts, with the most quarantined episodes,
            and so on; each time the largest first, without batches that have none.
    """

    batches: int = 0
    changes: Changes = field(default_factory=Changes)
    rules: dict[str, Changes] = field(default_factory=dict)
    users: dict[str, Changes] = field(default_factory=dict)
    days: dict[date, Changes] = field(default_factory=dict)
    largest_by: dict[LargestBy, list[BatchChanges]] = field(default_factory=dict)

    @property
    def largest(self) -> list[BatchChanges]:
        """The batches with the most changes of facts, the largest first."""
        return self.largest_by.get("facts", [])

    def top_users(self, most: int) -> list[tuple[str, Changes]]:
        """Return the users with the most changes of facts, then by name."""
        return nsmallest(most, self.users.items(), key=lambda one: (-one[1].facts, one[0]))

    def document(self, most: int) -> dict[str, Any]:
        """Return the report as a JSON object, with at most so many users and batches."""
        return {
            "batches": self.batches,
            **self.changes.document(),
            "rules": {name: self.rules[name].document() for name in sorted(self.rules)},
            "users": {name: changes.document() for name, changes in self.top_users(most)},
            "other_users": max(0, len(self.users) - most),
            "largest": [
                {
                    "firing_id": batch.firing_id,
                    "rule_id": batch.rule_id,
                    "at": timestamp(batch.at),
                    **batch.changes.document(),
                }
                for batch in self.largest[:most]
            ],
        }


class LargestBatches:
    """The largest of many batches, of which the oldest may leave again.

    Args:
        kept: At least so many of the largest are kept.
        largest_by: What the largest have the most of; a batch that has none is left out.
    """

    def __init__(self, kept: int, largest_by: LargestBy = "facts") -> None:
        self._kept = kept
        self._largest_by = largest_by
        self._batches: dict[int, BatchChanges] = {}
        self._dropped: tuple[int, int] | None = None
        """The size of the largest batch that was not kept."""

    def add(self, batch: BatchChanges) -> None:
        """Add a batch; drop the smaller half once there are twice as many as are kept."""
        size = self._size_of(batch)
        if not size[0] or (self._dropped is not None and size < self._dropped):
            return
        self._batches[batch.number] = batch
        if len(self._batches) > 2 * self._kept:
            largest = nlargest(self._kept + 1, self._batches.values(), key=self._size_of)
            self._dropped = self._size_of(largest.pop())
            self._batches = {each.number: each for each in largest}

    def remove(self, number: int) -> None:
        """Remove a batch, if it is there."""
        self._batches.pop(number, None)

    def covers(self, most: int) -> bool:
        """Return whether `top` returns what it would if no batch had been dropped."""
        return self._dropped is None or len(self._batches) >= most

    def top(self, most: int) -> list[BatchChanges]:
        """Return the largest batches, the largest first."""
        return nlargest(most, self._batches.values(), key=self._size_of)

    def _size_of(self, batch: BatchChanges) -> tuple[int, int]:
        return batch.size_by(self._largest_by)


class ChangeCounter:
    """Adds firings to a report, and takes them out again.

    Args:
        kept: How many of the largest batches it keeps at least, for each number of `LargestBy`.
    """

    def __init__(self, kept: int) -> None:
        self._report = ChangeReport()
        self._batches: Counter[str] = Counter()
        """How many batches each rule has; of a rule id with ``@``, those that changed something."""
        self._rows: Counter[str] = Counter()
        """How many rows each user has."""
        self._largest = {name: LargestBatches(kept, name) for name in _LARGEST_BY}

    def add(self, groups: Iterable[ChangeGroup]) -> None:
        """Add the groups of whole firings, which follow each other."""
        for batch in self._count(groups, 1):
            for largest in self._largest.values():
                largest.add(batch)

    def remove(self, groups: Iterable[ChangeGroup]) -> None:
        """Take firings out that were added before."""
        for batch in self._count(groups, -1):
            for largest in self._largest.values():
                largest.remove(batch.number)

    def _count(self, groups: Iterable[ChangeGroup], sign: int) -> list[BatchChanges]:
        return [
            self._count_firing([*found], sign)
            for _, found in groupby(groups, lambda one: one.firing)
        ]

    def _count_firing(self, groups: Sequence[ChangeGroup], sign: int) -> BatchChanges:
        first, report = groups[0], self._report
        batch = BatchChanges(first.firing, first.rule_id, first.at)
        for group in groups:
            name = name_of_change(group.kind, marks=group.marks)
            if name is not None:
                batch.changes.add(name, group.rows)
            if group.user:
                self._count_user(group.user, name, sign * group.rows)
        report.changes.add_all(batch.changes, sign)
        report.rules.setdefault(batch.rule_id, Changes()).add_all(batch.changes, sign)
        day = batch.at.astimezone(UTC).date()
        report.days.setdefault(day, Changes()).add_all(batch.changes, sign)
        if batch.changes != _NOTHING or not batch.rule_id.startswith("@"):
            report.batches += sign
            self._batches[batch.rule_id] += sign
        return batch

    def _count_user(self, user: str, name: str | None, count: int) -> None:
        self._rows[user] += count
        if not self._rows[user]:
            del self._rows[user], self._report.users[user]
            return
        changes = self._report.users.setdefault(user, Changes())
        if name is not None:
            changes.add(name, count)

    def covers(self, most: int) -> bool:
        """Return whether `finish` can return so many of the largest batches."""
        return all(largest.covers(most) for largest in self._largest.values())

    def finish(self, most: int) -> ChangeReport:
        """Return the report, without what has left it.

        Args:
            most: At most this many of the largest batches, for each number of `LargestBy`.
        """
        report = self._report
        report.rules = {name: one for name, one in report.rules.items() if self._batches[name]}
        report.largest_by = {name: largest.top(most) for name, largest in self._largest.items()}
        return report


def name_of_change(kind: Kind, *, marks: bool) -> str | None:
    """Return the name of what a row counts as; None when it changed nothing.

    Args:
        kind: What the row did.
        marks: Whether it concerns a mark or a weight of an episode, not a fact.
    """
    marked = _MARKED.get(kind) if marks else None
    return marked or _COUNTED.get(kind)


def is_of(row: Record | ChangeGroup, scope: ScopeFilter) -> bool:
    """Return whether a row, or a group of rows, concerns the user and the agent of a scope."""
    return row.user == scope.user and scope.agent in (None, row.agent)


async def read_changes(
    reads: FactReader,
    since: datetime,
    *,
    until: datetime | None = None,
    most: int,
    scope: ScopeFilter | None = None,
) -> ChangeReport:
    """Return what the ledger's rows from an instant on changed.

    Args:
        reads: Reads the ledger.
        since: The instant, inclusive.
        until: Only rows before this instant; None for all.
        most: At most this many largest batches, for each number of `LargestBy`.
        scope: Only rows of this user and agent; None for all rows.
    """
    counter = ChangeCounter(most)
    after, last = -1, await reads.last_row_before(since)
    upto = None if until is None else await reads.last_row_before(until)
    while last > after:
        after = last
        found = await reads.group_changes(after=after, limit=PAGE_ROWS, upto=upto)
        counter.add(one for one in found.groups if scope is None or is_of(one, scope))
        last = found.last
    return counter.finish(most)


_TIMES = 4
"""So many lengths of time are kept; a further one replaces the least recently used."""


class _RecentTime:
    """The sums of one time, which moves on: later rows enter it, and early rows leave it.

    Args:
        reads: Reads the ledger.
    """

    def __init__(self, reads: FactReader) -> None:
        self._reads = reads
        self._turn = asyncio.Lock()
        self._start(0)

    def _start(self, after: int) -> None:
        """Start again, after a row."""
        self._counter = ChangeCounter(2 * MOST)
        self._after = self._last = after
        self._erasure: int | None = None

    async def report(self, since: datetime, most: int) -> ChangeReport:
        """Return what the rows from an instant on changed."""
        async with self._turn:
            after = await self._reads.last_row_before(since)
            await self._move_to(after)
            if not self._counter.covers(most):
                self._start(after)
                await self._move_to(after)
            return self._counter.finish(most)

    async def _move_to(self, after: int) -> None:
        """Let rows up to a number leave, and all new rows enter."""
        while not await self._try_to_move_to(after):
            self._start(after)

    async def _try_to_move_to(self, after: int) -> bool:
        """Return whether the sums are right; they are not once an erasure changed rows."""
        if not self._after <= after <= self._last:
            return False
        while self._after < after:
            found = await self._reads.group_changes(after=self._after, limit=PAGE_ROWS, upto=after)
            if found.erasure != self._erasure:
                return False
            self._counter.remove(found.groups)
            self._after = found.last
        while True:
            found = await self._reads.group_changes(after=self._last, limit=PAGE_ROWS)
            if self._erasure not in (None, found.erasure):
                return False
            self._erasure = found.erasure
            if found.last == self._last:
                return True
            self._counter.add(found.groups)
            self._last = found.last


class RecentChanges:
    """Sums up what changed in recent times, in all memory.

    Args:
        reads: Reads the ledger.
    """

    def __init__(self, reads: FactReader) -> None:
        self._reads = reads
        self._times: OrderedDict[int, _RecentTime] = OrderedDict()

    async def report(self, since: datetime, *, days: int, most: int) -> ChangeReport:
        """Return what the ledger's rows from an instant on changed, as `read_changes` does.

        The report is valid until the next call.

        Args:
            since: The instant, inclusive.
            days: The length of the time; each length has sums of its own.
            most: At most this many of the largest batches.
        """
        time = self._times.pop(days, None) or _RecentTime(self._reads)
        self._times[days] = time
        if len(self._times) > _TIMES:
            self._times.popitem(last=False)
        return await time.report(since, most)
