"""Write a report as one HTML file, which needs no daemon, no other file and no network."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from slumberd.model.health import RuleStatus
from slumberd.web.console.pictures import (
    Column,
    Picture,
    Report,
    draw_bars,
    draw_days,
    draw_largest,
    growth_of,
    sum_days,
)
from slumberd.web.console.rendering import Renderer, read_style

_MINUTE_SECONDS = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportFile:
    """What a file reports.

    Attributes:
        until: The instant of all values.
        report: An answer of the operation ``report``.
        held: The batches that await approval, as the operation ``held`` lists them.
        quarantined: How many episodes are in quarantine, by rule and reason.
        late: The rules that are late, the latest first.
        episodes: How many episodes there are; None when that is not known.
        facts: How many facts are current.
    """

    until: datetime
    report: Report
    held: Sequence[Mapping[str, Any]]
    quarantined: Mapping[tuple[str, str], int]
    late: Sequence[RuleStatus]
    episodes: int | None
    facts: int


def render_report(file: ReportFile) -> str:
    """Return the HTML of a report."""
    report = sum_days(file.report)
    values = {
        "style": read_style(),
        "title": "What slumberd learned",
        "file": file,
        "report": report,
        "growth": growth_of(report),
        "pictures": draw_days(report),
        "largest": draw_largest(report),
        "late": _draw_late(file.late),
        "quarantine": _draw_quarantine(file.quarantined),
    }
    return Renderer({}).render("report_file.html", values)


def _draw_late(late: Sequence[RuleStatus]) -> Picture:
    columns = [
        Column(name=rule.rule_id, values=[round(rule.late_seconds / _MINUTE_SECONDS)])
        for rule in late
    ]
    return draw_bars("late", "Rules that are late, in minutes", ("minutes",), columns)


def _draw_quarantine(quarantined: Mapping[tuple[str, str], int]) -> Picture:
    columns = [
        Column(name=f"{rule}: {reason}", values=[count])
        for (rule, reason), count in sorted(quarantined.items(), key=lambda one: (-one[1], one[0]))
    ]
    title = "Episodes in quarantine, by rule and reason"
    return draw_bars("quarantine", title, ("episodes",), columns)
