"""The page of what was learned, changed and forgotten, and of what waits for a person."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from typing import Any

from slumberd.console.links import link
from slumberd.console.report_pictures import (
    Counts,
    Report,
    draw_days,
    draw_largest,
    growth_of,
    sum_days,
)
from slumberd.console.visit import Redirect, Shown, View, Visit
from slumberd.operations.caller import Right

MOST_DAYS = 366
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


async def show(visit: Visit) -> Shown:
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
