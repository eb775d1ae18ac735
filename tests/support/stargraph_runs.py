"""Graph runs of the real Stargraph, whose `MemoryWriteNode` writes episodes into a memory store.

Runs in Stargraph's own environment, for `tests.support.stargraph_host`.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel
from stargraph import Graph, GraphRun, MemoryWriteNode
from stargraph.checkpoint.sqlite import SQLiteCheckpointer
from stargraph.ir._models import IRDocument, NodeSpec
from stargraph.stores.memory import Episode

from tests.support.repository import ROOT

SOURCE = ROOT / "daemon"


class State(BaseModel):
    """What a run carries: the episode that its node writes."""

    episode: Episode
    memory_written: bool = False
    episode_id: str = ""


async def run_graphs(store: Any, folder: Path, episodes: Sequence[Episode]) -> None:
    """Run one graph for each episode; its only node writes the episode into the store."""
    graph = Graph(
        IRDocument(
            ir_version="1.0.0",
            id="graph:memory",
            state_class=f"{__name__}:State",
            nodes=[NodeSpec(id="write", kind="stargraph.nodes.memory:MemoryWriteNode")],
        )
    )
    checkpointer = SQLiteCheckpointer(folder / "checkpoints.db")
    await checkpointer.bootstrap()
    try:
        for episode in episodes:
            run = GraphRun(
                run_id=f"run-{episode.id}",
                graph=graph,
                initial_state=State(episode=episode),
                node_registry={"write": MemoryWriteNode(store)},
                checkpointer=checkpointer,
            )
            await run.start()
    finally:
        await checkpointer.close()


def our_store(path: Path) -> Any:
    """Return slumberd's own memory store, imported from this checkout."""
    sys.path.append(str(SOURCE))
    from slumberd import SQLiteMemoryStore  # only where it is asked for

    return SQLiteMemoryStore(path)
