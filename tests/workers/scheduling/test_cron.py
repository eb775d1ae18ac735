"""A cron expression has the right instants in its time zone, or is refused."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

import pytest
from cronsim import CronSim
from hypothesis import given
from hypothesis import strategies as st

from slumberd.workers.scheduling import cron

pytestmark = pytest.mark.unit

NEW_YEAR = datetime(2026, 1, 1, tzinfo=UTC)
DAY = timedelta(days=1)

EXPRESSIONS = [
    "* * * * *",
    "*/7 * * * *",
    "0,30 1-3 * * *",
    "50 2 * * *",
    "*/10 2 * * 0",
    "0 0 * * *",
    "0 3 1 * 1",
    "15 12 29 2 *",
    "@hourly",
    "@monthly",
]
ZONES = [None, "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "America/Havana"]


def instants(expression: str, timezone: str | None, day: str) -> list[str]:
    """Return a UTC day's instants, as ``HH:MM``."""
    midnight = datetime.fromisoformat(day).replace(tzinfo=UTC)
    before = midnight - timedelta(seconds=1)
    found = cron.instants_between(expression, timezone, after=before, until=before + DAY, most=2000)
    return [instant.strftime("%H:%M") for instant in found]


def test_next_instant_is_strictly_after_the_given_one() -> None:
    first = cron.next_instant("0 3 * * *", None, after=NEW_YEAR)

    second = cron.next_instant("0 3 * * *", None, after=first)

    assert first == NEW_YEAR + timedelta(hours=3)
    assert second == first + DAY


def test_next_instant_is_in_utc_for_every_time_zone() -> None:
    instant = cron.next_instant("0 3 * * *", "Asia/Tokyo", after=NEW_YEAR)

    assert instant.tzinfo is UTC
    assert instant.isoformat() == "2026-01-01T18:00:00+00:00"


def test_microseconds_of_the_start_skip_no_instant() -> None:
    just_before = NEW_YEAR + timedelta(hours=3, microseconds=-1)

    assert cron.next_instant("0 3 * * *", None, after=just_before).hour == 3


@pytest.mark.parametrize(
    ("expression", "timezone", "day", "expected"),
    [
        pytest.param("30 2 * * *", "Europe/Berlin", "2026-03-29", ["01:00"], id="skipped hour"),
        pytest.param(
            "0 2-4 * * *", "Europe/Berlin", "2026-03-29", ["01:00", "02:00"], id="once, not twice"
        ),
        pytest.param(
            "0 * * * *",
            "Europe/Berlin",
            "2026-03-29",
            [f"{hour:02}:00" for hour in range(24)],
            id="hourly",
        ),
        pytest.param("30 2 * * *", "America/New_York", "2026-03-08", ["07:00"], id="New York"),
    ],
)
def test_spring_change_skips_an_hour_but_no_instant(
    expression: str, timezone: str, day: str, expected: list[str]
) -> None:
    assert instants(expression, timezone, day) == expected


@pytest.mark.parametrize(
    ("expression", "timezone", "day", "expected"),
    [
        pytest.param("30 2 * * *", "Europe/Berlin", "2026-10-25", ["00:30"], id="once"),
        pytest.param(
            "*/30 2 * * *",
            "Europe/Berlin",
            "2026-10-25",
            ["00:00", "00:30", "01:00", "01:30"],
            id="every half hour fires in both hours",
        ),
        pytest.param("30 1 * * *", "America/New_York", "2026-11-01", ["05:30"], id="New York"),
    ],
)
def test_autumn_change_repeats_an_hour_but_no_instant(
    expression: str, timezone: str, day: str, expected: list[str]
) -> None:
    assert instants(expression, timezone, day) == expected


def test_next_instant_in_the_repeated_hour_is_in_the_future() -> None:
    second_02_45 = datetime(2025, 10, 26, 1, 45, tzinfo=UTC)

    instant = cron.next_instant("50 2 * * *", "Europe/Berlin", after=second_02_45)

    assert instant == datetime(2025, 10, 27, 1, 50, tzinfo=UTC)


def test_latest_instant_is_found_across_the_repeated_hour() -> None:
    second_02_10 = datetime(2025, 10, 26, 1, 10, tzinfo=UTC)

    instant = cron.latest_instant(
        "50 2 * * *", "Europe/Berlin", after=second_02_10 - 3 * DAY, until=second_02_10
    )

    assert instant == datetime(2025, 10, 26, 0, 50, tzinfo=UTC)


@pytest.mark.parametrize(
    ("expression", "days"),
    [
        pytest.param("0 0 13 * 5", [2, 9, 13, 16, 23, 30], id="day of month OR day of week"),
        pytest.param("0 0 1-7 * *", [1, 2, 3, 4, 5, 6, 7], id="only day of month"),
        pytest.param("0 0 */2 * 5", [9, 23], id="a star makes it AND, as in Debian"),
        pytest.param("0 0 * * 0", [4, 11, 18, 25], id="0 is Sunday"),
        pytest.param("0 0 * * 7", [4, 11, 18, 25], id="7 is Sunday too"),
        pytest.param("0 0 * * sun", [4, 11, 18, 25], id="names in any case"),
        pytest.param("0 0 * * 5-7", [2, 3, 4, 9, 10, 11, 16, 17, 18, 23, 24, 25, 30, 31], id="5-7"),
        pytest.param("@weekly", [4, 11, 18, 25], id="weekly"),
        pytest.param("@monthly", [1], id="monthly"),
        pytest.param("@yearly", [1], id="yearly"),
        pytest.param("@annually", [1], id="annually"),
        pytest.param("@daily", list(range(1, 32)), id="daily"),
        pytest.param("@Midnight", list(range(1, 32)), id="midnight"),
    ],
)
def test_days_follow_crontab(expression: str, days: list[int]) -> None:
    before = NEW_YEAR - timedelta(seconds=1)

    found = cron.instants_between(
        expression, None, after=before, until=before + 31 * DAY, most=2000
    )

    assert [instant.day for instant in found] == days


