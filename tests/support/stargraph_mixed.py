"""Use the classes of Stargraph and slumberd in one process; print the results as JSON.

Runs in an environment with both, by `tests.support.stargraph`.
"""

from __future__ import annotations

import asyncio
import json
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from stargraph.fathom import FathomAdapter
from stargraph.stores import memory as theirs
from stargraph.stores.fact import FactPattern
from stargraph.stores.sqlite_fact import SQLiteFactStore as TheirFactStore

import slumberd
from tests.support.graph_stores import BARE, FakeGraphStore, result, row


class Engine:
    """Records what an adapter asserts."""

    def __init__(self) -> None:
        self.assertions: list[tuple[str, dict[str, Any]]] = []

    def assert_fact(self, template: str, slots: dict[str, Any]) -> None:
        self.assertions.append((template, slots))


async def apply_their_deltas(folder: Path) -> list[str]:
    """Apply a delta of each of Stargraph's classes; return the objects after each."""
    common: dict[str, Any] = {
        "source_episode_ids": ["e"],
        "promotion_ts": datetime(2026, 1, 1, tzinfo=UTC),
        "rule_id": "r",
        "confidence": 1.0,
    }
    body = {"user": "alice", "agent": "rag", "subject": "s", "predicate": "is"}
    tea, mate = body | {"id": "a", "object": "tea"}, body | {"id": "b", "object": "mate"}
    deltas = [
        theirs.AddDelta(kind="add", fact_payload=tea, **common),
        theirs.NoopDelta(kind="noop", **common),
        theirs.UpdateDelta(kind="update", fact_payload=mate, replaces=["a"], **common),
        theirs.DeleteDelta(kind="delete", replaces=["b"], **common),
    ]
    seen = []
    async with slumberd.SQLiteFactStore(folder / "ours.db") as facts:
        await facts.bootstrap()
        for delta in deltas:
            await facts.apply_delta(delta)
            found = await facts.query(slumberd.FactPattern())
            seen.append(" ".join(fact.payload["object"] for fact in found))
    return seen


async def promote_into_their_store(folder: Path) -> dict[str, Any]:
    """Promote a graph into Stargraph's store, by Stargraph's adapter, twice."""
    rows = [row("alice", "knows", "bob"), row("alice", "knows", "carol")]
    graph = FakeGraphStore(answers={BARE: result(rows)})
    facts, engine = TheirFactStore(folder / "theirs.db"), Engine()
    await facts.bootstrap()
    for _ in range(2):
        await slumberd.PromoteTriplesToFacts(
            graph, facts, FathomAdapter(engine), filter_cypher=BARE, rule_id="r", agent_id="rag"
        )
    found = await facts.query(FactPattern(agent="rag"))
    return {
        "objects": sorted(fact.payload["object"] for fact in found),
        "asserted": [sorted(slots) for _, slots in engine.assertions],
    }


async def main(folder: Path) -> None:
    """Run both checks, and print the results."""
    found = {
        "applied": await apply_their_deltas(folder),
        "promoted": await promote_into_their_store(folder),
    }
    sys.stdout.write(json.dumps(found))


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))
