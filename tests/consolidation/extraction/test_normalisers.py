"""Numbers and dates are read as independent code writes them."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slumberd.consolidation.extraction.normalisers import (
    NORMALISER_NAMES,
    NormaliserName,
    alias_key,
    normalise,
    read_date,
    read_number,
    replace_alias,
)

pytestmark = pytest.mark.unit


def listed(words: str) -> list[str]:
    return words.split()


SMALL = listed(
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen"
    " sixteen seventeen eighteen nineteen"
)
TENS = listed("- - twenty thirty forty fifty sixty seventy eighty ninety")
MONTHS = listed(
    "January February March April May June July August September October November December"
)
DAYS = listed("Monday Tuesday Wednesday Thursday Friday Saturday Sunday")
INSTANTS = st.datetimes(
    datetime(1900, 1, 1),  # noqa: DTZ001 # hypothesis adds the time zone
    datetime(2200, 1, 1),  # noqa: DTZ001
    timezones=st.just(UTC),
)


def number_in_words(number: int, *, joiner: str = " and ") -> str:
    """Return a number in English words."""
    for scale, word in ((1_000_000, "million"), (1_000, "thousand")):
        if number >= scale:
            count, rest = divmod(number, scale)
            after = f"{joiner if rest < 100 else ' '}{number_in_words(rest, joiner=joiner)}"
            return f"{number_in_words(count, joiner=joiner)} {word}{after if rest else ''}"
    if number >= 100:
        count, rest = divmod(number, 100)
        return f"{SMALL[count]} hundred" + (joiner + number_in_words(rest) if rest else "")
    if number >= 20:
        tens, unit = divmod(number, 10)
        return TENS[tens] + (f"-{SMALL[unit]}" if unit else "")
    return SMALL[number]


def micros(at: datetime) -> int:
    return round((at - datetime(1970, 1, 1, tzinfo=UTC)) / timedelta(microseconds=1))


SUNDAY = datetime(2026, 5, 24, 23, 59, tzinfo=UTC)


@given(st.integers(0, 999_999_999), st.sampled_from([" and ", " "]))
def test_number_in_words_is_read(number: int, joiner: str) -> None:
    assert read_number(number_in_words(number, joiner=joiner)) == number


@given(st.integers(-(10**12), 10**12))
def test_number_in_digits_is_read_with_and_without_separators(number: int) -> None:
    assert read_number(str(number)) == read_number(f"{number:,}") == number


@given(st.integers(0, 10**6), st.integers(0, 99))
def test_decimal_number_is_read(whole: int, part: int) -> None:
    assert read_number(f"{whole}.{part:02}") == float(f"{whole}.{part:02}")


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("a dozen", 12), ("half a dozen", 6), ("a couple of", 2), ("a hundred", 100), ("a", 1),
        ("Twenty One", 21), ("2.0", 2), ("  seven ", 7), ("a thousand", 1000),
        ("one and a half", 1.5), ("+5", 5), ("-3", -3), ("\u0661\u0662.5", 12.5),
    ],
)  # fmt: skip
def test_usual_forms_of_numbers_are_read(text: str, number: float) -> None:
    found = read_number(text)

    assert (found, type(found)) == (number, type(number))


@pytest.mark.parametrize(
    "text",
    [
        "", "many", "six six", "hundred", "twenty eleven", "twelve hundred and", "1.2.3", "1,23",
        "million", "zero million", "five thousand zero", "9" * 16, "\u00b2", "one " * 500, "1e5",
        "two three hundred", "nan", "and", "5 dogs",
    ],
)  # fmt: skip
def test_other_texts_are_no_numbers(text: str) -> None:
    assert read_number(text) is None


ENTRIES = st.text(st.sampled_from("aZ\u00e9\u0301\u4e2d \u20141"), min_size=1, max_size=5)


@given(
    st.lists(ENTRIES.filter(lambda entry: bool(entry.strip())), min_size=1, max_size=5),
    st.sampled_from([" and ", ", and ", " or ", ", ", " as well as ", " & "]),
)
def test_list_in_words_is_read(entries: list[str], last: str) -> None:
    listed = last.join([*filter(None, [", ".join(entries[:-1])]), entries[-1]])

    assert normalise("list", listed, 0) == [" ".join(entry.split()) for entry in entries]


@given(st.dates(date(1000, 1, 1)), st.sampled_from(range(6)), INSTANTS)
def test_absolute_date_is_read(day: date, form: int, at: datetime) -> None:
    ordinal = {1: "st", 2: "nd", 3: "rd"}.get(day.day % 10 if day.day // 10 != 1 else 0, "th")
    month, year = MONTHS[day.month - 1], f"{day.year:04}"
    text = [
        day.isoformat(), f"{day.day} {month} {year}", f"{month} {day.day}{ordinal}, {year}",
        f"the {day.day}{ordinal} of {month.upper()} {year}", f"{month[:3]}. {day.day} {year}",
        f"on {DAYS[day.weekday()]}, {month} {day.day}, {year}",
    ][form]  # fmt: skip

    assert read_date(text, micros(at)) == day.isoformat()


@given(INSTANTS, st.integers(1, 6))
def test_date_without_a_year_is_in_the_year_of_the_instant(at: datetime, month: int) -> None:
    assert read_date(f"{MONTHS[month - 1]} 3rd", micros(at)) == f"{at.year:04}-{month:02}-03"


@given(INSTANTS, st.sampled_from(DAYS))
def test_weekdays_are_found_by_walking_from_the_instant(at: datetime, name: str) -> None:
    def walk(step: int, start: int) -> str:
        day = at.date() + timedelta(days=start)
        while f"{day:%A}" != name:
            day += timedelta(days=step)
        return day.isoformat()

    assert read_date(f"last {name}", micros(at)) == walk(-1, -1)
    assert read_date(f"on {name}", micros(at)) == walk(1, 1)
    assert read_date(f"next {name.lower()}", micros(at)) == walk(1, 1)
    assert read_date(f"this {name}", micros(at)) == walk(1, 0)
    assert read_date(name, micros(at)) == walk(1, 1)


@given(INSTANTS, st.integers(0, 40))
def test_distances_in_days_and_weeks_are_counted(at: datetime, count: int) -> None:
    def day(days: int) -> str:
        return date.fromordinal(at.date().toordinal() + days).isoformat()

    words = number_in_words(count)
    assert read_date(f"in {count} days", micros(at)) == day(count)
    assert read_date(f"{words} days ago", micros(at)) == day(-count)
    assert read_date(f"{words} weeks ago", micros(at)) == day(-7 * count)
    assert read_date(f"{count} weeks from now", micros(at)) == day(7 * count)


@given(INSTANTS, st.integers(0, 30))
def test_distances_in_months_are_found_by_walking(at: datetime, count: int) -> None:
    def walk(step: int) -> str:
        day, left = at.date().replace(day=15), count
        while left:
            before, day = day, day + timedelta(days=step)
            left -= day.month != before.month
        return f"{day:%Y-%m}"

    assert read_date(f"in {count} months", micros(at)) == walk(1)
    assert read_date(f"{count} months ago", micros(at)) == walk(-1)


@pytest.mark.parametrize(
    ("text", "day"),
    [
        ("today", "2026-05-24"), ("Tonight", "2026-05-24"), ("yesterday", "2026-05-23"),
        ("tomorrow", "2026-05-25"), ("the day after tomorrow", "2026-05-26"),
        ("day before yesterday", "2026-05-22"), ("next week", "2026-05-31"),
        ("last week", "2026-05-17"), ("this week", "2026-05-24"), ("last month", "2026-04"),
        ("next month", "2026-06"), ("last year", "2025"), ("next year", "2027"),
        ("two years ago", "2024"), ("May 2025", "2025-05"), ("2025-05", "2025-05"),
        ("a week ago", "2026-05-17"), ("in a couple of days", "2026-05-26"),
        ("this past friday", "2026-05-22"), ("in two weeks", "2026-06-07"),
    ],
)  # fmt: skip
def test_usual_forms_of_dates_are_read(text: str, day: str) -> None:
    assert read_date(text, micros(SUNDAY)) == day


@pytest.mark.parametrize(
    "text",
    [
        "", "soon", "31 February 2026", "February 29, 2025", "2026-13-01", "3 days", "in days",
        "in 2.5 days", "in -3 days", "999999999 years ago", "in 999999999 days", "May", "13:00",
        "some day ago", "x" * 10_000, "2026-00", "the", "on", "in 3 days ago", "\u00b2 May",
    ],
)  # fmt: skip
def test_other_texts_are_no_dates(text: str) -> None:
    assert read_date(text, micros(SUNDAY)) is None


@given(st.sampled_from(NORMALISER_NAMES), st.text(), st.integers(-(10**20), 10**20))
def test_no_text_or_instant_raises(name: NormaliserName, text: str, at: int) -> None:
    normalise(name, text, at)


@given(st.sampled_from(["case", "whitespace"]), st.text())
def test_case_and_white_space_are_normalised_once(name: NormaliserName, text: str) -> None:
    once = normalise(name, text, 0)

    assert isinstance(once, str)
    assert normalise(name, once, 0) == once


@pytest.mark.slow
@given(st.dictionaries(st.text(), st.sampled_from(["Tea", "Milk", "the rest"])), st.text())
def test_alias_is_replaced_once(names: dict[str, str], text: str) -> None:
    final = {alias_key(name) for name in names.values()}
    aliases = {alias_key(a): name for a, name in names.items() if alias_key(a) not in final}

    once = replace_alias(text, aliases)

    assert replace_alias(once, aliases) == once
    assert once == text or alias_key(text) in aliases


def test_alias_is_found_without_case_and_surplus_spaces() -> None:
    assert replace_alias(" Low   PRICED ", {"low priced": "cheap"}) == "cheap"
    assert replace_alias(" Low   PRICED ", {}) == " Low   PRICED "
