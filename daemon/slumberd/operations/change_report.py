"""Sum up what a ledger's rows changed: per rule, per user, and the largest batches."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime
from heapq import nlargest
from typing import Any

from slumberd.model.fact_ids import channel_of
from slumberd.model.record import Kind, Record
from slumberd.model.scope import ScopeFilter
from slumberd.model.stages import MARKS, WEIGHTS
from slumberd.observability.line_format import timestamp
from slumberd.operations.protocols import LedgerReader

PAGE_ROWS = 5_000
"""Ledger rows that are read at a time."""

_COUNTED: dict[Kind, str] = {
    "add": "learned",
    "update": "changed",
    "delete": "forgotten",
    "quarantine": "quarantined",
}
_MARKED: dict[Kind, str] = {"add": "marked", "update": "marked", "delete": "unmarked"}
_NAMES = (*_COUNTED.values(), "marked", "unmarked")


@dataclass(slots=True)
class Changes:
    """How many facts and episodes changed.

    Attributes:
        learned: New facts, summaries too.
        changed: Facts that replaced others.
        forgotten: Facts that are not current any more.
        quarantined: Episodes that could not be read.
        marked: Marks and weights that stages gave to episodes.
        unmarked: Marks and weights that ended.
    """

    learned: int = 0
    changed: int = 0
    forgotten: int = 0
    quarantined: int = 0
    marked: int = 0
    unmarked: int = 0

    @property
    def facts(self) -> int:
        """How many changes of facts there are."""
        return self.learned + self.changed + self.forgotten

    def count(self, record: Record) -> None:
        """Count one row; rows that change nothing are not counted."""
        is_mark = channel_of(record.fact_id) in (MARKS, WEIGHTS) and record.kind in _MARKED
        name = (_MARKED if is_mark else _COUNTED).get(record.kind)
        if name is not None:
            setattr(self, name, getattr(self, name) + 1)

    def document(self) -> dict[str, int]:
        """Return the numbers by name."""
        return {name: getattr(self, name) for name in _NAMES}


_NOTHING = Changes()


@dataclass(slots=True)
class BatchChanges:
    """What one batch changed.

    Attributes:
        firing_id: The batch.
        rule_id: Its rule.
        at: Its instant.
        changes: What it changed.
    """

    firing_id: str
    rule_id: str
    at: datetime
    changes: Changes = field(default_factory=Changes)


@dataclass(slots=True)
class ChangeReport:
    """What the ledger's rows of a time changed.

    Attributes:
        batches: The number of batches.
        changes: What they changed together.
        rules: What the batches of each rule changed. Manual edits, undos and erasures have rule ids
            that begin with ``@``.
        users: What changed for each user; rows whose user is unknown are in no entry.
        largest: The batches with the most changes of facts, the largest first.
    """

    batches: int = 0
    changes: Changes = field(default_factory=Changes)
    rules: dict[str, Changes] = field(default_factory=dict)
    users: dict[str, Changes] = field(default_factory=dict)
    largest: list[BatchChanges] = field(default_factory=list)

    def top_users(self, most: int) -> list[tuple[str, Changes]]:
        """Return the users with the most changes of facts, then by name."""
        return sorted(self.users.items(), key=lambda one: (-one[1].facts, one[0]))[:most]

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


class ChangeCounter:
    """Adds rows to a report.

    Attributes:
        report: The report on the rows so far; `largest` is complete after `finish` only.
    """

    def __init__(self) -> None:
        self.report = ChangeReport()
        self._batches: dict[str, BatchChanges] = {}

    def add(self, records: Iterable[Record]) -> None:
        """Add rows, in order."""
        report = self.report
        for record in records:
            batch = self._batches.get(record.firing_id)
            if batch is None:
                batch = BatchChanges(record.firing_id, record.rule_id, record.at)
                self._batches[record.firing_id] = batch
            counted = [report.changes, batch.changes]
            counted.append(report.rules.setdefault(record.rule_id, Changes()))
            if record.user:
                counted.append(report.users.setdefault(record.user, Changes()))
            for changes in counted:
                changes.count(record)

    def finish(self, most: int) -> ChangeReport:
        """Return the report with its largest batches.

        Args:
            most: At most this many batches.
        """
        self.report.rules = {
            rule_id: changes
            for rule_id, changes in self.report.rules.items()
            if _is_shown(rule_id, changes)
        }
        shown = [one for one in self._batches.values() if _is_shown(one.rule_id, one.changes)]
        changed = [batch for batch in shown if batch.changes.facts]
        self.report.largest = nlargest(most, changed, key=_size_of)
        self.report.batches = len(shown)
        return self.report


def _is_shown(rule_id: str, changes: Changes) -> bool:
    """Return whether rows are of a rule, or of an edit or a setting that changed something."""
    return changes != _NOTHING or not rule_id.startswith("@")


def _size_of(batch: BatchChanges) -> tuple[int, str]:
    return batch.changes.facts, batch.firing_id


def is_of(row: Record, scope: ScopeFilter) -> bool:
    """Return whether a row concerns the user and the agent of a scope."""
    return row.user == scope.user and scope.agent in (None, row.agent)


async def read_changes(
    reads: LedgerReader, since: datetime, *, most: int, scope: ScopeFilter | None = None
) -> ChangeReport:
    """Return what the ledger's rows from an instant on changed.

    Args:
        reads: Reads the ledger.
        since: The instant, inclusive.
        most: At most this many largest batches.
        scope: Only rows of this user and agent; None for all rows.
    """
    counter = ChangeCounter()
    after = await reads.last_row_before(since)
    while page := await reads.records(after=after, limit=PAGE_ROWS):
        counter.add(row for row in page if scope is None or is_of(row, scope))
        after = page[-1].seq
    return counter.finish(most)
