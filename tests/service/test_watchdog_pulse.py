"""The pulse of each store grows with each write."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.builders import triple
from tests.support.open_stores import open_stores

pytestmark = pytest.mark.integration


async def test_pulse_of_each_store_grows_with_each_write(tmp_path: Path) -> None:
    async with open_stores(tmp_path) as home:
        before = await home.memory.pulse(), await home.facts.pulse()

        await home.put(triple("e1", "alice", "drinks", "tea"))
        await home.fire()

        after = await home.memory.pulse(), await home.facts.pulse()
        assert (after[0] > before[0], after[1] > before[1]) == (True, True)
        assert (await home.memory.pulse(), await home.facts.pulse()) == after
