"""Lay out pictures of numbers: which bar, line and label lies where. The templates draw them.

A picture has no color: `console.css` gives colors to its classes, light and dark. Each row of a
stack also has a pattern of its own, so the picture can be read in black and white. At the end are
the pictures of a report: of its days, and of its largest changes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from itertools import accumulate, pairwise
from typing import Any

MOST_ROWS = 3
"""At most so many rows: each has a pattern of its own, solid, hatched or dotted."""

WIDTH = 720
"""The width of every picture, in its own units; a browser scales it."""

_HEIGHT = 220
_LEFT, _RIGHT, _TOP, _BOTTOM = 56, 12, 12, 32
_TICKS = 4
_MOST_LABELS = 12
_GAP = 0.2
_BAR_HEIGHT = 26
_NAME_WIDTH = 220
_NAME_CHARACTERS = 30
_END_CHARACTERS = 10
_NUMBER_WIDTH = 70


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """The numbers at one place of a picture.

    Attributes:
        name: What is counted there, such as a day.
        label: The short text below or beside it; the name when it is empty.
        values: A number for each row of the picture.
        href: The page of what is counted; empty without one.
    """

    name: str
    values: Sequence[int]
    label: str = ""
    href: str = ""


@dataclass(frozen=True, slots=True)
class Box:
    """A rectangle.

    Attributes:
        x: Its left edge.
        y: Its upper edge.
        row: The number of the row that it shows.
    """

    x: float
    y: float
    width: float
    height: float
    row: int = 0


@dataclass(frozen=True, slots=True)
class ColumnMark:
    """What a picture shows of one column.

    Attributes:
        says: The numbers in words.
        area: The part of the picture that belongs to the column.
        boxes: Its bars, the first row first.
        href: The page of what is counted; empty without one.
    """

    says: str
    area: Box
    boxes: Sequence[Box] = ()
    href: str = ""


@dataclass(frozen=True, slots=True)
class Label:
    """A text in a picture.

    Attributes:
        x: Where it is anchored.
        y: Its baseline.
        text: The text; one of other people is escaped where it is drawn.
        anchor: ``start``, ``middle`` or ``end``: which part of it lies at `x`.
    """

    x: float
    y: float
    text: str
    anchor: str = "middle"


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    """A picture of numbers, ready to be drawn.

    Attributes:
        id: Its name, unique in its page.
        title: What it shows.
        description: What a person sees in it, in a sentence.
        height: Its height; the width is `WIDTH`.
        marks: What it shows of each column.
        labels: The texts at its axes.
        grid: The heights of its horizontal lines; a line goes from `left` to the right edge.
        left: The left edge of the drawing.
        right: The right edge of the drawing.
        line: The points of a line, as the attribute ``points`` takes them; empty without a line.
        dots: The points of the line, and the numbers there in words.
        rows: The names of the rows of a stack, for the legend; empty without one.
        is_by_time: Whether its columns follow each other in time, the newest at the right.
    """

    id: str
    title: str
    description: str
    height: int
    marks: Sequence[ColumnMark] = ()
    labels: Sequence[Label] = ()
    grid: Sequence[float] = ()
    left: int = _LEFT
    right: int = WIDTH - _RIGHT
    line: str = ""
    dots: Sequence[tuple[float, float, str]] = ()
    rows: Sequence[str] = ()
    is_by_time: bool = False

    @property
    def has_links(self) -> bool:
        """Whether a part of it is a link."""
        return any(mark.href for mark in self.marks)


def draw_stacks(id: str, title: str, rows: Sequence[str], columns: Sequence[Column]) -> Picture:
    """Return a picture with one stack of bars for each column.

    Args:
        id: Its name, unique in its page.
        title: What it shows.
        rows: The names of the rows, the lowest first; at most `MOST_ROWS`.
        columns: The columns, from left to right.
    """
    most = max((sum(column.values) for column in columns), default=0)
    scale = _Scale(0, most)
    width = _width_of_one(columns)
    marks = []
    for place, column in enumerate(columns):
        left = _LEFT + place * width
        says = f"{column.name}: {_in_words(rows, column.values)}"
        area = Box(round(left, 1), _TOP, round(width, 1), _HEIGHT - _TOP - _BOTTOM)
        boxes = _stack(scale, left + width * _GAP / 2, width * (1 - _GAP), column.values)
        marks.append(ColumnMark(says, area, boxes, column.href))
    sums = [sum(column.values[row] for column in columns) for row in range(len(rows))]
    total = _in_words(rows, sums)
    return Picture(
        id=id,
        title=title,
        description=f"{_span_of(columns)}: {total}; at most {most:,} at one place.",
        height=_HEIGHT,
        marks=marks,
        labels=[*scale.labels(), *_labels_below(columns)],
        grid=scale.grid(),
        rows=rows,
        is_by_time=True,
    )


def draw_line(id: str, title: str, columns: Sequence[Column]) -> Picture:
    """Return a picture with one line, over columns of one number each.

    Args:
        id: Its name, unique in its page.
        title: What it shows.
        columns: The columns, from left to right.
    """
    values = [column.values[0] for column in columns]
    scale = _Scale(min([0, *values]), max([0, *values]))
    width = _width_of_one(columns)
    dots = [
        (round(_LEFT + (place + 0.5) * width, 1), scale.y(value), f"{column.name}: {value:,}")
        for place, (column, value) in enumerate(zip(columns, values, strict=True))
    ]
    return Picture(
        id=id,
        title=title,
        description=(
            f"{_span_of(columns)}: from {values[0]:,} to {values[-1]:,}." if values else "Nothing."
        ),
        height=_HEIGHT,
        labels=[*scale.labels(), *_labels_below(columns)],
        grid=scale.grid(),
        line=" ".join(f"{x:g},{y:g}" for x, y, _ in dots),
        dots=dots,
        is_by_time=True,
    )


def draw_bars(id: str, title: str, rows: Sequence[str], columns: Sequence[Column]) -> Picture:
    """Return a picture with one horizontal bar for each column, in parts.

    Args:
        id: Its name, unique in its page.
        title: What it shows.
        rows: The names of the parts, the left one first; at most `MOST_ROWS`.
        columns: The columns, from top to bottom.
    """
    most = max((sum(column.values) for column in columns), default=0)
    room = WIDTH - _NAME_WIDTH - _NUMBER_WIDTH
    marks, labels = [], []
    for place, column in enumerate(columns):
        top, count = place * _BAR_HEIGHT, sum(column.values)
        marks.append(
            ColumnMark(
                f"{column.name}: {_in_words(rows, column.values)}",
                Box(0, top, WIDTH, _BAR_HEIGHT),
                _lay_in_a_row(column.values, top + 4, room / (most or 1)),
                column.href,
            )
        )
        baseline = top + _BAR_HEIGHT - 9
        labels.append(Label(_NAME_WIDTH - 8, baseline, _cut(column.label or column.name), "end"))
        end = round(_NAME_WIDTH + count * room / (most or 1) + 8, 1)
        labels.append(Label(end, baseline, f"{count:,}", "start"))
    return Picture(
        id=id,
        title=title,
        description=(
            f"The largest is {columns[0].name} with {sum(columns[0].values):,}."
            if columns
            else "Nothing."
        ),
        height=max(1, len(columns)) * _BAR_HEIGHT,
        marks=marks,
        labels=labels,
        rows=rows,
    )


def accumulate_growth(changes: Sequence[tuple[int, int]]) -> list[int]:
    """Return how much there is more after each day than before the first one.

    Args:
        changes: What each day added and removed.
    """
    return [*accumulate(added - removed for added, removed in changes)]


class _Scale:
    """Heights for numbers, and round numbers between the lowest and the highest."""

    def __init__(self, lowest: int, highest: int) -> None:
        step = _round_step(max(1, highest - lowest) / _TICKS)
        self._low = math.floor(lowest / step) * step
        self._high = max(math.ceil(highest / step), self._low // step + 1) * step
        self.ticks = [*range(self._low, self._high + 1, step)]

    def y(self, value: float) -> float:
        """Return the height of a number."""
        room = _HEIGHT - _TOP - _BOTTOM
        return round(_TOP + room * (self._high - value) / (self._high - self._low), 1)

    def labels(self) -> list[Label]:
        """Return the texts at the vertical axis."""
        return [Label(_LEFT - 8, self.y(tick) + 4, f"{tick:,}", "end") for tick in self.ticks]

    def grid(self) -> list[float]:
        """Return the heights of the lines."""
        return [self.y(tick) for tick in self.ticks]


def _round_step(least: float) -> int:
    """Return the smallest of 1, 2, 5, 10, 20, ... that is not below a number."""
    power = 10 ** max(0, math.floor(math.log10(least))) if least > 1 else 1
    return next(int(power * each) for each in (1, 2, 5, 10) if power * each >= least)


def _stack(scale: _Scale, left: float, width: float, values: Sequence[int]) -> list[Box]:
    tops = [scale.y(height) for height in accumulate(values, initial=0)]
    return [
        Box(round(left, 1), upper, round(width, 1), round(lower - upper, 1), row)
        for row, (lower, upper) in enumerate(pairwise(tops))
        if lower > upper
    ]


def _lay_in_a_row(values: Sequence[int], top: int, unit: float) -> list[Box]:
    edges = [_NAME_WIDTH + edge * unit for edge in accumulate(values, initial=0)]
    return [
        Box(round(left, 1), top, round(right - left, 1), _BAR_HEIGHT - 8, row)
        for row, (left, right) in enumerate(pairwise(edges))
        if right > left
    ]


def _width_of_one(columns: Sequence[Column]) -> float:
    return (WIDTH - _LEFT - _RIGHT) / max(1, len(columns))


def _labels_below(columns: Sequence[Column]) -> list[Label]:
    """Return the texts below the columns; of many columns, of some."""
    every = math.ceil(len(columns) / _MOST_LABELS) or 1
    width = _width_of_one(columns)
    return [
        Label(
            round(_LEFT + (place + 0.5) * width, 1),
            _HEIGHT - _BOTTOM + 18,
            columns[place].label or columns[place].name,
        )
        for place in range(0, len(columns), every)
    ]


def _in_words(rows: Sequence[str], values: Sequence[int]) -> str:
    return ", ".join(f"{value:,} {row}" for row, value in zip(rows, values, strict=True))


def _span_of(columns: Sequence[Column]) -> str:
    if not columns:
        return "Nothing"
    first, last = columns[0].name, columns[-1].name
    return first if first == last else f"{first} to {last}"


def _cut(text: str) -> str:
    """Return a text without its middle when it is long: firings of one rule differ at the end."""
    if len(text) <= _NAME_CHARACTERS:
        return text
    return f"{text[: _NAME_CHARACTERS - _END_CHARACTERS - 1]}…{text[-_END_CHARACTERS:]}"


ROWS = ("learned", "changed", "retracted")
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
        draw_line("growth", "Growth: facts learned less facts retracted", growth),
    ]


def draw_largest(report: Report, page_of: Address = no_page) -> Picture:
    """Return the picture of the largest changes.

    Args:
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
    return accumulate_growth([(day["learned"], day["retracted"]) for day in report["days"]])


def _column(name: str, label: str, counts: Counts, page_of: Address) -> Column:
    values: Sequence[int] = [counts[row] for row in ROWS]
    return Column(
        name=name, label=label, values=values, href=page_of(counts) if any(values) else ""
    )


def _label_of(day: Counts) -> str:
    """Return the first day without its year."""
    return f"{date.fromisoformat(day['day']):%-d %b}"
