"""The pages of what was learned, changed and retracted: the figures, and the rows behind one."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta
from itertools import islice
from typing import Any

from slumberd.model.errors import UsageError
from slumberd.model.stages import MARK_IDS
from slumberd.operations.caller import Right
from slumberd.operations.change_report import name_of_change
from slumberd.operations.forms import MOST
from slumberd.operations.report import MOST_DAYS
from slumberd.web.console.fact_words import add_words
from slumberd.web.console.pictures import (
    ROWS,
    Counts,
    Report,
    draw_days,
    draw_largest,
    growth_of,
    sum_days,
)
from slumberd.web.console.rendering import link
from slumberd.web.console.time_range import read_instant
from slumberd.web.console.visit import Redirect, Shown, View, Visit

_PICTURE_DAYS = 7
"""The pictures of all users show at least so many days."""

_LISTED = 10

CountLink = Callable[[str], str]
"""Returns the page of what a number counts, by the name of the number, such as ``learned``."""


@dataclass(frozen=True, slots=True)
class ReportLinks:
    """The addresses of what the numbers of a report count.

    Attributes:
        since: The first instant of the report.
        user: The user that it concerns; empty for all.
        operates: Whether the person may read about firings.
    """

    since: str
    user: str
    operates: bool

    def of_all(self, name: str) -> str:
        """Return the page of what a number counts, of all rules and days."""
        return self._changes(name)

    def of_rule(self, rule: str) -> CountLink:
        """Return the links of the numbers of a rule."""
        return lambda name: self._changes(name, rule=rule)

    def of_user(self, user: str) -> CountLink:
        """Return the links of the numbers of a user."""
        return lambda name: self._changes(name, user=user)

    def of_day(self, day: Counts) -> CountLink:
        """Return the links of the numbers of a day in UTC, or of several days."""
        first, last = (date.fromisoformat(day.get(name, day["day"])) for name in ("day", "last"))
        since = max(_start_of(first), datetime.fromisoformat(self.since)).isoformat()
        until = _start_of(last + timedelta(days=1)).isoformat()
        return lambda name: self._changes(name, since=since, until=until)

    def of_firing(self, batch: Counts) -> CountLink:
        """Return the links of the numbers of a firing: its page lists all that it changed."""
        return lambda _: self.firing(batch)

    def day(self, day: Counts) -> str:
        """Return the page of all changes of a day, or of several days."""
        return self.of_day(day)("")

    def firing(self, batch: Counts) -> str:
        """Return the page of a firing; empty for a person who may not read about firings."""
        return link("firing", id=batch["firing_id"]) if self.operates else ""

    def rule(self, rule: str) -> str:
        """Return the page of a rule; empty for edits, and for a person who may not see rules."""
        return link("rule", rule=rule) if self.operates and rule[:1] != "@" else ""

    def _changes(self, name: str, **fields: str) -> str:
        """Return the page of what a number counts."""
        return link("changes", **{"since": self.since, "user": self.user, **fields}, counted=name)


def _start_of(day: date) -> datetime:
    return datetime.combine(day, time(), UTC)


async def show_today(visit: Visit) -> Shown:
    """Show the report of the last day, or of more days."""
    days = max(1, min(visit.number("days", 1), MOST_DAYS))
    user, own, operates = visit.fields.get("user"), visit.caller.user, visit.may(Right.OPERATE)
    if not (user or own or operates):
        return Redirect(link("users"))  # only operators see the report of all users
    report = await visit.ask("report", days=days, user=user, limit=_LISTED)
    pictured = report
    # The report of one user reads all rows of its time, so it stays as short as it was asked.
    if days < _PICTURE_DAYS and user is None and own is None:
        pictured = await visit.ask("report", days=_PICTURE_DAYS, limit=1)
    values = {
        "days": days,
        "most_days": MOST_DAYS,
        "user": user or own,
        "own_user": own,
        "waiting": await _find_waiting(visit) if operates and user is None else None,
        "read": await visit.ask("rules", instants=1) if operates and user is None else None,
        **_lay_out(report, sum_days(pictured), user or own or "", operates=operates),
    }
    return View("today.html", "Today" if days == 1 else f"The last {days} days", values)


def _lay_out(report: Report, pictured: Report, user: str, *, operates: bool) -> dict[str, Any]:
    """Return a report with its pictures and links.

    Args:
        report: What the page counts.
        pictured: What the pictures of the days show.
        user: The user that both concern; empty for all.
        operates: Whether the person may read about firings.
    """
    links = ReportLinks(report["since"], user, operates)
    pictured_links = ReportLinks(pictured["since"], user, operates)
    return {
        "report": report,
        "links": links,
        "largest": draw_largest(report, links.firing),
        "pictured": pictured,
        "pictured_links": pictured_links,
        "pictures": draw_days(pictured, pictured_links.day),
        "growth": growth_of(pictured),
    }


async def _find_waiting(visit: Visit) -> dict[str, Any]:
    """Return what waits for a person, and the rules that are late, the latest first."""
    held = (await visit.ask("held"))["held"]
    health = await visit.served.health()
    statuses = [rule.status for rule in health.rules]
    late = [status for status in statuses if status.late_seconds > 0]
    return {
        "held": [one for one in held if not one["approved"]],
        "quarantined": health.quarantined,
        "late": sorted(late, key=lambda status: -status.late_seconds),
        "pending": sum(status.pending or 0 for status in statuses),
    }


COUNTED = (*ROWS, "quarantined", "marked", "unmarked")
"""The numbers of a report."""

_PAGE_ROWS = 100
_MOST_READS = 20
"""A page asks for the rows of firings at most so often; the next page goes on."""

_DAY, _HOUR, _MINUTE = timedelta(days=1), timedelta(hours=1), timedelta(minutes=1)
_LABELS = {_DAY: "%Y-%m-%d", _HOUR: "%Y-%m-%d %H:%M", _MINUTE: "%Y-%m-%d %H:%M"}
"""The lengths of the parts of a time, the longest first, and how a part is called."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class _Asked:
    """What the fields of the page ask for."""

    since: datetime
    until: datetime
    counted: str | None
    rule: str | None
    user: str | None

    @property
    def names(self) -> Sequence[str]:
        """The numbers whose rows are listed."""
        return ROWS if self.counted is None else (self.counted,)

    def covers(self, batch: Counts) -> bool:
        """Return whether a batch is of the time and the rule that are asked for."""
        at = datetime.fromisoformat(batch["at"])
        return self.since <= at < self.until and self.rule in (None, batch["rule_id"])

    def counts_in(self, batch: Counts) -> bool:
        """Return whether a batch has changes that are asked for."""
        return any(batch[name] for name in self.names)

    def includes(self, row: Mapping[str, Any]) -> bool:
        """Return whether a row of a firing is asked for."""
        return name_of_change(row["kind"], marks=row["fact_id"].startswith(MARK_IDS)) in self.names


