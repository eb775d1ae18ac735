"""Measure how many cases of precisionMemBench get exactly the relevant beliefs.

A belief is found by its names only: the cases say that its content is no way to find it. It is a
fact that states its names. A scope is an agent of the user.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import fmean

from tests.recall.beliefs import Benchmark, Case
from tests.recall.engine import Engine, Named, Opener
from tests.recall.figures import Figure

SECTION = "precision"


async def measure(benchmark: Benchmark, openers: Sequence[Opener]) -> list[Figure]:
    """Return the figures of each engine."""
    figures: list[Figure] = []
    for opener in openers:
        async with opener() as engine:
            await engine.declare([*_named(benchmark)])
            tiers = [await _tier(engine, benchmark, case) for case in benchmark.cases]
        figures += _figures(engine.name, benchmark.cases, tiers)
    return figures


def _named(benchmark: Benchmark) -> Iterator[Named]:
    for belief in benchmark.beliefs.values():
        if belief.is_searched:
            for scope in sorted(belief.scopes):
                yield Named(f"{belief.id}@{scope}", belief.user, scope, belief.names)


async def _tier(engine: Engine, benchmark: Benchmark, case: Case) -> list[str]:
    found: list[str] = []
    for scope in case.scopes if case.query.strip() else ():
        ids = await engine.search_names(case.user, scope, case.query)
        found += [id.rpartition("@")[0] for id in ids]
    return benchmark.tier(case, found)


def _figures(engine: str, cases: Sequence[Case], tiers: Sequence[list[str]]) -> list[Figure]:
    pairs = list(zip(cases, tiers, strict=True))
    passed = sum(case.passes(tier) for case, tier in pairs)
    shares = [case.precision(tier) for case, tier in pairs]
    mean = fmean(share for share in shares if share is not None)
    return [
        Figure(SECTION, f"cases passed of {len(cases)}", engine, passed),
        Figure(SECTION, "mean precision", engine, mean),
    ]
