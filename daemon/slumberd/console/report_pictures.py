"""Make the pictures of a report: of its days, and of its largest changes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import date
from typing import Any

from slumberd.console.pictures import (
    Column,
    Picture,
    accumulate_growth,
    draw_bars,
    draw_line,
    draw_stacks,
)

ROWS = ("learned", "changed", "forgotten")
"""The numbers of facts that the pictures show."""

Report = Mapping[str, Any]
"""An answer of the operation ``report``."""

Address = Callable[[str], str]
"""Returns the page of a day or of a firing; an empty text where there is none."""


def no_page(_: str) -> str:
    """Return no address, for a file that leads nowhere."""
    return ""


def draw_days(report: Report, page_of: Address = no_page) -> list[Picture]:
    """Return the pictures of the days: their changes, and the growth of the facts.

    Args:
        report: The report.
        page_of: Returns the page of a day.
    """
    days = report["days"]
    changes = [_column(day["day"], _label(day["day"]), day, page_of) for day in days]
    growth = [
        Column(name=day["day"], label=_label(day["day"]), values=[more])
        for day, more in zip(days, growth_of(report), strict=True)
    ]
    return [
        draw_stacks("days", "Changes of facts by day", ROWS, changes),
        draw_line("growth", "Growth: facts learned less facts forgotten", growth),
    ]


def draw_largest(report: Report, page_of: Address = no_page) -> Picture:
    """Return the picture of the largest changes.

    Args:
        report: The report.
        page_of: Returns the page of a firing.
    """
    columns = [_column(one["firing_id"], "", one, page_of) for one in report["largest"]]
    return draw_bars("largest", "Largest changes", ROWS, columns)


def growth_of(report: Report) -> list[int]:
    """Return how many more facts there are after each day than before the first one."""
    return accumulate_growth([(day["learned"], day["forgotten"]) for day in report["days"]])


def _column(name: str, label: str, counts: Mapping[str, int], page_of: Address) -> Column:
    values: Sequence[int] = [counts[row] for row in ROWS]
    return Column(name=name, label=label, values=values, href=page_of(name))


def _label(day: str) -> str:
    """Return a day without its year."""
    return f"{date.fromisoformat(day):%-d %b}"
