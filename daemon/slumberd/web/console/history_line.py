"""Lay out the history of a key as a line: which value was current when. The template draws it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

WIDTH = 720
"""The width of the picture, in its own units; a browser scales it."""

MOST_LANES = 12
"""At most so many values are drawn, the latest ones."""

_LEFT, _RIGHT, _TOP = 180, 24, 14
_LANE, _AXIS = 30, 26
_TICKS = 2
_LEAST_WIDTH = 2.0
_NAME_CHARACTERS = 26
_FORMS = (
    (timedelta(hours=1), "%Y-%m-%d %H:%M:%S"),
    (timedelta(days=3), "%Y-%m-%d %H:%M"),
    (timedelta.max, "%Y-%m-%d"),
)
"""The format of the instants of an axis, for an axis that is shorter than each duration."""


@dataclass(frozen=True, slots=True)
class CurrentPeriod:
    """A period in which a value was current.

    Attributes:
        value: The value in words; spans of the same value lie in one lane.
        begins_at: Its beginning.
        ends_at: Its end; None when it goes on.
    """

    value: str
    begins_at: datetime
    ends_at: datetime | None


@dataclass(frozen=True, slots=True)
class Lane:
    """The line of one value.

    Attributes:
        name: The value, cut to fit the space.
        value: The whole value.
        y: Its height.
    """

    name: str
    value: str
    y: int


@dataclass(frozen=True, slots=True)
class Stroke:
    """A part of the line.

    Attributes:
        x1: Its left end.
        x2: Its right end.
        y: Its height.
        open: Whether it goes on.
        says: The span in words.
    """

    x1: float
    x2: float
    y: int
    open: bool
    says: str


@dataclass(frozen=True, slots=True)
class Replacement:
    """Where one value replaces another: a vertical line from the height of one to the other."""

    x: float
    y1: int
    y2: int


@dataclass(frozen=True, slots=True)
class Tick:
    """An instant of the axis, with its label, which lies at `anchor` of `x`."""

    x: float
    label: str
    anchor: str


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryLine:
    """The picture of a history, ready to be drawn.

    Attributes:
        id: Its name, unique in its page.
        title: What it shows.
        description: What a person sees in it, in a sentence.
        height: Its height; the width is `WIDTH`.
        bottom: The height of its axis.
        left: The left end of its axis.
        right: The right end of its axis.
        lanes: The values, in the order in which they were current first.
        strokes: The parts of the line.
        turns: Where values replace each other.
        ticks: The labels of the axis.
        left_out: How many earlier values are not drawn.
    """

    id: str
    title: str
    description: str
    height: int
    bottom: int
    left: int
    right: int
    lanes: Sequence[Lane]
    strokes: Sequence[Stroke]
    turns: Sequence[Replacement]
    ticks: Sequence[Tick]
    left_out: int


def draw_history(id: str, title: str, spans: Sequence[CurrentPeriod], now: datetime) -> HistoryLine:
    """Return the picture of a history.

    Args:
        id: The name of the picture, unique in its page.
        title: What it shows.
        spans: At least one span, the earliest first.
        now: The instant at which spans without an end end.
    """
    shown, left_out = _latest_values(spans)
    axis = _Axis(shown, now)
    values = [*dict.fromkeys(span.value for span in shown)]
    height_of = {value: _TOP + _LANE // 2 + _LANE * row for row, value in enumerate(values)}
    bottom = _TOP + _LANE * len(values)
    return HistoryLine(
        id=id,
        title=title,
        description=_describe(shown),
        height=bottom + _AXIS,
        bottom=bottom,
        left=_LEFT,
        right=WIDTH - _RIGHT,
        lanes=[Lane(_shorten(value), value, height_of[value]) for value in values],
        strokes=[axis.stroke(span, height_of[span.value]) for span in shown],
        turns=_find_turns(shown, height_of, axis),
        ticks=axis.ticks(),
        left_out=left_out,
    )


class _Axis:
    """The axis of time: it goes from the first beginning to now, or to the last instant."""

    def __init__(self, spans: Sequence[CurrentPeriod], now: datetime) -> None:
        self.now = now
        ends = [span.ends_at or span.begins_at for span in spans]
        self._low = min(span.begins_at for span in spans)
        high = max(now, *ends) if any(span.ends_at is None for span in spans) else max(ends)
        self._high = max(high, self._low + timedelta(seconds=1))

    def x(self, at: datetime) -> float:
        """Return where an instant lies."""
        part = (at - self._low) / (self._high - self._low)
        return round(_LEFT + part * (WIDTH - _RIGHT - _LEFT), 1)

    def stroke(self, span: CurrentPeriod, y: int) -> Stroke:
        """Return the line of a span; it is at least as wide as a person can see."""
        x1, x2 = self.x(span.begins_at), self.x(span.ends_at or self._high)
        x2 = max(x2, x1 + _LEAST_WIDTH)
        return Stroke(x1, round(x2, 1), y, span.ends_at is None, _say(span))

    def ticks(self) -> list[Tick]:
        """Return the first instant, the last one, and some between them."""
        length = self._high - self._low
        form = next(form for longest, form in _FORMS if length < longest)
        found = []
        for number in range(_TICKS + 1):
            at = self._low + length * number / _TICKS
            anchor = "start" if number == 0 else "end" if number == _TICKS else "middle"
            found.append(Tick(self.x(at), f"{at.astimezone(UTC):{form}}", anchor))
        return found


def _latest_values(spans: Sequence[CurrentPeriod]) -> tuple[list[CurrentPeriod], int]:
    """Return the spans of the values that were current last, and how many values are left out."""
    latest = [*dict.fromkeys(span.value for span in reversed(spans))]
    kept = {*latest[:MOST_LANES]}
    return [span for span in spans if span.value in kept], max(0, len(latest) - MOST_LANES)


def _find_turns(
    spans: Sequence[CurrentPeriod], height_of: dict[str, int], axis: _Axis
) -> list[Replacement]:
    """Return a turn for each value that begins where exactly one other value ends."""
    turns = []
    for span in spans:
        before = {one.value for one in spans if one.ends_at == span.begins_at} - {span.value}
        if len(before) == 1:
            y1, y2 = height_of[before.pop()], height_of[span.value]
            turns.append(Replacement(axis.x(span.begins_at), y1, y2))
    return turns


def _describe(spans: Sequence[CurrentPeriod]) -> str:
    current = [span.value for span in spans if span.ends_at is None]
    count = len({span.value for span in spans})
    values = "1 value" if count == 1 else f"{count} values"
    ends = f"current is {', '.join(map(_shorten, current))}" if current else "none is current"
    return f"{values} since {spans[0].begins_at.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC; {ends}."


def _say(span: CurrentPeriod) -> str:
    begin = f"{span.begins_at.astimezone(UTC):%Y-%m-%d %H:%M:%S}"
    end = "now" if span.ends_at is None else f"{span.ends_at.astimezone(UTC):%Y-%m-%d %H:%M:%S}"
    return f"{_shorten(span.value)}: from {begin} until {end}"


def _shorten(value: str) -> str:
    return value if len(value) <= _NAME_CHARACTERS else f"{value[: _NAME_CHARACTERS - 1]}…"
