"""The pulse of each store grows with each write."""

from __future__ import annotations

import pytest

from tests.support.builders import triple
from tests.support.open_stores import open_stores
from tests.support.providers import Provider

pytestmark = pytest.mark.integration


async def test_pulse_of_each_store_grows_with_each_write(provider: Provider) -> None:
    async with open_stores(provider) as home:
        before = await home.memory.pulse(), await home.facts.pulse()

        await home.put(triple("e1", "alice", "drinks", "tea"))
        await home.fire()

        after = await home.memory.pulse(), await home.facts.pulse()
        assert (after[0] > before[0], after[1] > before[1]) == (True, True)
        assert (await home.memory.pulse(), await home.facts.pulse()) == after