@dataclass(slots=True)
class _Found:
    """The rows of a page.

    Attributes:
        firings: Batches, each with its rows.
        next: The firing, and the number of its row, after which the next page goes on.
    """

    firings: list[tuple[Counts, list[Mapping[str, Any]]]] = field(default_factory=list)
    next: tuple[str, int] | None = None

    def add(self, batch: Counts, rows: Sequence[Mapping[str, Any]]) -> None:
        """Add rows of a batch, of which there may be some already."""
        if self.firings and self.firings[-1][0] is batch:
            self.firings[-1][1].extend(rows)
        elif rows:
            self.firings.append((batch, [*rows]))


async def show_changed(visit: Visit) -> Shown:
    """Show the changes of a time, the newest firing first."""
    now = visit.served.clock.now()
    asked = _read_fields(visit, now)
    report = await _read_report(visit, asked, now)
    covered = [batch for batch in report["largest"] if asked.covers(batch)]
    covered.sort(key=lambda batch: (batch["at"], batch["firing_id"]), reverse=True)
    batches = [*filter(asked.counts_in, covered)]
    found = await _read_rows(visit, asked, batches)
    given = {name: visit.fields.get(name) for name in ("since", "until", "counted", "rule", "user")}
    cut = len(report["largest"]) == MOST
    values = {
        "asked": asked,
        "counts": {
            name: sum(batch[name] for batch in covered)
            for name in (ROWS if asked.counted in ROWS else asked.names)
        },
        "batches": len(batches),
        "most": MOST if cut else None,
        "parts_of_time": _split(asked, now, given) if cut else [],
        "firings": found.firings,
        "next": found.next and link("changes", **given, firing=found.next[0], after=found.next[1]),
        "operates": visit.may(Right.OPERATE),
        "links": {name: link("changes", **{**given, "counted": name}) for name in COUNTED},
    }
    return View("changed.html", "Changes", values)


