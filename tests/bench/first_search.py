"""Bench: the first search of a process, beyond the start of its command.

A user without texts is searched in turns with the large one: this is the start of the command,
with the model where meanings count. Without a saved index, the first search builds it.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
from collections.abc import Awaitable, Callable
from functools import partial
from itertools import islice
from pathlib import Path
from resource import RUSAGE_CHILDREN, getrusage
from typing import NamedTuple

from slumberd.search.saved_indexes import check_indexes, remove_all_indexes, size_of_indexes
from slumberd.storage.sqlite.fact_store import SQLiteFactStore
from slumberd.storage.sqlite.memory_store import SQLiteMemoryStore
from tests.bench.databases import Workshop
from tests.bench.measuring import Line, Table, at_most
from tests.bench.search import put_facts
from tests.recall.generated import Generator

SECTION = "first-search"

MOST_SECONDS = 0.15
"""The aim of a first search with a saved index, above the start of the command."""

_TOGETHER = 2_000
_QUESTION = "what did Ann say about the bicycle"


class _Way(NamedTuple):
    """What is searched, and how.

    Attributes:
        name: Its name in the table, after the number of texts.
        kind: As the command has it.
        vectors: Whether meanings count.
    """

    name: str
    kind: str
    vectors: str = "false"


_WAYS = (
    _Way("episodes by words", "episodes"),
    _Way("episodes with meaning", "episodes", "true"),
    _Way("facts by words", "facts"),
)


def measure(table: Table, shop: Workshop) -> None:
    """Search one user with a saved index and without."""
    counts = {"episodes": shop.middle // 2, "facts": shop.middle}
    states = {kind: shop.folder / f"first-search-{kind}" for kind in counts}
    if not states["episodes"].exists():
        asyncio.run(_build(states["episodes"], partial(_put, counts["episodes"])))
    if not states["facts"].exists():
        asyncio.run(_build(states["facts"], partial(_consolidate, counts["facts"])))
    for way in _WAYS:
        state, count = states[way.kind], counts[way.kind]
        built, loaded = [], []
        for _ in shop.turns():
            remove_all_indexes(state)
            building = _processor_seconds(state, "user", way)
            start = _processor_seconds(state, "nobody", way)
            loaded.append(_processor_seconds(state, "user", way) - start)
            built.append(building - start)
        name = f"{count:,} {way.name}"
        table.add(Line(SECTION, f"{name}: building and saving", "s", built))
        limit = at_most(MOST_SECONDS)
        table.add(Line(SECTION, f"{name}: the saved index", "s", loaded, bound=limit))
        if [*check_indexes(state)]:
            size = size_of_indexes(state) / count
            table.add(Line(SECTION, f"{name}: disk of a text", "bytes", [size]))


async def _build(state: Path, fill: Callable[[Path], Awaitable[None]]) -> None:
    """Make the directory of a state, or nothing when that is stopped."""
    building = state.with_name(f"{state.name}-building")
    shutil.rmtree(building, ignore_errors=True)
    await fill(building)
    building.rename(state)


async def _put(count: int, state: Path) -> None:
    async with SQLiteMemoryStore(state / "memory.db") as memory:
        episodes = Generator(count).episodes("user", count)
        while some := [*islice(episodes, _TOGETHER)]:
            await memory.put_many(some)


async def _consolidate(count: int, state: Path) -> None:
    async with (
        SQLiteMemoryStore(state / "memory.db") as memory,
        SQLiteFactStore(state / "facts.db") as facts,
    ):
        await memory.bootstrap()
        await facts.bootstrap()
        await put_facts(memory, facts, {"user": count})


def _processor_seconds(state: Path, user: str, way: _Way) -> float:
    words = ["search", _QUESTION, "--user", user, "--kind", way.kind, "--state-dir", str(state)]
    before = getrusage(RUSAGE_CHILDREN)
    subprocess.run(
        [sys.executable, "-m", "slumberd", *words],
        check=True,
        capture_output=True,
        env={**os.environ, "SLUMBERD_SEARCH__VECTORS": way.vectors},
    )
    after = getrusage(RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
