"""Bench: the first search of a process, beyond the start of its command.

A user without episodes is searched in turns with the large one: this is the start of the command,
with the model where meanings count. Without a saved index, the first search builds it.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from itertools import islice
from pathlib import Path
from resource import RUSAGE_CHILDREN, getrusage

from slumberd.search.saved_indexes import check_indexes, remove_all_indexes, size_of_indexes
from slumberd.storage.sqlite.memory_store import SQLiteMemoryStore
from tests.bench.databases import Workshop
from tests.bench.measuring import Line, Table, at_most
from tests.recall.generated import Generator

SECTION = "first-search"

MOST_SECONDS = 0.15
"""The aim of a first search with a saved index, above the start of the command."""

_TOGETHER = 2_000
_QUESTION = "what did Ann say about the bicycle"
_WAYS = {"by words": "false", "with meaning": "true"}


def measure(table: Table, shop: Workshop) -> None:
    """Search one user with a saved index and without, by words and with meaning."""
    count = shop.middle // 2
    state = shop.folder / "first-search"
    if not state.exists():
        asyncio.run(_put(state, count))
    for way, vectors in _WAYS.items():
        variables = {"SLUMBERD_SEARCH__VECTORS": vectors}
        built, loaded = [], []
        for _ in range(shop.times):
            remove_all_indexes(state)
            building = _processor_seconds(state, "user", variables)
            start = _processor_seconds(state, "nobody", variables)
            loaded.append(_processor_seconds(state, "user", variables) - start)
            built.append(building - start)
        name = f"{count:,} episodes {way}"
        table.add(Line(SECTION, f"{name}: building and saving", "s", built))
        limit = at_most(MOST_SECONDS)
        table.add(Line(SECTION, f"{name}: the saved index", "s", loaded, bound=limit))
        if [*check_indexes(state)]:
            size = size_of_indexes(state) / count
            table.add(Line(SECTION, f"{name}: disk of an episode", "bytes", [size]))


async def _put(state: Path, count: int) -> None:
    building = state.with_name(f"{state.name}-building")
    shutil.rmtree(building, ignore_errors=True)
    async with SQLiteMemoryStore(building / "memory.db") as memory:
        episodes = Generator(count).episodes("user", count)
        while some := [*islice(episodes, _TOGETHER)]:
            await memory.put_many(some)
    building.rename(state)


def _processor_seconds(state: Path, user: str, variables: Mapping[str, str]) -> float:
    words = ["search", _QUESTION, "--user", user, "--state-dir", str(state)]
    before = getrusage(RUSAGE_CHILDREN)
    subprocess.run(
        [sys.executable, "-m", "slumberd", *words],
        check=True,
        capture_output=True,
        env={**os.environ, **variables},
    )
    after = getrusage(RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
