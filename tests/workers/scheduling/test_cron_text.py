"""The next instants of a cadence, with notes on daylight saving changes."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slumberd.workers.scheduling import cron
from slumberd.workers.scheduling.cron_text import ClockChange, Note, changes, timetable

pytestmark = pytest.mark.unit

DAY = timedelta(days=1)
HOUR = timedelta(hours=1)
ZONES = [
    "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Africa/Casablanca",
    "America/Havana", "Asia/Beirut", "UTC",
]  # fmt: skip


def _notes(expression: str, timezone: str, after: str, most: int) -> list[str]:
    start = datetime.fromisoformat(after).replace(tzinfo=UTC)
    table = timetable(expression, timezone, after=start, most=most)
    return [note.words() for note in table.notes]


def test_instants_are_in_local_time() -> None:
    after = datetime(2026, 3, 27, 12, tzinfo=UTC)

    table = timetable("30 2 * * *", "Europe/Berlin", after=after, most=3)

    assert [at.isoformat() for at in table.instants] == [
        "2026-03-28T02:30:00+01:00",
        "2026-03-29T03:00:00+02:00",
        "2026-03-30T02:30:00+02:00",
    ]


@pytest.mark.parametrize(
    ("expression", "timezone", "after", "most", "notes"),
    [
        pytest.param(
            "30 2 * * *", "Europe/Berlin", "2026-03-27", 5,
            ["2026-03-29 02:00 the clock goes forward to 03:00;"
             " 02:30 does not exist then: fires once, at 03:00"],
            id="skipped, fixed time",
        ),
        pytest.param(
            "*/30 2 * * *", "Europe/Berlin", "2026-03-27", 6,
            ["2026-03-29 02:00 the clock goes forward to 03:00;"
             " 02:00 and 02:30 do not exist then: skipped"],
            id="skipped, every half hour",
        ),
        pytest.param(
            "30 2 * * *", "Europe/Berlin", "2026-10-24", 2,
            ["2026-10-25 03:00 the clock goes back to 02:00;"
             " 02:30 comes twice: fires the first time only"],
            id="repeated, and the last instant shown",
        ),
        pytest.param(
            "*/20 2 * * *", "Europe/Berlin", "2026-10-24T12:00", 9,
            ["2026-10-25 03:00 the clock goes back to 02:00;"
             " 02:00, 02:20 and 02:40 come twice: fires both times"],
            id="repeated, every twenty minutes",
        ),
        pytest.param(
            "* 2 * * *", "Europe/Berlin", "2026-10-24T12:00", 9,
            ["2026-10-25 03:00 the clock goes back to 02:00;"
             " 02:00 and 59 more up to 02:59 come twice: fires both times"],
            id="many times",
        ),
        pytest.param(
            "0 2-3 * * *", "Europe/Berlin", "2026-03-28T12:00", 5,
            ["2026-03-29 02:00 the clock goes forward to 03:00;"
             " 02:00 does not exist then: fires once, at 03:00"],
            id="skipped, beside a time that exists",
        ),
        pytest.param(
            "0 1-3 * * *", "Europe/Berlin", "2026-10-24T12:00", 5,
            ["2026-10-25 03:00 the clock goes back to 02:00;"
             " 02:00 comes twice: fires the first time only"],
            id="repeated, between two single times",
        ),
        pytest.param(
            "15 2 * * *", "Australia/Lord_Howe", "2026-10-02", 5,
            ["2026-10-04 02:00 the clock goes forward to 02:30;"
             " 02:15 does not exist then: fires once, at 02:30"],
            id="half an hour",
        ),
        pytest.param(
            "30 23 * * *", "Asia/Beirut", "2026-10-24", 5,
            ["2026-10-25 00:00 the clock goes back to 2026-10-24 23:00;"
             " 23:30 comes twice: fires the first time only"],
            id="back to the day before",
        ),
        pytest.param(
            "0 12 * * *", "Europe/Berlin", "2026-03-27", 5,
            ["2026-03-29 02:00 the clock goes forward to 03:00; no instant is affected"],
            id="next change",
        ),
        pytest.param("0 12 * * *", "Europe/Berlin", "2026-03-27", 1, [], id="change later"),
        pytest.param("30 2 * * *", "UTC", "2026-01-01", 100, [], id="no changes"),
    ],
)  # fmt: skip
def test_note_describes_the_effect_of_a_clock_change(
    expression: str, timezone: str, after: str, most: int, notes: list[str]
) -> None:
    assert _notes(expression, timezone, after, most) == notes


@pytest.mark.parametrize(
    ("minutes", "words"),
    [
        ([-60], "fires once in all"),
        ([-60, -30], "fires the first time only"),
        ([-60, 30], "fires 2 times in all"),
        ([-60, -30, 0, 30], "fires both times"),
    ],
)
def test_note_on_repeated_times_says_which_of_them_fire(minutes: list[int], words: str) -> None:
    change = ClockChange(datetime(2026, 10, 25, 1, tzinfo=UTC), 2 * HOUR, HOUR)
    times = [datetime(2026, 10, 25, 2, minute, tzinfo=UTC) for minute in (0, 30)]

    note = Note(change, times, [change.at + timedelta(minutes=late) for late in minutes])

    assert note.words().endswith(f"02:00 and 02:30 come twice: {words}")


def test_notes_list_the_next_change_and_those_with_an_effect() -> None:
    notes = _notes("30 2 29 3 *", "Europe/Berlin", "2026-04-01", 12)

    assert notes == [
        "2026-10-25 03:00 the clock goes back to 02:00; no instant is affected",
        "2037-03-29 02:00 the clock goes forward to 03:00;"
        " 02:30 does not exist then: fires once, at 03:00",
    ]


def test_notes_of_a_rare_expression_cover_centuries() -> None:
    table = timetable(
        "0 0 29 2 *", "Europe/Berlin", after=datetime(2026, 1, 1, tzinfo=UTC), most=20
    )

    assert len(table.instants) == 20
    assert len(table.notes) == 1


@pytest.mark.slow
@pytest.mark.parametrize("zone", ZONES)
def test_changes_equal_those_of_a_search_by_half_hours(zone: str) -> None:
    clock, start = ZoneInfo(zone), datetime(2026, 1, 1, tzinfo=UTC)
    halves = [start + n * timedelta(minutes=30) for n in range(365 * 48)]
    offsets = [at.astimezone(clock).utcoffset() for at in halves]

    found = list(changes(clock, start, halves[-1]))

    seen = zip(halves[1:], offsets, offsets[1:], strict=False)
    assert found == [change for change in seen if change[1] != change[2]]


def _count_occurrences(wall: datetime, zone: ZoneInfo) -> int:
    """Return how often a local time occurs on a day."""
    instants = {wall.replace(tzinfo=zone, fold=fold).astimezone(UTC) for fold in (0, 1)}
    return sum(at.astimezone(zone).replace(tzinfo=None) == wall for at in instants)


def _days(first: date, last: date) -> list[date]:
    return [first + n * DAY for n in range((last - first).days + 1)]


@pytest.mark.slow
@settings(max_examples=40)
@given(
    zone=st.sampled_from(ZONES),
    hour=st.sampled_from([0, 1, 2, 3, 23]),
    minutes=st.sets(st.sampled_from([0, 15, 30, 45, 59]), min_size=1),
    after=st.datetimes(datetime(2024, 1, 1), datetime(2027, 12, 31), timezones=st.just(UTC)),  # noqa: DTZ001 - bounds are naive
    most=st.integers(1, 60),
)
def test_notes_list_exactly_the_skipped_and_repeated_times(
    zone: str, hour: int, minutes: set[int], after: datetime, most: int
) -> None:
    expression = f"{','.join(map(str, sorted(minutes)))} {hour} * * *"

    table = timetable(expression, zone, after=after, most=most)

    clock, utc = ZoneInfo(zone), [at.astimezone(UTC) for at in table.instants]
    noted = {
        time.replace(tzinfo=None): 0 if note.change.skipped else 2
        for note in table.notes
        for time in note.times
    }
    named = [
        datetime(day.year, day.month, day.day, hour, minute)  # noqa: DTZ001 - of the wall
        for day in _days((after + 2 * DAY).date(), table.instants[-1].date())
        for minute in minutes
    ]
    odd = {wall: count for wall in named if (count := _count_occurrences(wall, clock)) != 1}
    last = table.instants[-1].replace(tzinfo=None)
    assert utc == cron.next_instants(expression, zone, after=after, most=most)
    assert all(_count_occurrences(wall, clock) == count for wall, count in noted.items())
    assert {wall for wall in odd if wall <= last} <= noted.keys()
    for note in table.notes:
        assert note.change.at <= utc[-1] + DAY
        for time in note.times if note.change.skipped else ():
            assert note.fired == [note.change.at], time