@pytest.mark.parametrize("expression", ["0 3 * * *", " 0  3 * * * ", "0 0 29 2 *", *cron.MACROS])
def test_check_accepts_an_expression_with_instants(expression: str) -> None:
    cron.check(expression, "Europe/Berlin")


@pytest.mark.parametrize(
    ("expression", "timezone", "remedy"),
    [
        pytest.param("* * * * * *", None, "no field for seconds", id="six fields"),
        pytest.param("0 3 * *", None, "has 4 fields; a cron expression has five", id="four fields"),
        pytest.param("", None, "has 0 fields", id="nothing"),
        pytest.param("@reboot", None, "write one of @hourly", id="no such macro"),
        pytest.param("0 0 31 2 *", None, "none of its months has such a day", id="31 February"),
        pytest.param("0 0 31 4,6 *", None, "none of its months", id="31 April or June"),
        pytest.param(
            "0 0 */30 2 1#5", None, "no instant within 50 years", id="never within 50 years"
        ),
        pytest.param("61 * * * *", None, "'61' as its minute; write 0 to 59", id="minute"),
        pytest.param("* 24 * * *", None, "'24' as its hour", id="hour"),
        pytest.param("0 0 32 * *", None, "'32' as its day-of-month", id="day"),
        pytest.param("0 0 * 13 *", None, "'13' as its month", id="month"),
        pytest.param("0 0 * * 8", None, "(0 and 7 are Sunday)", id="day of week"),
        pytest.param("*/0 * * * *", None, "'*/0' as its minute", id="step of 0"),
        pytest.param("1" * 501, None, "at most 500 characters", id="too long"),
        pytest.param("0 3 * * *", "Europe/Berln", "did you mean 'Europe/Berlin'?", id="typo"),
        pytest.param("0 3 * * *", "europe/berlin", "did you mean 'Europe/Berlin'?", id="case"),
        pytest.param("0 3 * * *", "New York", "did you mean", id="city"),
        pytest.param("0 3 * * *", "../etc/passwd", "is not a time zone", id="path"),
        pytest.param("0 3 * * *", "Europe", "is not a time zone", id="directory"),
        pytest.param("0 3 * * *", "a\0b", "is not a time zone", id="null byte"),
        pytest.param("0 3 * * *", "???", "write a name as 'Europe/Berlin'", id="nothing near"),
    ],
)
def test_check_refuses_with_a_remedy(expression: str, timezone: str | None, remedy: str) -> None:
    with pytest.raises(ValueError, match=re.escape(remedy)):
        cron.check(expression, timezone)


def test_instants_between_stops_at_its_limit() -> None:
    found = cron.instants_between(
        "* * * * *", None, after=NEW_YEAR, until=NEW_YEAR + 365 * DAY, most=3
    )

    assert [instant.minute for instant in found] == [1, 2, 3]


@given(
    expression=st.sampled_from(EXPRESSIONS),
    timezone=st.sampled_from(ZONES),
    after=st.datetimes(datetime(2025, 1, 1), datetime(2026, 12, 31), timezones=st.just(UTC)),  # noqa: DTZ001 - bounds are naive
    length=st.timedeltas(timedelta(0), timedelta(hours=40)),
)
def test_latest_instant_equals_the_last_of_all_instants(
    expression: str, timezone: str | None, after: datetime, length: timedelta
) -> None:
    until = after + length
    every = cron.instants_between(expression, timezone, after=after, until=until, most=3000)

    latest = cron.latest_instant(expression, timezone, after=after, until=until)

    assert latest == (every[-1] if every else None)
    assert every == sorted(set(every))
    assert all(after < instant <= until for instant in every)


def test_missed_counts_a_year_of_minutes_in_few_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    until = NEW_YEAR + 365 * DAY
    steps = []

    class CountingCronSim(CronSim):
        def __next__(self) -> datetime:
            steps.append(self)
            return super().__next__()

    monkeypatch.setattr(cron, "CronSim", CountingCronSim)

    missed = cron.missed_instants("* * * * *", "Europe/Berlin", after=NEW_YEAR, until=until)

    assert missed is not None
    assert missed.first == NEW_YEAR + timedelta(minutes=1)
    assert missed.latest == until
    assert missed.count == cron.MOST_COUNTED
    assert len(steps) < cron.MOST_COUNTED + 100


@pytest.mark.parametrize("length", [DAY, timedelta(hours=-3)], ids=["a day", "a step back"])
def test_missed_is_none_without_instants(length: timedelta) -> None:
    assert cron.missed_instants("@yearly", None, after=NEW_YEAR, until=NEW_YEAR + length) is None


def test_single_missed_instant_is_the_first_and_the_latest() -> None:
    missed = cron.missed_instants("0 3 * * *", None, after=NEW_YEAR, until=NEW_YEAR + DAY)

    assert missed is not None
    assert (missed.first, missed.count) == (missed.latest, 1)
