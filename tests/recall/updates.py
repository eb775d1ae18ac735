"""Measure whether the context of a question tells the current value from a replaced one."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from slumberd.model.episode import Episode
from tests.recall.conversations import Conversations, Update
from tests.recall.engine import Engine, Ledger, Prompt
from tests.recall.figures import BUDGETS, UNMARKED, Figure

BUDGET = BUDGETS[0]
"""Tokens of a context."""

NEWEST = "newest only"
MARKED = "both, the old one marked"
BOTH = "both, without a mark"
STALE = "stale only"
NEITHER = "neither"
CLASSES = (NEWEST, MARKED, BOTH, STALE, NEITHER)

QUOTED = "replaced sentences in contexts"


async def measure(conversations: Conversations, engine: Engine) -> list[Figure]:
    """Return how many updates are of each class, as the corpus names old and new turns."""
    counts: Counter[str] = Counter()
    for update in conversations.updates:
        prompt = await engine.context(update.user, update.text, BUDGET)
        counts[class_of(prompt, update)] += 1
    return list(_figures(conversations, engine, counts, "updates"))


async def measure_stated(
    conversations: Conversations, engine: Engine, ledgers: Mapping[str, Ledger]
) -> list[Figure]:
    """Return the same for updates that a host has stated: the ledger says what is replaced."""
    counts: Counter[str] = Counter()
    for update in conversations.updates:
        ledger = ledgers[update.user]
        prompt = await engine.context(update.user, update.text, BUDGET)
        known = update._replace(old=update.old & ledger.replaced)
        counts[class_of(prompt, known)] += 1
        counts += count_marks(prompt, ledger)
    figures = list(_figures(conversations, engine, counts, "stated updates"))
    section = conversations.name
    return figures + [
        Figure(section, f"stated updates: {name}", engine.name, counts[name])
        for name in (QUOTED, UNMARKED)
        if conversations.updates
    ]


def class_of(prompt: Prompt, update: Update) -> str:
    """Return the class of a context.

    A marked sentence names what has replaced it, so it counts as both.
    """
    old = update.old.intersection(prompt.ids)
    if not old:
        return NEWEST if update.new & prompt.episodes else NEITHER
    if old <= prompt.marked:
        return MARKED
    return BOTH if update.new & prompt.episodes else STALE


def count_marks(prompt: Prompt, ledger: Ledger) -> Counter[str]:
    """Count the quoted sentences that the ledger has replaced, and those without a mark."""
    replaced = ledger.replaced.intersection(prompt.ids)
    return Counter({QUOTED: len(replaced), UNMARKED: len(replaced - prompt.marked)})


def stated(conversations: Conversations) -> Conversations:
    """Return conversations whose host states what each update says.

    The first turn with the old value, and the first with the new one, have a triple.
    """
    places = {episode.id: number for number, episode in enumerate(conversations.episodes)}
    triples: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for number, update in enumerate(conversations.updates):
        for turns, value in zip((update.old, update.new), update.values, strict=True):
            first = min(turns, key=places.__getitem__)
            triples[first].append(
                {
                    "subject": update.user,
                    "predicate": f"update_{number}",
                    "object": value,
                    "intent": "set",  # a starter's predicates hold many values
                }
            )
    episodes = [_with(episode, triples.get(episode.id, ())) for episode in conversations.episodes]
    return conversations._replace(episodes=episodes)


def _with(episode: Episode, triples: Sequence[dict[str, Any]]) -> Episode:
    if not triples:
        return episode
    return episode.model_copy(update={"metadata": {**episode.metadata, "triples": [*triples]}})


def _figures(
    conversations: Conversations, engine: Engine, counts: Counter[str], what: str
) -> Iterator[Figure]:
    for name in CLASSES if conversations.updates else ():
        yield Figure(conversations.name, f"{what}: {name}", engine.name, counts[name])
