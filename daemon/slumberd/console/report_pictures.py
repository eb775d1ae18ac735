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

MOST_COLUMNS = 100
"""A picture shows at most so many days, or parts of a longer time."""

_SIZES = (1, 7, 30, 365)

Report = Mapping[str, Any]
"""An answer of the operation ``report``."""

Counts = Mapping[str, Any]
"""The numbers of a day, of several days, or of a batch, as a report has them."""

Address = Callable[[Counts], str]
"""Returns the page of what numbers count; an empty text where there is none."""


def no_page(_: Counts) -> str:
    """Return no address, for a file without links."""
    return ""


def draw_days(report: Report, page_of: Address = no_page) -> list[Picture]:
    """Return the pictures of the days: their changes, and the growth of the facts.

    Args:
        report: The report.
        page_of: Returns the page of a day.
    """
    days = report["days"]
    changes = [_column(name_of(day), _label_of(day), day, page_of) for day in days]
    growth = [
        Column(name=name_of(day), label=_label_of(day), values=[more])
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


def sum_days(report: Report) -> Report:
    """Return a report whose days are few enough for a picture.

    Of more days, an entry sums up 7, 30 or 365 of them. Its ``day`` is the first of them, and its
    ``last`` the last.
    """
    days = report["days"]
    size = next((size for size in _SIZES if len(days) <= size * MOST_COLUMNS), _SIZES[-1])
    if size == 1:
        return report
    groups = [days[start : start + size] for start in range(0, len(days), size)]
    return {**report, "days": [_sum_group(group) for group in groups]}


def _sum_group(days: Sequence[Counts]) -> Counts:
    sums = {name: sum(day[name] for day in days) for name in days[0] if name != "day"}
    return {"day": days[0]["day"], "last": days[-1]["day"], **sums}


def name_of(day: Counts) -> str:
    """Return the day that numbers are of, or the first and the last of several."""
    first, last = day["day"], day.get("last", day["day"])
    return first if first == last else f"{first} to {last}"


def growth_of(report: Report) -> list[int]:
    """Return how many more facts there are after each day than before the first one."""
    return accumulate_growth([(day["learned"], day["forgotten"]) for day in report["days"]])


def _column(name: str, label: str, counts: Counts, page_of: Address) -> Column:
    values: Sequence[int] = [counts[row] for row in ROWS]
    return Column(
        name=name, label=label, values=values, href=page_of(counts) if any(values) else ""
    )


def _label_of(day: Counts) -> str:
    """Return the first day without its year."""
    return f"{date.fromisoformat(day['day']):%-d %b}"
