"""Measure how long a search takes, and how fast its index is built, on generated texts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from slumberd.model.episode import Episode
from tests.bench.measuring import Cost, percentile, timed_async
from tests.recall.engine import Engine, Opener
from tests.recall.figures import BASELINE, Figure
from tests.recall.generated import Generator

SECTION = "latency"

_LIMIT = 10
_REPEATS = 20
_PUT_AT_ONCE = 1_000
_MILLISECONDS = 1_000


class Size(NamedTuple):
    """How much is measured.

    Attributes:
        records: The episodes of the one user, and of the many users together.
        users: How many users they are.
        questions: How many questions are asked.
    """

    records: int = 50_000
    users: int = 50
    questions: int = 200


async def measure(openers: Sequence[Opener], size: Size | None = None) -> list[Figure]:
    """Return the figures of each engine, for one user, for many, and for one of many alone."""
    size = size or Size()
    figures: list[Figure] = []
    for opener in openers:
        figures += await _one_user(opener, size)
        figures += await _many_users(opener, size)
    return figures


async def _one_user(opener: Opener, size: Size) -> list[Figure]:
    generator = Generator()
    episodes = list(generator.episodes("one", size.records))
    questions = _questions(generator, {"one": episodes}, size.questions)
    async with opener() as engine:
        stored = await _put(engine, episodes)
        (first,) = await _asked(engine, questions[:1])
        warm = await _asked(engine, questions)
        name = engine.name
    figures = [
        Figure(SECTION, "storing", name, size.records / stored.wall, "/s"),
        Figure(SECTION, "one user, first search", name, first.wall * _MILLISECONDS, "ms"),
        *_percentiles("one user", name, warm),
    ]
    if name == BASELINE:  # it has built its index while it stored
        return figures
    return [*figures, *_indexing(name, size.records, first)]


def _indexing(engine: str, records: int, first: Cost) -> Iterator[Figure]:
    """Yield how fast the first search has read and indexed the episodes of its user."""
    yield Figure(SECTION, "indexing", engine, records / first.wall, "/s")
    yield Figure(SECTION, "indexing, processor", engine, records / first.processor, "/s")


async def _many_users(opener: Opener, size: Size) -> list[Figure]:
    generator = Generator()
    each = size.records // size.users
    users = [f"user-{number}" for number in range(size.users)]
    texts = {user: list(generator.episodes(user, each)) for user in users}
    questions = _questions(generator, texts, size.questions)
    async with opener() as engine, opener() as alone:
        for some in texts.values():
            await _put(engine, some)
        await _put(alone, texts[users[0]])
        cold = await _asked(engine, [(user, questions[0][1]) for user in texts])
        warm = await _asked(engine, questions)
        own = [(user, text) for user, text in questions if user == users[0]]
        ratio = await _ratio(engine, alone, own)
        name = engine.name
    return [
        *_percentiles(f"{size.users} users, first searches", name, cold),
        *_percentiles(f"{size.users} users", name, warm),
        Figure(SECTION, "a user among others, to alone", name, ratio, "x"),
    ]


async def _ratio(many: Engine, alone: Engine, questions: Sequence[tuple[str, str]]) -> float:
    """Return the time of searches among other users to that without them, asked in turns.

    It is processor time, because another program may take a processor for a moment.
    """
    among: list[float] = []
    without: list[float] = []
    await _asked(alone, questions)  # the first searches build its index
    for question in [*questions] * _REPEATS:
        among += [cost.processor for cost in await _asked(many, [question])]
        without += [cost.processor for cost in await _asked(alone, [question])]
    return percentile(among, 0.5) / percentile(without, 0.5)


def _questions(
    generator: Generator, texts: Mapping[str, Sequence[Episode]], count: int
) -> list[tuple[str, str]]:
    """Return questions, each with its user: every user in turn, about texts spread over all."""
    users = list(texts)
    asked = []
    for number in range(count):
        user = users[number % len(users)]
        some = texts[user]
        about = some[number * len(some) // count]
        asked.append((user, generator.question(about.content)))
    return asked


async def _put(engine: Engine, episodes: Sequence[Episode]) -> Cost:
    """Store episodes; return what it took."""

    async def put() -> None:
        for first in range(0, len(episodes), _PUT_AT_ONCE):
            await engine.put(episodes[first : first + _PUT_AT_ONCE])

    return await timed_async(put())


async def _asked(engine: Engine, questions: Sequence[tuple[str, str]]) -> list[Cost]:
    """Return what each search took."""
    return [await timed_async(engine.search(user, text, _LIMIT)) for user, text in questions]


def _percentiles(case: str, engine: str, costs: Sequence[Cost]) -> Iterator[Figure]:
    walls = [cost.wall * _MILLISECONDS for cost in costs]
    processors = [cost.processor * _MILLISECONDS for cost in costs]
    yield Figure(SECTION, f"{case}, p50", engine, percentile(walls, 0.5), "ms")
    yield Figure(SECTION, f"{case}, p95", engine, percentile(walls, 0.95), "ms")
    yield Figure(SECTION, f"{case}, p50 of processor", engine, percentile(processors, 0.5), "ms")
