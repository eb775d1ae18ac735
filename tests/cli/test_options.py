"""Instants as text on the command line."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
import typer

from slumberd.cli.instants import instant_of
from slumberd.clock import SystemClock

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(
    ("text", "at"),
    [
        pytest.param("2026-03-01T12:30:00Z", datetime(2026, 3, 1, 12, 30, tzinfo=UTC), id="utc"),
        pytest.param(
            "2026-03-01T12:30:00+02:00", datetime(2026, 3, 1, 10, 30, tzinfo=UTC), id="offset"
        ),
        pytest.param(
            "2026-03-01 12:30:00.25Z",
            datetime(2026, 3, 1, 12, 30, 0, 250_000, tzinfo=UTC),
            id="blank and fraction",
        ),
        pytest.param("2026-03-01", datetime(2026, 3, 1, tzinfo=UTC), id="date is midnight in utc"),
    ],
)
def test_text_is_parsed_as_an_instant(text: str, at: datetime) -> None:
    assert instant_of(text) == at


def test_now_is_parsed_as_the_current_time() -> None:
    assert abs(instant_of("now") - SystemClock().now()) < timedelta(minutes=1)


@pytest.mark.parametrize(
    ("text", "remedy"),
    [
        pytest.param("2026-03-01T12:30:00", "write 2026-03-01T12:30:00Z", id="naive"),
        pytest.param("yesterday", "2026-03-01 or now", id="words"),
        pytest.param("2026-02-30", "2026-03-01 or now", id="no such day"),
        pytest.param("0001-01-01T00:00:00+10:00", "2026-03-01 or now", id="before all years"),
        pytest.param("", "2026-03-01 or now", id="nothing"),
    ],
)
def test_text_that_is_not_an_instant_is_refused_with_a_remedy(text: str, remedy: str) -> None:
    with pytest.raises(typer.BadParameter, match=remedy):
        instant_of(text)
