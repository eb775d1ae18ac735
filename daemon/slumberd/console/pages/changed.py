"""The page of what a number of a report counts: the changes of facts, firing by firing."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import Any

from slumberd.console.fact_words import add_words
from slumberd.console.links import link
from slumberd.console.report_pictures import ROWS, Counts
from slumberd.console.visit import Shown, View, Visit
from slumberd.errors import UsageError
from slumberd.model.stages import MARK_IDS
from slumberd.operations.caller import Right
from slumberd.operations.change_report import name_of_change
from slumberd.operations.memory_forms import MOST

MOST_DAYS = 366
"""A report goes back so far."""

_PAGE_ROWS = 100
_MOST_READS = 20
"""A page asks for the rows of firings at most so often; the next page goes on."""


@dataclass(frozen=True, slots=True)
class _Asked:
    """What the fields of the page ask for."""

    since: datetime
    until: datetime
    counted: str | None
    rule: str | None
    user: str | None

    def covers(self, batch: Counts) -> bool:
        """Return whether a batch is of the time and the rule that are asked for."""
        at = datetime.fromisoformat(batch["at"])
        return self.since <= at < self.until and self.rule in (None, batch["rule_id"])

    def counts_in(self, batch: Counts) -> bool:
        """Return whether a batch has changes that are asked for."""
        return any(batch[name] for name in (ROWS if self.counted is None else (self.counted,)))

    def includes(self, row: Mapping[str, Any]) -> bool:
        """Return whether a row of a firing is asked for."""
        name = name_of_change(row["kind"], marks=row["fact_id"].startswith(MARK_IDS))
        return name in ROWS if self.counted is None else name == self.counted


@dataclass(slots=True)
class _Found:
    """The rows of a page.

    Attributes:
        firings: Batches, each with its rows.
        next: The firing, and the number of its row, after which the next page goes on.
    """

    firings: list[tuple[Counts, list[Mapping[str, Any]]]] = field(default_factory=list)
    next: tuple[str, int] | None = None


async def show(visit: Visit) -> Shown:
    """Show the changes of facts of a time, the newest firing first."""
    now = visit.served.clock.now()
    asked = _read_fields(visit, now)
    days = math.ceil((now - asked.since) / timedelta(days=1))
    report = await visit.ask(
        "report", days=max(1, min(days, MOST_DAYS)), user=asked.user, limit=MOST
    )
    covered = [batch for batch in report["largest"] if asked.covers(batch)]
    covered.sort(key=lambda batch: (batch["at"], batch["firing_id"]), reverse=True)
    batches = [*filter(asked.counts_in, covered)]
    found = await _read_rows(visit, asked, batches)
    names = ("since", "until", "counted", "rule", "user")
    given = {name: visit.fields.get(name) for name in names}
    values = {
        "asked": asked,
        "counts": {name: sum(batch[name] for batch in covered) for name in ROWS},
        "batches": len(batches),
        "cut": len(report["largest"]) == MOST,
        "firings": found.firings,
        "next": found.next and link("changes", **given, firing=found.next[0], after=found.next[1]),
        "operates": visit.may(Right.OPERATE),
        "links": {name: link("changes", **{**given, "counted": name}) for name in ROWS},
    }
    return View("changed.html", "Changes", values)


def _read_fields(visit: Visit, now: datetime) -> _Asked:
    counted = visit.fields.get("counted")
    if counted is not None and counted not in ROWS:
        raise UsageError(f"counted: {counted[:40]!r} is none of {', '.join(ROWS)}")
    return _Asked(
        since=_instant_of(visit, "since", now - timedelta(days=1)),
        until=_instant_of(visit, "until", now + timedelta(seconds=1)),
        counted=counted,
        rule=visit.fields.get("rule"),
        user=visit.fields.get("user"),
    )


def _instant_of(visit: Visit, name: str, default: datetime) -> datetime:
    """Return a field that is an instant or a day; without an offset, it is in UTC.

    Raises:
        UsageError: It is another text.
    """
    text = visit.fields.get(name)
    if text is None:
        return default
    try:
        at = datetime.fromisoformat(text)
        return at.replace(tzinfo=UTC) if at.tzinfo is None else at.astimezone(UTC)
    except (ValueError, OverflowError):
        problem = f"{text[:40]!r} is not an instant; write 2026-03-01 or 2026-03-01T12:00:00Z"
        raise UsageError(f"{name}: {problem}") from None


async def _read_rows(visit: Visit, asked: _Asked, batches: Sequence[Counts]) -> _Found:
    """Read the rows of the batches, from the place where the page before ended."""
    ids = [batch["firing_id"] for batch in batches]
    first, after = visit.fields.get("firing"), visit.number("after", 0)
    place, after = (ids.index(first), after) if first in ids else (0, 0)
    found, rows = _Found(), 0
    for _ in range(_MOST_READS):
        if place == len(batches):
            break
        page = await visit.ask("deltas", firing=ids[place], user=asked.user, after=after)
        wanted = [row for row in page["changes"] if asked.includes(row)]
        if wanted:
            found.firings.append((batches[place], wanted))
            rows += len(wanted)
        place, after = (place, page["last"]) if page["more"] else (place + 1, 0)
        if rows >= _PAGE_ROWS:
            break
    if place < len(batches):
        found.next = (ids[place], after)
    worded = iter(await add_words(visit, [row for _, each in found.firings for row in each]))
    found.firings = [(batch, [*islice(worded, len(each))]) for batch, each in found.firings]
    return found
