"""Measure how much of the evidence of questions a search finds, and a context holds."""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial
from statistics import fmean
from typing import NamedTuple

from tests.recall import updates
from tests.recall.conversations import Conversations, Question
from tests.recall.engine import Engine, Ledger, Line, Opener, Prompt
from tests.recall.figures import (
    BASELINE,
    BUDGETS,
    DEPTHS,
    UNMARKED,
    UNMARKED_HITS,
    Figure,
    by_rank,
    evidence_in,
    leading_hits,
    recall_at,
)
from tests.recall.prompts_of_hits import FRAME

_PUT_AT_ONCE = 10_000
_KINDS_AT = 10
_REPLACED_HITS = "replaced hits"


class Answered(NamedTuple):
    """What an engine finds for one question.

    Attributes:
        question: The question.
        found: The hits, best first.
        contexts: A context for each budget; none for the baseline.
    """

    question: Question
    found: Sequence[Line]
    contexts: Mapping[int, Prompt]


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
            figures += _figures(conversations.name, engine.name, answered, budgets)
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
    # The contexts of the baseline have no budget.
    of_contexts = () if engine.name == BASELINE else budgets
    contexts = {budget: await engine.context(user, text, budget) for budget in of_contexts}
    return Answered(question, await engine.ranked(user, text, DEPTHS[-1]), contexts)


def fill(lines: Sequence[Line], budget: int, *, leading: bool) -> list[str]:
    """Return the episodes of the best lines that fit into a budget together.

    Args:
        lines: The lines, best first.
        budget: At most this many tokens.
        leading: Whether the first line that does not fit ends the list; else it is left out.
    """
    taken: list[str] = []
    for line in lines:
        if line.tokens <= budget:
            taken.append(line.id)
            budget -= line.tokens
        elif leading:
            break
    return taken


def _figures(
    section: str, engine: str, answered: Sequence[Answered], budgets: Sequence[int]
) -> Iterator[Figure]:
    if not answered:
        return
    parts = sorted({one.question.part for one in answered})
    for part in ["", *(part for part in parts if part)]:
        some = [one for one in answered if part in ("", one.question.part)]
        suffix = f", {part}" if part else ""
        for name, share in _shares(some, budgets):
            yield Figure(section, name + suffix, engine, share)
    by_kind: dict[str, list[Answered]] = defaultdict(list)
    for one in answered:
        by_kind[one.question.kind].append(one)
    for kind, some in sorted(by_kind.items()):
        name = f"{recall_at(_KINDS_AT)} of {kind} ({len(some)})"
        yield Figure(section, name, engine, _recall_at(some, _KINDS_AT))


def _shares(answered: Sequence[Answered], budgets: Sequence[int]) -> Iterator[tuple[str, float]]:
    for depth in DEPTHS:
        yield recall_at(depth), _recall_at(answered, depth)
    for budget in budgets:
        if budget in answered[0].contexts:
            yield evidence_in(budget), _mean(answered, partial(_held, budget=budget))
        for name, leading in ((by_rank(budget), False), (leading_hits(budget), True)):
            fitting = partial(_fitting, budget=budget, leading=leading)
            yield name, _mean(answered, fitting)


def _held(one: Answered, *, budget: int) -> frozenset[str]:
    return one.contexts[budget].episodes


def _fitting(one: Answered, *, budget: int, leading: bool) -> list[str]:
    return fill(one.found, budget - FRAME, leading=leading)


def _recall_at(answered: Sequence[Answered], depth: int) -> float:
    return _mean(answered, lambda one: [line.id for line in one.found[:depth]])


def _mean(answered: Sequence[Answered], found: Callable[[Answered], Collection[str]]) -> float:
    return fmean(recall(found(one), one.question.evidence) for one in answered)


def _marks(
    section: str, engine: str, answered: Sequence[Answered], ledgers: Mapping[str, Ledger]
) -> Iterator[Figure]:
    """Yield how often contexts and hits quote a replaced sentence, and how often unmarked."""
    if not ledgers:
        return
    counts: Counter[str] = Counter()
    for one in answered:
        ledger = ledgers[one.question.user]
        for prompt in one.contexts.values():
            counts += updates.count_marks(prompt, ledger)
        replaced = [line for line in one.found if line.id in ledger.replaced]
        unmarked = [line for line in replaced if not line.marked]
        counts += Counter({_REPLACED_HITS: len(replaced), UNMARKED_HITS: len(unmarked)})
    for name in (updates.QUOTED, UNMARKED, _REPLACED_HITS, UNMARKED_HITS):
        yield Figure(section, name, engine, counts[name])
    facts = sum(len(ledger.facts) for ledger in ledgers.values())
    yield Figure(section, "facts", engine, facts)
