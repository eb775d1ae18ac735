"""Bench: what each stage of a rule costs, and what new episodes cost above old ones."""

from __future__ import annotations

import asyncio
import random
import shutil
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from typing import Any, Literal

import orjson

from slumberd.consolidation.firing import FireRequest
from slumberd.model.episode import Episode
from slumberd.model.stages import Decay, Dedup, Stage, Summarise
from slumberd.search.embeddings import WordEmbedder
from slumberd.storage.sqlite.stage_file import StageFile
from tests.bench.databases import USERS, Workshop
from tests.bench.measuring import Cost, Line, Table, at_most, run, timed_async
from tests.support.builders import START, episode, rule
from tests.support.open_stores import open_stores

SECTION = "stages"

UNIQUE_SECONDS = {"jaccard": 5.0, "vectors": 10.0}
"""The most processor time of `dedup` on twice `Workshop.small` episodes of one user, by method."""

STAGES: dict[str, dict[str, Any]] = {
    "dedup": {"dedup": {}},
    "decay": {"decay": {"half_life": "1m"}},
    "importance": {"importance": {"below": 0.6}},
    "summarise": {"summarise": {"when_more_than": 20}},
}
NEW = 1_000
"""New episodes of a night."""

WORDS = [f"word{number:x}" for number in range(3_000)]

LETTERS = "etaoinshrdlucmfwypvbgkjqxz" + "etaoinshr" * 3

COMPARED: tuple[Literal["jaccard", "fuzzy", "vectors"], ...] = ("jaccard", "fuzzy", "vectors")
"""The methods of `dedup` whose new episodes of one user are measured."""


def measure(table: Table, shop: Workshop) -> None:
    """Run each stage on episodes of many users, and `dedup` on unique episodes of one user."""
    shop.consolidated(10 * shop.small)
    for name, stage in STAGES.items():
        turns = [(_fire(shop, []), _fire(shop, [stage])) for _ in shop.turns()]
        base, costs = map(list, zip(*turns, strict=True))
        table.seconds(SECTION, f"a firing with nothing pending, {10 * shop.small:,} episodes", base)
        table.seconds(SECTION, f"... with `{name}`", costs)
        table.ratio(SECTION, f"... with `{name}`, to none", (_walls(costs), _walls(base)))
    for method, seconds in UNIQUE_SECONDS.items():
        unique = [_fire_unique(shop, method) for _ in shop.turns()]
        name = f"`dedup` by `{method}` of {2 * shop.small:,} unique episodes"
        table.seconds(SECTION, name, unique, at_most(seconds))
    _measure_new(table, shop)


def _measure_new(table: Table, shop: Workshop) -> None:
    """Fire a rule with `dedup` and `decay` that has seen all episodes but a few new ones."""
    counts = (shop.small, 4 * shop.small, shop.middle, shop.large)
    found = {count: asyncio.run(_fire_new(shop, count)) for count in counts}
    for count, (one, many) in found.items():
        name = f"processor time of one new episode above {count:,}"
        table.add(Line(SECTION, name, "ms", [1_000 * time for time in one], bound=at_most(50)))
        bound = at_most(10) if count == shop.large else None
        name = f"... of {NEW:,} new episodes"
        table.add(Line(SECTION, name, "s", [many], bound=bound))
    first, last = found[shop.small], found[shop.large]
    name = f"one new episode above {shop.large:,}, to one above {shop.small:,}"
    table.ratio(SECTION, name, (last[0], first[0]), at_most(1.3))
    name = f"one new episode, in a rule with `summarise`, of a user with {shop.small:,}"
    one = asyncio.run(_fire_for_one(shop, Summarise(when_more_than=20), WORDS, shop.small))
    table.add(Line(SECTION, name, "ms", [1_000 * time for time in one], bound=at_most(50)))
    for method in COMPARED:
        for count in (shop.small, 4 * shop.small):
            name = f"one new episode, `dedup` by `{method}`, of a user with {count:,}"
            one = asyncio.run(_fire_for_one(shop, Dedup(method=method), _words_of_letters(), count))
            bound = at_most(50) if count == shop.small else None
            table.add(Line(SECTION, name, "ms", [1_000 * time for time in one], bound=bound))


def _words_of_letters() -> list[str]:
    """Return words without digits: texts with different numbers are not compared."""
    chance = random.Random(7)
    return ["".join(chance.choices(LETTERS, k=chance.randint(3, 9))) for _ in WORDS]


async def _fire_for_one(
    shop: Workshop, stage: Stage, words: Sequence[str], count: int
) -> list[float]:
    """Return the processor seconds of firings with one new episode of a user with many."""
    folder = shop.folder / "sessions"
    folder.mkdir()
    nightly = rule("nightly", start="now", stages=(stage,), then_emits=[])
    made = [Episode(**found) for found in _unique_episodes(count + shop.times, words)]
    one: list[float] = []
    async with open_stores(folder, embedding=WordEmbedder) as home:
        home.consolidator.note_stages_in(StageFile(folder / "stages.db", "bench"))
        in_sessions = [
            found.model_copy(update={"session": f"s{number % count // 50}"})
            for number, found in enumerate(made)
        ]
        await home.put(*in_sessions[:count])
        for number in range(shop.times + 2):  # the second firing looks at what the first has marked
            await home.put(*in_sessions[count:][max(0, number - 2) : max(0, number - 1)])
            request = FireRequest(nightly, "cron", _day(number))
            one.append((await timed_async(home.consolidator.fire(request))).processor)
    shutil.rmtree(folder)
    return one[2:]


async def _fire_new(shop: Workshop, count: int) -> tuple[list[float], float]:
    """Return the processor seconds of firings with one new episode, and of one with many."""
    folder = shop.folder / "new-episodes"
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(shop.consolidated(count), folder)
    nightly = rule(
        "nightly",
        start="now",
        stages=(Dedup(), Decay(half_life=31_622_400.0, threshold=0.5)),
        then_emits=[],
    )
    async with open_stores(folder) as home:
        home.consolidator.note_stages_in(StageFile(folder / "stages.db", "bench"))
        for day in range(2):  # the second firing looks at what the first has marked
            await home.consolidator.fire(FireRequest(nightly, "cron", _day(day)))
        one: list[float] = []
        for number in range(shop.times):
            await home.put(*_new_episodes(number, 1))
            request = FireRequest(nightly, "cron", _day(2 + number))
            one.append((await timed_async(home.consolidator.fire(request))).processor)
        await home.put(*_new_episodes(shop.times, NEW))
        request = FireRequest(nightly, "cron", _day(2 + shop.times))
        many = await timed_async(home.consolidator.fire(request))
    shutil.rmtree(folder)
    return one, many.processor


def _day(number: int) -> datetime:
    return START + timedelta(days=1 + number)


def _new_episodes(first: int, count: int) -> list[Episode]:
    chance = random.Random(first)
    return [
        episode(
            f"new-{first}-{number}",
            content=" ".join(chance.choices(WORDS, k=12)),
            timestamp=_day(0),
            user=f"user-{chance.randrange(USERS)}",
            agent="agent",
        )
        for number in range(count)
    ]


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


def _unique_episodes(count: int, words: Sequence[str] = WORDS) -> Iterator[dict[str, Any]]:
    chance = random.Random(1)
    for number in range(count):
        yield {
            "id": f"e{number:08}",
            "content": " ".join(chance.choices(words, k=12)),
            "timestamp": (START + timedelta(seconds=number)).isoformat(),
            "source_node": "chat",
            "agent": "agent",
            "user": "ann",
            "session": f"session-{number // 100}",
            "metadata": {},
        }
