"""Measure how much of the evidence of questions a search finds."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from statistics import fmean

from tests.recall.conversations import Conversations, Question
from tests.recall.engine import Engine, Opener
from tests.recall.figures import Figure

DEPTHS = (5, 10, 50)

_PUT_AT_ONCE = 1_000


async def measure(conversations: Conversations, openers: Sequence[Opener]) -> list[Figure]:
    """Return the recall of each engine at each depth."""
    figures: list[Figure] = []
    for opener in openers:
        async with opener() as engine:
            await put_all(engine, conversations)
            found = [
                await engine.search(q.user, q.text, DEPTHS[-1]) for q in conversations.questions
            ]
            figures += _figures(conversations, engine.name, found)
    return figures


async def put_all(engine: Engine, conversations: Conversations) -> None:
    """Store all episodes, a thousand in a transaction."""
    episodes = conversations.episodes
    for first in range(0, len(episodes), _PUT_AT_ONCE):
        await engine.put(episodes[first : first + _PUT_AT_ONCE])


def recall(found: Sequence[str], evidence: frozenset[str], depth: int) -> float:
    """Return the share of the evidence among the first hits."""
    return len(evidence.intersection(found[:depth])) / len(evidence)


def _figures(
    conversations: Conversations, engine: str, found: Sequence[Sequence[str]]
) -> list[Figure]:
    section, pairs = conversations.name, list(zip(conversations.questions, found, strict=True))
    figures = [Figure(section, f"recall @{depth}", engine, _mean(pairs, depth)) for depth in DEPTHS]
    by_kind: dict[str, list[tuple[Question, Sequence[str]]]] = defaultdict(list)
    for question, ids in pairs:
        by_kind[question.kind].append((question, ids))
    for kind, some in sorted(by_kind.items()):
        name = f"recall @10 of {kind} ({len(some)})"
        figures.append(Figure(section, name, engine, _mean(some, 10)))
    return figures


def _mean(pairs: Sequence[tuple[Question, Sequence[str]]], depth: int) -> float:
    return fmean(recall(found, question.evidence, depth) for question, found in pairs)
