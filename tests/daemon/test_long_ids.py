"""An id of a megabyte: tables stay readable, and JSON contains the whole id."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.builders import at, triple
from tests.support.installation import Installation

pytestmark = [pytest.mark.integration, pytest.mark.slow]

LONG = "i" * 1_000_000


@pytest.mark.parametrize("words", ["audit ls", "facts", "facts --believed-at now", "recent alice"])
def test_long_id_does_not_widen_a_table(tmp_path: Path, words: str) -> None:
    site = Installation(tmp_path)
    site.put(triple(LONG, "alice", "likes", "tea"))
    site.put(*(triple(f"e{n}", "alice", "likes", n, timestamp=at(n)) for n in range(20)))
    assert site.call("fire", "--all").returncode == 0

    shown = site.call(*words.split()).stdout

    assert len(shown) < 100_000
    assert "iii…" in shown
    assert LONG in site.call(*words.split(), "--json").stdout
