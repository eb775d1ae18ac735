"""Bench: what each stage of a rule costs above a firing without stages."""

from __future__ import annotations

import random
import shutil
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import orjson

from tests.bench.databases import Workshop
from tests.bench.measuring import Cost, Table, at_most, run
from tests.support.builders import START

SECTION = "stages"

UNIQUE_SECONDS = {"jaccard": 5.0, "vectors": 10.0}
"""The most processor time of `dedup` on twice `Workshop.small` episodes of one user, by method."""

STAGES: dict[str, dict[str, Any]] = {
    "dedup": {"dedup": {}},
    "decay": {"decay": {"half_life": "1m"}},
    "importance": {"importance": {"below": 0.6}},
    "summarise": {"summarise": {"when_more_than": 20}},
}
WORDS = [f"word{number:x}" for number in range(3_000)]


def measure(table: Table, shop: Workshop) -> None:
    """Run each stage on episodes of many users, and `dedup` on unique episodes of one user."""
    base = [_fire(shop, []) for _ in range(shop.times)]
    count = 10 * shop.small
    table.seconds(SECTION, f"a firing with nothing pending, {count:,} episodes", base)
    for name, stage in STAGES.items():
        costs = [_fire(shop, [stage]) for _ in range(shop.times)]
        table.seconds(SECTION, f"... with `{name}`", costs)
        table.ratio(SECTION, f"... with `{name}`, to none", (_walls(costs), _walls(base)))
    for method, seconds in UNIQUE_SECONDS.items():
        unique = [_fire_unique(shop, method) for _ in range(shop.times)]
        name = f"`dedup` by `{method}` of {2 * shop.small:,} unique episodes"
        table.seconds(SECTION, name, unique, at_most(seconds))


def _walls(costs: list[Cost]) -> list[float]:
    return [cost.wall for cost in costs]


def _fire(shop: Workshop, stages: list[dict[str, Any]]) -> Cost:
    """Fire a rule that starts now: it promotes nothing, and its stages see every episode."""
    home = shop.home(shop.consolidated(10 * shop.small))
    home.rule("staged", cadence={"interval": "1d"}, start="now", stages=stages)
    cost = run(home.command("fire", "staged"))
    shutil.rmtree(home.folder)
    return cost


def _fire_unique(shop: Workshop, method: str) -> Cost:
    home = shop.home()
    stages = [{"dedup": {"method": method}}]
    home.rule("staged", cadence={"interval": "1d"}, start="now", stages=stages)
    source = home.folder / "unique.jsonl"
    source.write_bytes(b"\n".join(map(orjson.dumps, _unique_episodes(2 * shop.small))))
    run(home.command("import", source))
    cost = run(home.command("fire", "staged"))
    shutil.rmtree(home.folder)
    return cost


def _unique_episodes(count: int) -> Iterator[dict[str, Any]]:
    chance = random.Random(1)
    for number in range(count):
        yield {
            "id": f"e{number:08}",
            "content": " ".join(chance.choices(WORDS, k=12)),
            "timestamp": (START + timedelta(seconds=number)).isoformat(),
            "source_node": "chat",
            "agent": "agent",
            "user": "ann",
            "session": f"session-{number // 100}",
            "metadata": {},
        }