def _read_fields(visit: Visit, now: datetime) -> _Asked:
    counted = visit.fields.get("counted")
    if counted is not None and counted not in COUNTED:
        raise UsageError(f"counted: {counted[:40]!r} is none of {', '.join(COUNTED)}")
    return _Asked(
        since=read_instant("since", visit.fields.get("since")) or now - timedelta(days=1),
        until=read_instant("until", visit.fields.get("until")) or now + timedelta(seconds=1),
        counted=counted,
        rule=visit.fields.get("rule"),
        user=visit.fields.get("user"),
    )


async def _read_report(visit: Visit, asked: _Asked, now: datetime) -> Report:
    """Return a report whose largest batches are those of the time, if it has not too many."""
    wanted = {
        "user": asked.user,
        "limit": MOST,
        "largest_by": "facts" if asked.counted in (None, *ROWS) else asked.counted,
    }
    exactly = {
        **wanted,
        "since": asked.since.isoformat(),
        "until": asked.until.isoformat() if asked.until < now else None,
    }
    days = max(1, math.ceil((now - asked.since) / _DAY))
    is_of_one = (asked.user or visit.caller.user) is not None
    is_short = asked.until - asked.since <= _DAY
    if is_of_one or days > MOST_DAYS or (is_short and asked.until < now):
        return await visit.ask("report", **exactly)
    # The daemon keeps the sums of the last days, so it need not read the rows of all of them.
    report = await visit.ask("report", **wanted, days=days)
    if is_short and len(report["largest"]) == MOST:
        return await visit.ask("report", **exactly)
    return report


def _split(asked: _Asked, now: datetime, given: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return the parts of a time, the newest first: how each is called, and its page."""
    until = min(asked.until, now)
    size = next((size for size in _LABELS if until - asked.since > size), None)
    if size is None:
        return []
    first, last = ((at - _EPOCH) // size for at in (asked.since, until - timedelta.resolution))
    starts = [_EPOCH + number * size for number in range(last, first - 1, -1)]
    return [
        (
            f"{start:{_LABELS[size]}}",
            link(
                "changes",
                **{
                    **given,
                    "since": max(start, asked.since).isoformat(),
                    "until": min(start + size, asked.until).isoformat(),
                },
            ),
        )
        for start in starts
    ]


async def _read_rows(visit: Visit, asked: _Asked, batches: Sequence[Counts]) -> _Found:
    """Read the rows of the batches, from the place where the page before ended."""
    ids = [batch["firing_id"] for batch in batches]
    first, after = visit.fields.get("firing"), visit.number("after", 0)
    place, after = (ids.index(first), after) if first in ids else (0, 0)
    found, left = _Found(), _PAGE_ROWS
    for _ in range(_MOST_READS):
        if place == len(batches) or not left:
            break
        page = await visit.ask(
            "deltas", firing=ids[place], user=asked.user, after=after, limit=MOST
        )
        wanted = [row for row in page["changes"] if asked.includes(row)]
        found.add(batches[place], wanted[:left])
        if len(wanted) > left:
            after = wanted[left - 1]["seq"]
        else:
            place, after = (place, page["last"]) if page["more"] else (place + 1, 0)
        left -= min(left, len(wanted))
    if place < len(batches):
        found.next = (ids[place], after)
    await _describe(visit, found)
    return found


async def _describe(visit: Visit, found: _Found) -> None:
    """Add to each row what its facts say, and where its episode is in the quarantine."""
    rows = [row for _, each in found.firings for row in each]
    described = iter(await _add_quarantine(visit, await add_words(visit, rows)))
    found.firings = [(batch, [*islice(described, len(each))]) for batch, each in found.firings]


async def _add_quarantine(
    visit: Visit, rows: Sequence[Mapping[str, Any]]
) -> list[Mapping[str, Any]]:
    """Add ``quarantine`` to the rows of episodes that still are in quarantine: their page."""
    if not visit.may(Right.OPERATE):
        return [*rows]
    quarantined = [row for row in rows if row["kind"] == "quarantine"]
    held: set[tuple[str, str]] = set()
    for rule in {row["rule_id"] for row in quarantined}:
        ids = {id for row in quarantined if row["rule_id"] == rule for id in row["episode_ids"]}
        page = await visit.ask("quarantined", rule=rule, episodes=[*ids][:MOST], limit=MOST)
        held |= {(rule, entry["episode_id"]) for entry in page["entries"]}
    return [_with_quarantine(row, held) for row in rows]


def _with_quarantine(row: Mapping[str, Any], held: set[tuple[str, str]]) -> Mapping[str, Any]:
    if row["kind"] != "quarantine":
        return row
    for id in row["episode_ids"]:
        if (row["rule_id"], id) in held:
            return {**row, "quarantine": link("quarantine", rule=row["rule_id"], episode=id)}
    return row
