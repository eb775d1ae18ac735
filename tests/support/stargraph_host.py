"""A host that uses the real Stargraph: it answers each request, a line of JSON, with a line.

`tests.support.stargraph` runs it in its own environment, without slumberd.
"""

from __future__ import annotations

import asyncio
import importlib
import json
import sys
import time
from collections.abc import Awaitable, Coroutine, Iterator
from pathlib import Path
from typing import Any

from stargraph.stores.fact import Fact, FactPattern
from stargraph.stores.graph import ResultSet
from stargraph.stores.kg_promotion import PromoteTriplesToFacts
from stargraph.stores.memory import ConsolidationRule, Episode, UpdateDelta
from stargraph.stores.sqlite_fact import SQLiteFactStore
from stargraph.stores.sqlite_memory import SQLiteMemoryStore

_ALL = ConsolidationRule(id="all", cadence={"every": 1}, when_filter="", then_emits=["facts"])


class Graph:
    """A graph that answers every query with the same rows."""

    def __init__(self, rows: list[dict[str, Any]]) -> None:
        self._path = Path("graph")
        self._rows = rows

    async def query(self, *_: object, **__: object) -> ResultSet:
        return ResultSet(rows=self._rows, columns=["subject", "predicate", "object"])


class Adapter:
    """An adapter that keeps nothing."""

    def assert_with_provenance(self, *_: object, **__: object) -> None:
        """Take an assertion."""


class Host:
    """The methods that a test can call; paths are text, and values are JSON of the models."""

    async def bootstrap(self, state: str) -> None:
        await _memory(state).bootstrap()
        await _facts(state).bootstrap()

    async def put(self, state: str, episodes: list[dict[str, Any]]) -> None:
        await _put_all(state, iter([Episode(**fields) for fields in episodes]))

    async def timed_put(
        self, state: str, episodes: list[dict[str, Any]], callers: int
    ) -> dict[str, float]:
        """Put episodes by so many callers at once; return the time that this took."""
        ready = iter([Episode(**fields) for fields in episodes])
        return await _timed(asyncio.gather(*(_put_all(state, ready) for _ in range(callers))))

    async def timed_consolidate(self, state: str, log: str) -> dict[str, float]:
        """Consolidate all, apply and log every delta; return the time that this took."""
        return await _timed(self._consolidate(state, Path(log)))

    async def timed_read(self, state: str) -> dict[str, float]:
        """Consolidate all, apply nothing; return the time that this took."""
        return await _timed(_memory(state).consolidate(_ALL))

    async def _consolidate(self, state: str, log: Path) -> None:
        with log.open("w") as file:
            for delta in await _memory(state).consolidate(_ALL):
                await _facts(state).apply_delta(delta)
                file.write(delta.model_dump_json() + "\n")

    async def run_graphs(self, state: str, episodes: list[dict[str, Any]], store: str) -> None:
        """Run a graph for each episode, whose `MemoryWriteNode` writes into a store.

        Args:
            state: The state directory.
            episodes: What the nodes write.
            store: ``theirs`` is Stargraph's own store, ``ours`` slumberd's.
        """
        sys.path.append(str(Path(__file__).parent))
        runs = importlib.import_module("stargraph_runs")
        given = [Episode(**episode) for episode in episodes]
        if store == "theirs":
            await runs.run_graphs(_memory(state), Path(state), given)
            return
        async with runs.our_store(Path(state, "memory.db")) as memory:
            await runs.run_graphs(memory, Path(state), given)

    async def recent(self, state: str, user: str) -> list[dict[str, Any]]:
        found = await _memory(state).recent(user, limit=1_000)
        return [episode.model_dump(mode="json") for episode in found]

    async def query(self, state: str, **pattern: str) -> list[dict[str, Any]]:
        found = await _facts(state).query(FactPattern(**pattern))
        return sorted((fact.model_dump(mode="json") for fact in found), key=lambda fact: fact["id"])

    async def pin(self, state: str, fact: dict[str, Any]) -> None:
        await _facts(state).pin(Fact(**fact))

    async def unpin(self, state: str, id: str) -> None:
        await _facts(state).unpin(id)

    async def promote(self, state: str, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Promote the rows of a graph with the function of Stargraph."""
        facts = await PromoteTriplesToFacts(
            Graph(rows),
            _facts(state),
            Adapter(),
            filter_cypher="MATCH (s)-[r]->(o) RETURN s.id AS subject, o.id AS object",
            rule_id="kg",
            agent_id="rag",
        )
        return [fact.model_dump(mode="json") for fact in facts]

    async def put_and_read(self, state: str, episodes: list[dict[str, Any]]) -> dict[str, Any]:
        """Put episodes one by one, and read at the same time."""
        return await self._read_during(state, self.put(state, episodes))

    async def apply_and_read(self, state: str, episodes: list[dict[str, Any]]) -> dict[str, Any]:
        """Apply episodes of one key as Stargraph does, and read at the same time."""
        return await self._read_during(state, self._apply(state, episodes))

    async def _apply(self, state: str, episodes: list[dict[str, Any]]) -> None:
        before = "none"
        for fields in episodes:
            body = {name: fields[name] for name in ("id", "user", "agent")} | fields["metadata"]
            delta = UpdateDelta(
                kind="update",
                fact_payload=body,
                replaces=[before],
                source_episode_ids=[fields["id"]],
                promotion_ts=fields["timestamp"],
                rule_id="all",
                confidence=1.0,
            )
            await _facts(state).apply_delta(delta)
            before = fields["id"]

    async def _read_during(self, state: str, work: Coroutine[Any, Any, None]) -> dict[str, Any]:
        """Return how often all facts were read, and each torn read: a key twice, or gone again."""
        reads: int = 0
        torn: list[list[Any]] = []
        before: set[Any] = set()
        async with asyncio.TaskGroup() as group:
            working = group.create_task(work)
            while not working.done():
                keys = [_key(fact) for fact in await self.query(state)]
                if len(set(keys)) < len(keys) or not before <= set(keys):
                    torn.append(keys)
                before = set(keys)
                reads += 1
        return {"reads": reads, "torn": torn}


def _key(fact: dict[str, Any]) -> tuple[str, str, str]:
    return fact["user"], fact["payload"]["subject"], fact["payload"]["predicate"]


async def _put_all(state: str, episodes: Iterator[Episode]) -> None:
    for episode in episodes:
        scope = {"user": episode.user, "session": episode.session, "agent": episode.agent}
        await _memory(state).put(episode, **scope)


async def _timed(work: Awaitable[object]) -> dict[str, float]:
    wall, processor = time.perf_counter(), time.process_time()
    await work
    return {"wall": time.perf_counter() - wall, "processor": time.process_time() - processor}


def _memory(state: str) -> SQLiteMemoryStore:
    return SQLiteMemoryStore(Path(state, "memory.db"))


def _facts(state: str) -> SQLiteFactStore:
    return SQLiteFactStore(Path(state, "facts.db"))


async def main() -> None:
    """Answer every line of standard input, until it ends."""
    host = Host()
    while line := await asyncio.to_thread(sys.stdin.readline):
        what, arguments = json.loads(line)
        try:
            answer = {"answer": await getattr(host, what)(**arguments)}
        except Exception as error:  # noqa: BLE001 # the answer reports it
            answer = {"error": f"{type(error).__name__}: {error}"}
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    asyncio.run(main())
