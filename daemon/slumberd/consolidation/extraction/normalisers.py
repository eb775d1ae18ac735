"""Bring captured words into one form: case, white space, numbers, dates and aliases. English only.

A normaliser returns None for a text that it does not know. None of them raises.

Also find the dates that a text names, and write relative ones out.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, date, datetime, timedelta
from itertools import takewhile
from typing import Literal, NamedTuple, get_args

Number = int | float
Value = str | int | float
"""What a normaliser returns: a text, or a number."""

NormaliserName = Literal["case", "whitespace", "number", "date", "list"]
"""The names of the normalisers in pattern files."""

NORMALISER_NAMES: tuple[NormaliserName, ...] = get_args(NormaliserName)

MAX_TEXT = 200
"""A longer text is no number and no date."""


def normalise(name: NormaliserName, text: str, at: int) -> Value | list[str] | None:
    """Return a text in the form of a normaliser; None when the normaliser does not know it.

    The form of ``list`` is several texts.

    Args:
        text: The captured words.
        at: The instant that relative dates refer to, in microseconds since 1970 UTC.
    """
    match name:
        case "case":
            return text.casefold()
        case "whitespace":
            return collapse_spaces(text)
        case "number":
            return read_number(text)
        case "date":
            return read_date(text, at)
        case "list":
            return read_list(text)


_BETWEEN = re.compile(
    r"\s*[,;\u3001\uff0c]\s*(?:(?:and|or|as well as|plus|&)(?:\s+|$))?"
    r"|\s+(?:and|or|as well as|plus|&)(?:\s+|$)|^(?:both|either|and|or)\s+",
    re.IGNORECASE,
)
_END_OF_LIST = re.compile(r"\b(?:but|except)\b", re.IGNORECASE)
_DENIED = re.compile(r"(?:not|no|never|without|neither|nor)\b", re.IGNORECASE)
_REST = frozenset({"etc", "etc.", "so on", "so forth", "the like", "others", "more"})


def read_list(text: str) -> list[str]:
    """Return the entries of a list in words, such as ``peanuts, shellfish and eggs``.

    ``but`` ends the list, and so does an entry that begins with a negation: "tea, not coffee".
    ``etc`` is no entry.
    """
    words = _END_OF_LIST.split(collapse_spaces(text), maxsplit=1)[0]
    entries = map(collapse_spaces, _BETWEEN.split(words))
    stated = takewhile(lambda entry: not _DENIED.match(entry), entries)
    return [entry for entry in stated if entry and entry.casefold() not in _REST]


def collapse_spaces(text: str) -> str:
    """Return a text with one space for each run of white space, and none at its ends."""
    return " ".join(text.split())


def alias_key(text: str) -> str:
    """Return the form in which aliases are compared: without case and surplus white space."""
    return collapse_spaces(text).casefold()


def replace_alias(text: str, aliases: Mapping[str, str]) -> str:
    """Return the name that a text is an alias of; a text that is no alias unchanged.

    Args:
        aliases: The name of each alias, by `alias_key`.
    """
    return aliases.get(alias_key(text), text)


def _counted(words: str, start: int = 0) -> dict[str, int]:
    """Return words with their numbers; words that are joined by ``/`` have the same number."""
    numbered = enumerate(words.split(), start)
    return {word: number for number, same in numbered for word in same.split("/")}


_UNITS = _counted(
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen"
    " sixteen seventeen eighteen nineteen"
)
_TENS = {
    word: 10 * number
    for word, number in _counted(
        "twenty thirty forty fifty sixty seventy eighty ninety", start=2
    ).items()
}
_SCALES = {"thousand": 1_000, "million": 1_000_000}
_FIXED: dict[str, Number] = {
    "a": 1, "an": 1, "a couple": 2, "a couple of": 2, "a pair": 2, "a pair of": 2,
    "half a dozen": 6, "a dozen": 12, "dozen": 12, "half": 0.5, "a half": 0.5,
    "one and a half": 1.5, "two and a half": 2.5,
}  # fmt: skip
_DIGITS = re.compile(r"[+-]?(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?")
_MAX_DIGITS = 15


def read_number(text: str) -> Number | None:
    """Return the number that digits or English words mean; None for anything else.

    Words are read up to 999,999,999, digits up to 15 of them. ``2.0`` is the whole number 2.
    """
    words = alias_key(text) if len(text) <= MAX_TEXT else ""
    if words in _FIXED:
        return _FIXED[words]
    if _DIGITS.fullmatch(words) and sum(map(str.isdigit, words)) <= _MAX_DIGITS:
        value = float(words.replace(",", ""))
        return int(value) if value.is_integer() else value
    return _number_in_words(words.replace("-", " ").split())


def _number_in_words(words: list[str]) -> int | None:
    """Return the number that words mean; None when they are no number."""
    total = 0
    for scale in ("million", "thousand"):
        if scale in words:
            place = words.index(scale)
            count = _below_thousand(words[:place])
            if not count:
                return None
            total += count * _SCALES[scale]
            words = words[place + 1 :]
            words = words[1:] if words[:1] == ["and"] else words
            if not words:
                return total
    rest = _below_thousand(words)
    return None if rest is None or (total and not rest) else total + rest


def _below_thousand(words: list[str]) -> int | None:
    match words:
        case [("a" | "an" | "one"), "hundred"]:
            return 100
        case [count, "hundred", *rest] if 0 < _UNITS.get(_one(count), 0) <= 9:
            rest = rest[1:] if rest[:1] == ["and"] else rest
            below = _below_hundred(rest) if rest else 0
            return None if below is None else 100 * _UNITS[_one(count)] + below
        case ["a"]:
            return 1
        case _:
            return _below_hundred(words)


def _one(word: str) -> str:
    return "one" if word == "a" else word


def _below_hundred(words: list[str]) -> int | None:
    match words:
        case [word] if word in _UNITS:
            return _UNITS[word]
        case [word] if word in _TENS:
            return _TENS[word]
        case [tens, unit] if tens in _TENS and 0 < _UNITS.get(unit, 0) <= 9:
            return _TENS[tens] + _UNITS[unit]
        case _:
            return None


_MONTH_WORDS = (
    "january/jan february/feb march/mar april/apr may june/jun july/jul august/aug"
    " september/sep/sept october/oct november/nov december/dec"
)
_WEEKDAY_WORDS = (
    "monday/mon tuesday/tue/tues wednesday/wed thursday/thu/thur/thurs friday/fri saturday/sat"
    " sunday/sun"
)
MONTHS = tuple(words.partition("/")[0] for words in _MONTH_WORDS.split())
WEEKDAYS = tuple(words.partition("/")[0] for words in _WEEKDAY_WORDS.split())
"""The whole names in English, in order, in small letters."""

_MONTHS = _counted(_MONTH_WORDS, start=1)
_WEEKDAYS = _counted(_WEEKDAY_WORDS)
_NEAR_DAYS = {
    "today": 0, "tonight": 0, "this morning": 0, "this afternoon": 0, "this evening": 0,
    "tomorrow": 1, "tomorrow night": 1, "tomorrow morning": 1, "the day after tomorrow": 2,
    "day after tomorrow": 2, "yesterday": -1, "last night": -1, "the day before yesterday": -2,
    "day before yesterday": -2,
}  # fmt: skip
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MONTH = "(?P<month>" + "|".join(sorted(_MONTHS, key=len, reverse=True)) + r")\.?"
_DAY = r"(?P<day>\d{1,2})(?:st|nd|rd|th)?"
_YEAR = r"(?:,? (?P<year>\d{4}))?"
_UNIT = "(?P<unit>day|week|month|year)s?"


def read_date(text: str, at: int) -> str | None:
    """Return a date in ISO 8601; None for a text that is no date.

    A day becomes ``2026-05-03``, a month ``2026-04``, a year ``2026``. ``3 May`` is in the year of
    the instant. ``on Monday`` and ``next Monday`` are the first Monday after the day of the
    instant, ``this Monday`` may be that day, and ``last Monday`` is the last one before it. ``next
    week`` is seven days later, ``next month`` the following month.

    Args:
        text: Words such as ``3 May 2026``, ``May 3rd``, ``yesterday`` or ``two weeks ago``.
        at: The instant of the turn, in microseconds since 1970 UTC. Its date is today.
    """
    words = alias_key(text) if len(text) <= MAX_TEXT else ""
    try:
        today = (_EPOCH + timedelta(microseconds=at)).date()
        readings = (read(words, today) for read in _READERS)
        return next((found for found in readings if found is not None), None)
    except (ValueError, OverflowError):
        return None  # no such day, or a year beyond 1 to 9999


def _read_near_day(words: str, today: date) -> str | None:
    days = _NEAR_DAYS.get(words)
    return None if days is None else _day_after(today, days)


def _read_absolute(words: str, today: date) -> str | None:
    words = _BEFORE_DAY.sub("", words)
    for form in _ABSOLUTE:
        if match := form.fullmatch(words):
            parts = match.groupdict()
            month = parts["month"]
            number = _MONTHS[month] if month in _MONTHS else int(month)
            return date(int(parts["year"] or today.year), number, int(parts["day"])).isoformat()
    return None


_BEFORE_DAY = re.compile(rf"^(?:on )?(?:the )?(?:(?:{'|'.join(_WEEKDAYS)}),? )?(?:the )?")
_ABSOLUTE = (
    re.compile(r"(?P<year>\d{4})-(?P<month>\d{2})-(?P<day>\d{2})"),
    re.compile(rf"{_DAY}(?: of)? {_MONTH}{_YEAR}"),
    re.compile(rf"{_MONTH} (?:the )?{_DAY}{_YEAR}"),
)
_MONTH_OF_YEAR = re.compile(rf"(?:in )?{_MONTH} (?:of )?(?P<year>\d{{4}})")
_ISO_MONTH = re.compile(r"(?P<year>\d{4})-(?P<month>\d{2})")


def _read_month(words: str, today: date) -> str | None:
    match = _MONTH_OF_YEAR.fullmatch(words) or _ISO_MONTH.fullmatch(words)
    if match is None:
        return None
    month = match["month"]
    number = _MONTHS[month] if month in _MONTHS else int(month)
    return _iso_month(date(int(match["year"]), number, 1))


_NAMED_WEEKDAY = re.compile(
    rf"(?:(?P<which>on|this|this coming|next|last|this past) )?(?P<day>{'|'.join(_WEEKDAYS)})"
)


def _read_weekday(words: str, today: date) -> str | None:
    match = _NAMED_WEEKDAY.fullmatch(words)
    if match is None:
        return None
    ahead = (_WEEKDAYS[match["day"]] - today.weekday()) % 7
    if match["which"] in ("last", "this past"):
        return _day_after(today, ahead - 7)
    return _day_after(today, ahead if match["which"] == "this" else ahead or 7)


_NEAR_PERIOD = re.compile(r"(?P<which>last|this|next) (?P<unit>week|month|year)")
_STEPS = {"last": -1, "this": 0, "next": 1}


def _read_near_period(words: str, today: date) -> str | None:
    match = _NEAR_PERIOD.fullmatch(words)
    return None if match is None else _moved(today, _STEPS[match["which"]], match["unit"])


_DISTANCE = re.compile(rf"(?P<in>in )?(?P<count>.+?) {_UNIT}(?P<after> ago| from now| from today)?")


def _read_distance(words: str, today: date) -> str | None:
    match = _DISTANCE.fullmatch(words)
    if match is None or bool(match["in"]) == bool(match["after"]):
        return None
    count = read_number(match["count"])
    if not isinstance(count, int) or count < 0:
        return None
    return _moved(today, -count if match["after"] == " ago" else count, match["unit"])


def _moved(today: date, count: int, unit: str) -> str:
    match unit:
        case "day" | "week":
            return _day_after(today, count * (7 if unit == "week" else 1))
        case "month":
            months = today.year * 12 + today.month - 1 + count
            return _iso_month(date(months // 12, months % 12 + 1, 1))
        case _:
            return f"{date(today.year + count, 1, 1).year:04}"


def _day_after(today: date, days: int) -> str:
    return (today + timedelta(days=days)).isoformat()


def _iso_month(day: date) -> str:
    return day.isoformat()[:7]


_READERS: tuple[Callable[[str, date], str | None], ...] = (
    _read_near_day, _read_absolute, _read_month, _read_weekday, _read_near_period, _read_distance,
)  # fmt: skip


MOST_WORDS = 5
"""The most words of a phrase for a date."""

_WORD = re.compile(r"[^\W_][\w.,'-]*|\d+")
_END = ".,'-"
_LATER = 1_000 * 86_400 * 1_000_000
_RELATIVE = re.compile(
    r"(?:next|last|this|in|to(?:day|night|morrow)|yesterday|(?:the )?day (?:after|before))\b"
    r"|.+ (?:ago|from now|from today)\Z"
)
_BEFORE_DATE = re.compile(
    r"(?:^|\s)(?:on|in|at|by|for|from|since|until|till|to|and)\s*\Z|[(,;]\s*\Z"
)
_NAMED_MONTH = re.compile(
    r"(?:in |this |next |last )?(?P<name>january|february|march|april|may|june|july|august"
    r"|september|october|november|december)"
)


class DateInText(NamedTuple):
    """A phrase that names a date.

    Attributes:
        dates: The dates that it may mean, in ISO 8601: a day, a month, or a year.
    """

    start: int
    end: int
    dates: tuple[str, ...]


def find_dates(text: str, at: int) -> list[DateInText]:
    """Return the phrases of a text that name dates, in order; of two that overlap, the longer.

    Args:
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
    month = _NAMED_MONTH.fullmatch(phrase.lower())
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
