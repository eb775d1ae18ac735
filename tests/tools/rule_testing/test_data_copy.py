"""A copy of the data is refused when the disk has too little room."""

from __future__ import annotations

from pathlib import Path

import pytest

from slumberd.model.errors import StoreError
from slumberd.tools.rule_testing.preview import refuse_without_room, room_for

pytestmark = pytest.mark.unit

GIGABYTE = 10**9


@pytest.mark.parametrize(
    ("episodes", "facts", "least"),
    [
        pytest.param(64_000_000, 0, 430_000_000, id="all episodes are new"),
        pytest.param(64_000_000, 128_000_000, 500_000_000, id="most episodes are facts already"),
        pytest.param(0, 0, 0, id="no data"),
    ],
)
def test_room_for_copies_covers_the_measured_size_of_a_diff(
    episodes: int, facts: int, least: int
) -> None:
    assert least <= room_for(episodes, facts) <= 2 * least


def test_copy_that_would_fill_the_disk_is_refused() -> None:
    refuse_without_room(GIGABYTE, GIGABYTE, Path("/spare"))

    with pytest.raises(StoreError) as refused:
        refuse_without_room(2 * GIGABYTE, GIGABYTE, Path("/spare"))

    assert str(refused.value) == (
        "'/spare' has too little room: a copy may take 2,000 MB, 1,000 MB are free; "
        "name a directory with more room in $TMPDIR"
    )
