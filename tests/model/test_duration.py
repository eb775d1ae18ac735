"""The written forms of a duration, and their seconds."""

from __future__ import annotations

import pytest

from slumberd.model.cadence import seconds_of

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(
    ("written", "seconds"),
    [(90, 90), (0.5, 0.5), ("90s", 90), ("10m", 600), ("1.5h", 5_400), ("366d", 31_622_400)],
    ids=str,
)
def test_duration_is_so_many_seconds(written: object, seconds: float) -> None:
    assert seconds_of(written) == seconds


@pytest.mark.parametrize(
    "written",
    [0, -1, True, None, [], "", "m", "10", "10 m", "-1s", "0s", "1w", "367d", "nan", float("nan")],
    ids=repr,
)
def test_invalid_duration_is_refused(written: object) -> None:
    with pytest.raises(ValueError, match="is not a duration; write seconds, or a number with"):
        seconds_of(written)
