"""Find the dates that a text names, and write relative ones out. English only."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from slumberd.extraction.normalisers import read_date

MOST_WORDS = 5
"""The most words of a phrase for a date."""

_WORD = re.compile(r"[^\W_][\w.,'-]*|\d+")
_END = ".,'-"
_LATER = 1_000 * 86_400 * 1_000_000
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_RELATIVE = re.compile(
    r"(?:next|last|this|in|to(?:day|night|morrow)|yesterday|(?:the )?day (?:after|before))\b"
    r"|.+ (?:ago|from now|from today)\Z"
)
_BEFORE_DATE = re.compile(
    r"(?:^|\s)(?:on|in|at|by|for|from|since|until|till|to|and)\s*\Z|[(,;]\s*\Z"
)
_MONTH = re.compile(
    r"(?:in |this |next |last )?(?P<name>january|february|march|april|may|june|july|august"
    r"|september|october|november|december)"
)


class DateInText(NamedTuple):
    """A phrase that names a date.

    Attributes:
        start: Where it begins.
        end: Where it ends.
        dates: The dates that it may mean, in ISO 8601: a day, a month, or a year.
    """

    start: int
    end: int
    dates: tuple[str, ...]


def find_dates(text: str, at: int) -> list[DateInText]:
    """Return the phrases of a text that name dates, in order; of two that overlap, the longer.

    Args:
        text: The text.
        at: The instant that relative dates refer to, in microseconds since 1970 UTC.
    """
    words = [(one.start(), one.start() + len(one[0].rstrip(_END))) for one in _WORD.finditer(text)]
    found: list[DateInText] = []
    first = 0
    while first < len(words):
        start = words[first][0]
        for last in range(min(first + MOST_WORDS, len(words)) - 1, first - 1, -1):
            end = words[last][1]
            if dates := _dates_of(text[start:end], at):
                found.append(DateInText(start, end, dates))
                first = last
                break
        first += 1
    return found


def _dates_of(phrase: str, at: int) -> tuple[str, ...]:
    if re.fullmatch(r"\d{4}", phrase):
        return (phrase,)
    if date := read_date(phrase, at):
        return (date,)
    month = _MONTH.fullmatch(phrase.lower())
    return tuple(_months_near(month["name"], at)) if month else ()


def _months_near(name: str, at: int) -> Iterator[str]:
    """Yield the months of a name that are less than a year away."""
    try:
        now = _EPOCH + timedelta(microseconds=at)
    except OverflowError:
        return  # a year beyond 1 to 9999 has no months
    for year in (now.year - 1, now.year, now.year + 1):
        month = read_date(f"{name} {year:04}", at)
        distance = 12 * (year - now.year) + int(month[5:]) - now.month if month else 12
        if month and abs(distance) < 12:
            yield month


def write_dates_out(text: str, at: int) -> str:
    """Return a text with the day, month or year in the place of each relative date.

    A phrase with more than one meaning stays, and so does a name such as ``Next Friday``.

    Args:
        text: The text.
        at: The instant that relative dates refer to, in microseconds since 1970 UTC.
    """
    for one in reversed(find_dates(text, at)):
        phrase = text[one.start : one.end]
        kept = 3 if phrase.startswith("on ") else 0
        if (kept or _RELATIVE.match(phrase)) and _is_relative(phrase, one.dates, at):
            text = text[: one.start + kept] + one.dates[0] + text[one.end :]
    return text


def _is_relative(phrase: str, dates: tuple[str, ...], at: int) -> bool:
    """Return whether a phrase means one date, and another one at another time."""
    return len(dates) == 1 and read_date(phrase, at + _LATER) != dates[0]


def parts_between(text: str, dates: list[DateInText]) -> list[str]:
    """Return what a text says besides some of its dates, without the words that lead to a date."""
    ends = [0, *(one.end for one in dates)]
    starts = [*(one.start for one in dates), len(text)]
    parts = [text[end:start] for end, start in zip(ends, starts, strict=True)]
    led = [_BEFORE_DATE.sub("", part) for part in parts[:-1]]
    return [part for part in (one.strip(" ,;()") for one in (*led, parts[-1])) if part]
