"""How much room a copy may take, and what is said when there is too little."""

from __future__ import annotations

from pathlib import Path

import pytest

from slumberd.errors import StoreError
from slumberd.rule_testing.data_copy import refuse_without_room, room_for

pytestmark = pytest.mark.unit

GIGABYTE = 10**9


@pytest.mark.parametrize(
    ("episodes", "facts", "least"),
    [
        pytest.param(64_000_000, 0, 430_000_000, id="all episodes are new"),
        pytest.param(64_000_000, 128_000_000, 500_000_000, id="most are facts already"),
        pytest.param(0, 0, 0, id="nothing is there"),
    ],
)
def test_room_for_copies_is_what_a_diff_was_seen_to_take(
    episodes: int, facts: int, least: int
) -> None:
    assert least <= room_for(episodes, facts) <= 2 * least


def test_a_copy_is_refused_where_it_would_fill_the_disk() -> None:
    refuse_without_room(GIGABYTE, GIGABYTE, Path("/spare"))

    with pytest.raises(StoreError) as refused:
        refuse_without_room(2 * GIGABYTE, GIGABYTE, Path("/spare"))

    assert str(refused.value) == (
        "'/spare' has too little room: a copy may take 2,000 MB, 1,000 MB are free; "
        "name a directory with more room in $TMPDIR"
    )
