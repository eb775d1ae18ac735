"""A host that calls `consolidate` and `apply_delta` itself gets the same facts as the daemon."""

from __future__ import annotations

from pathlib import Path

import pytest

from slumberd.consolidation.incoming import DeltaBatch, evaluate
from slumberd.model.fact import Fact, FactPattern
from slumberd.model.firing import Firing, Position
from slumberd.storage.sqlite.fact_store import SQLiteFactStore
from slumberd.storage.sqlite.memory_store import SQLiteMemoryStore
from tests.support.builders import START, at, rule, triple

pytestmark = pytest.mark.integration

EPISODES = [
    triple("e1", "alice", "likes", "tea", timestamp=at(0)),
    triple("e2", "alice", "likes", "coffee", timestamp=at(1)),
    triple("e3", "alice", "owns", "a cup", timestamp=at(2)),
    triple(
        "e4", "alice", "owns", None, timestamp=at(3),
        metadata={"intent": "delete", "replaces": ["e3"]},
    ),
    triple("@odd/e5", "bob", "is", "here", user="bob", timestamp=at(4)),
    triple("e6", "bob", "is", None, user="bob", timestamp=at(5), metadata={"intent": "noop"}),
]  # fmt: skip
EVERYTHING = FactPattern()


def contents_of(facts: list[Fact]) -> list[tuple[str, str, str, object]]:
    return [(fact.id, fact.user, fact.agent, fact.payload) for fact in facts]


@pytest.mark.parametrize("channels", [["facts"], ["notes"], ["kg:team"], ["facts", "notes"]])
async def test_a_host_and_the_daemon_promote_equal_facts_in_every_channel(
    tmp_path: Path, channels: list[str]
) -> None:
    all_of_it = rule("all", then_emits=channels)
    firing = Firing("all", "", "manual", START, Position(), Position(6, "e6"))
    async with (
        SQLiteMemoryStore(tmp_path / "memory.db") as memory,
        SQLiteFactStore(tmp_path / "host.db") as host,
        SQLiteFactStore(tmp_path / "daemon.db") as daemon,
    ):
        await memory.put_many(EPISODES)
        await host.bootstrap()
        await daemon.bootstrap()
        window = await memory.select(all_of_it, after=Position(), limit=100)
        await daemon.apply_deltas(DeltaBatch(firing, evaluate(window.versions, all_of_it)))

        for delta in await memory.consolidate(all_of_it):
            await host.apply_delta(delta)

        expected = contents_of(await daemon.query(EVERYTHING))
        assert contents_of(await host.query(EVERYTHING)) == expected
        assert len(expected) == 2 * len(channels)
