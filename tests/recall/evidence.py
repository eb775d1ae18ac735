"""Measure how much of the evidence of questions a search finds, and a context holds."""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from statistics import fmean
from typing import NamedTuple

from tests.recall import updates
from tests.recall.conversations import Conversations, Question
from tests.recall.engine import Engine, Ledger, Opener, Prompt
from tests.recall.figures import (
    BASELINE,
    BUDGETS,
    DEPTHS,
    UNMARKED,
    Figure,
    by_rank,
    evidence_in,
    recall_at,
)

_PUT_AT_ONCE = 10_000
_KINDS_AT = 10


class Answered(NamedTuple):
    """What an engine finds for one question.

    Attributes:
        question: The question.
        found: The hits, best first.
        contexts: A context for each budget; none for the baseline.
        ranked: The first hits that fit, for each budget.
    """

    question: Question
    found: Sequence[str]
    contexts: Mapping[int, Prompt]
    ranked: Mapping[int, Prompt]


async def measure(
    conversations: Conversations, openers: Sequence[Opener], budgets: Sequence[int] = BUDGETS
) -> list[Figure]:
    """Return the figures of each engine: recall, contexts, updates, and seconds.

    Args:
        conversations: What is put, and asked.
        openers: Open the engines.
        budgets: The tokens of the contexts that are measured.
    """
    figures: list[Figure] = []
    for opener in openers:
        started = time.perf_counter()
        async with opener() as engine:
            await put_all(engine, conversations)
            answered = [
                await _answer(engine, question, budgets) for question in conversations.questions
            ]
            figures += _figures(conversations.name, engine.name, answered)
            ledgers = await ledgers_of(engine, conversations)
            figures += _marks(conversations.name, engine.name, answered, ledgers)
            figures += await updates.measure(conversations, engine)
        if conversations.updates and ledgers:
            figures += await _stated_updates(conversations, opener)
        seconds = time.perf_counter() - started
        figures.append(Figure(conversations.name, "seconds", engine.name, seconds, "s"))
    return figures


async def put_all(engine: Engine, conversations: Conversations) -> None:
    """Store all episodes, many in a transaction."""
    episodes = conversations.episodes
    for first in range(0, len(episodes), _PUT_AT_ONCE):
        await engine.put(episodes[first : first + _PUT_AT_ONCE])


async def ledgers_of(engine: Engine, conversations: Conversations) -> dict[str, Ledger]:
    """Return what the ledger says of each user; empty for an engine without a ledger."""
    users = dict.fromkeys(episode.user for episode in conversations.episodes)
    found = {user: await engine.ledger(user) for user in users}
    return {user: ledger for user, ledger in found.items() if ledger is not None}


def recall(found: Collection[str], evidence: frozenset[str]) -> float:
    """Return the share of the evidence that was found."""
    return len(evidence.intersection(found)) / len(evidence)


async def _stated_updates(conversations: Conversations, opener: Opener) -> list[Figure]:
    """Measure the updates again, when a host has stated what changes."""
    stated = updates.stated(conversations)
    async with opener() as engine:
        await put_all(engine, stated)
        ledgers = await ledgers_of(engine, stated)
        return await updates.measure_stated(stated, engine, ledgers)


async def _answer(engine: Engine, question: Question, budgets: Sequence[int]) -> Answered:
    user, text = question.user, question.text
    found = await engine.search(user, text, DEPTHS[-1])
    ranked = await engine.ranked(user, text, budgets) if budgets else ()
    # The contexts of the baseline have no budget.
    of_contexts = () if engine.name == BASELINE else budgets
    contexts = {budget: await engine.context(user, text, budget) for budget in of_contexts}
    return Answered(question, found, contexts, dict(zip(budgets, ranked, strict=True)))


def _figures(section: str, engine: str, answered: Sequence[Answered]) -> Iterator[Figure]:
    if not answered:
        return
    parts = sorted({one.question.part for one in answered})
    for part in ["", *(part for part in parts if part)]:
        some = [one for one in answered if part in ("", one.question.part)]
        suffix = f", {part}" if part else ""
        for name, share in _shares(some):
            yield Figure(section, name + suffix, engine, share)
    by_kind: dict[str, list[Answered]] = defaultdict(list)
    for one in answered:
        by_kind[one.question.kind].append(one)
    for kind, some in sorted(by_kind.items()):
        name = f"{recall_at(_KINDS_AT)} of {kind} ({len(some)})"
        yield Figure(section, name, engine, _recall_at(some, _KINDS_AT))


def _shares(answered: Sequence[Answered]) -> Iterator[tuple[str, float]]:
    for depth in DEPTHS:
        yield recall_at(depth), _recall_at(answered, depth)
    for budget in answered[0].ranked:
        if budget in answered[0].contexts:
            held = [recall(one.contexts[budget].episodes, _evidence(one)) for one in answered]
            yield evidence_in(budget), fmean(held)
        ranked = [recall(one.ranked[budget].ids, _evidence(one)) for one in answered]
        yield by_rank(budget), fmean(ranked)


def _evidence(one: Answered) -> frozenset[str]:
    return one.question.evidence


def _recall_at(answered: Sequence[Answered], depth: int) -> float:
    return fmean(recall(one.found[:depth], _evidence(one)) for one in answered)


def _marks(
    section: str, engine: str, answered: Sequence[Answered], ledgers: Mapping[str, Ledger]
) -> Iterator[Figure]:
    """Yield how often the contexts quote a replaced sentence, and how often without a mark."""
    if not ledgers:
        return
    counts: Counter[str] = Counter()
    for one in answered:
        for prompt in one.contexts.values():
            counts += updates.count_marks(prompt, ledgers[one.question.user])
    for name in (updates.QUOTED, UNMARKED):
        yield Figure(section, name, engine, counts[name])
    facts = sum(len(ledger.facts) for ledger in ledgers.values())
    yield Figure(section, "facts", engine, facts)
