"""Bench: verify and replay a growing ledger, and query the facts of an instant."""

from __future__ import annotations

import asyncio
import json
import shutil
import time
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import orjson

from slumberd.model.fact import FactPattern
from slumberd.storage.sqlite.fact_store import SQLiteFactStore
from tests.bench.databases import Workshop, episodes
from tests.bench.measuring import Bound, Cost, Line, Table, at_least, at_most, run
from tests.support.daemons import Home

SECTION = "audit"

FEW = 10
"""Events of a user with few episodes."""

EVENT_SECONDS, QUESTION_SECONDS = 10e-6, 1e-3
"""The time limit of a query of a user: so much for each event of the user, and so much more."""

_THEN = datetime(2100, 1, 1, tzinfo=UTC)


def measure(table: Table, shop: Workshop) -> None:
    """Run the commands on a ledger and on a ten times longer ledger; query an open store."""
    for count in (shop.middle, shop.large):
        home = shop.home(shop.consolidated(count))
        whole = at_least(100_000) if count == shop.large else None
        chain = at_least(300_000) if count == shop.large else None
        _rate(table, shop, home, "verify", whole)
        _rate(table, shop, home, "verify --chain-only", chain)
        if count == shop.middle:
            _rate(table, shop, home, "replay", at_least(50_000))
        else:
            _measure_queries(table, shop, home)
        shutil.rmtree(home.folder)


def _rate(table: Table, shop: Workshop, home: Home, words: str, bound: Bound | None) -> None:
    """Add the rows a second of a command, its start included, and its memory."""
    results = [_audit(home, words.split()) for _ in shop.turns()]
    rows, costs = results[0][0], [cost for _, cost in results]
    name = f"{rows:,} rows, `{words}`"
    rates = [rows / cost.wall for cost in costs]
    processors = [cost.processor for cost in costs]
    table.add(Line(SECTION, name, "rows/s", rates, processors, bound))
    table.add(Line(SECTION, f"{name}, memory", "MiB", [cost.resident for cost in costs]))


def _audit(home: Home, words: list[str]) -> tuple[int, Cost]:
    output, replayed = home.folder / "output.json", home.folder / "replayed.db"
    files = [replayed] if words == ["replay"] else []
    cost = run(home.command("audit", *words, *map(str, files), "--json"), to=output)
    for file in files:
        file.unlink()
    return json.loads(output.read_bytes())["rows"], cost


def _measure_queries(table: Table, shop: Workshop, home: Home) -> None:
    """Query the facts of a user with few events, and of a user with many."""
    events = {"few": FEW, "many": shop.small}
    source = home.folder / "more.jsonl"
    for seed, (user, count) in enumerate(events.items(), start=2):
        history = [{**episode, "user": user} for episode in episodes(count, seed=seed)]
        source.write_bytes(b"\n".join(map(orjson.dumps, history)))
        run(home.command("import", source))
    run(home.command("fire", "all"))
    for user, count in events.items():
        for clock in ("valid_at", "believed_at"):
            costs = asyncio.run(_time_queries(home.state / "facts.db", user, clock, shop.times))
            allowed = QUESTION_SECONDS + EVENT_SECONDS * count
            name = f"`{clock}` of {count:,} events"
            table.add(Line(SECTION, name, "ms", [cost.wall * 1e3 for cost in costs]))
            shares = [cost.wall / allowed for cost in costs]
            table.add(Line(SECTION, f"{name}, of what it may take", "x", shares, bound=at_most(1)))


async def _time_queries(path: Path, user: str, clock: str, times: int) -> list[Cost]:
    async with SQLiteFactStore(path) as store:
        query = partial(store.query, FactPattern(user=user), **{clock: _THEN})
        await query()  # a store that is open for long has answered it before
        costs = []
        for _ in range(times):
            wall, processor = time.perf_counter(), time.process_time()
            await query()
            costs.append(Cost(time.perf_counter() - wall, time.process_time() - processor))
        return costs
