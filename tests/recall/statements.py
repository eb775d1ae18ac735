"""Compare the facts that a memory learns with what people stated.

The stories and the chat are the held-out conversations of
``tests/consolidation/extraction/held_out``. LoCoMo's observations are mostly feelings, so their
figure has no bar.
"""

from __future__ import annotations

import gzip
import re
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

import orjson
import yaml

from slumberd.model.episode import Episode
from slumberd.operations.facts import KnownFact
from tests.recall.conversations import Conversations, read_locomo
from tests.recall.engine import Engine, Ledger, Opener
from tests.recall.evidence import ledgers_of, put_all
from tests.recall.figures import UNMARKED, Figure
from tests.recall.updates import BUDGET, QUOTED, count_marks
from tests.support.repository import TESTS

SECTION = "statements"
HELD_OUT = TESTS / "consolidation" / "extraction" / "held_out"

_MORE_WORDS = 2
"""So many further words may stand beside the right object."""

_PERSON = "user"
"""The speaker who is the person, by default."""

_TURN = timedelta(seconds=30)
_LETTERS = 4
"""A word with fewer letters says little."""

_WORD = re.compile(r"\w+")


class Statement(NamedTuple):
    """A fact that holds after a conversation, or does not.

    Attributes:
        subject: What it is about.
        predicate: What it says.
        objects: The values that count as this statement, casefolded.
        question: Who asks for it, in words; empty for nobody.
    """

    subject: str
    predicate: str
    objects: frozenset[str]
    question: str = ""


class Story(NamedTuple):
    """A conversation with the statements that must be facts at its end, and must not.

    Attributes:
        user: Whose memory.
        episodes: Its turns.
        expected: What must be a fact.
        wrong: What must be no fact.
    """

    user: str
    episodes: list[Episode]
    expected: list[Statement]
    wrong: list[Statement]


async def measure(
    openers: Sequence[Opener], held_out: Path = HELD_OUT, data: Path | None = None
) -> list[Figure]:
    """Return the figures of each engine with a ledger.

    Args:
        openers: Open the engines.
        held_out: The directory of the stories.
        data: The directory of LoCoMo; None, or one without it, leaves the observations out.
    """
    stories, chat = read_stories(held_out / "stories.yaml"), read_chat(held_out)
    figures: list[Figure] = []
    for opener in openers:
        started = time.perf_counter()
        async with opener() as engine:
            if await engine.ledger("nobody") is None:
                continue
            figures += await _told(engine, "stories", stories)
            figures += await _told(engine, "chat", chat)
        if data is not None and (data / _OBSERVATIONS).exists():
            figures += await _observed(opener, data)
        seconds = time.perf_counter() - started
        figures.append(Figure(SECTION, "seconds", engine.name, seconds, "s"))
    return figures


async def _told(engine: Engine, what: str, stories: Sequence[Story]) -> list[Figure]:
    counts: Counter[str] = Counter()
    for story in stories:
        await engine.put(story.episodes)
        ledger = await engine.ledger(story.user)
        assert ledger is not None
        counts += judge(ledger.facts, story)
        counts += await _marks(engine, story, ledger)
    expected, wrong = counts["expected"] or 1, counts["wrong"] or 1
    return [
        Figure(SECTION, f"{what}: expected facts", engine.name, counts["found"] / expected),
        Figure(SECTION, f"{what}: stale or invented facts", engine.name, counts["held"] / wrong),
        Figure(SECTION, f"{what}: facts", engine.name, counts["facts"]),
        Figure(SECTION, f"{what}: right at the end", engine.name, counts["right"]),
        Figure(SECTION, f"{what}: {QUOTED}", engine.name, counts[QUOTED]),
        Figure(SECTION, f"{what}: {UNMARKED}", engine.name, counts[UNMARKED]),
    ]


async def _marks(engine: Engine, story: Story, ledger: Ledger) -> Counter[str]:
    """Count the marks in the contexts of what the story is asked."""
    counts: Counter[str] = Counter()
    for one in story.expected or story.wrong:
        question = one.question or f"{one.subject} {one.predicate.replace('_', ' ')}"
        counts += count_marks(await engine.context(story.user, question, BUDGET), ledger)
    return counts


def judge(facts: Sequence[KnownFact], story: Story) -> Counter[str]:
    """Count which statements of a story are facts, and which should not be."""
    found = [one for one in story.expected if any(says(fact.payload, one) for fact in facts)]
    held = [one for one in story.wrong if any(says(fact.payload, one) for fact in facts)]
    return Counter(
        {
            "expected": len(story.expected),
            "found": len(found),
            "wrong": len(story.wrong),
            "held": len(held),
            "facts": len(facts),
            "right": len(found) == len(story.expected) and not held,
        }
    )


def says(payload: Mapping[str, Any], statement: Statement) -> bool:
    """Return whether a fact is a statement; its object may have two further words."""
    if str(payload.get("subject")).casefold() != statement.subject.casefold():
        return False
    if payload.get("predicate") != statement.predicate:
        return False
    words = _words(str(payload.get("object")))
    return any(_contains(words, _words(right)) for right in statement.objects)


def _contains(words: Sequence[str], right: Sequence[str]) -> bool:
    """Return whether words are the right ones in a row, with at most two others."""
    spare = len(words) - len(right)
    if not right or not 0 <= spare <= _MORE_WORDS:
        return False
    return any([*right] == [*words[at : at + len(right)]] for at in range(spare + 1))


def _words(text: str) -> list[str]:
    return _WORD.findall(text.casefold())


def read_stories(path: Path) -> list[Story]:
    """Read stories; each is the memory of one user."""
    rows = yaml.safe_load(path.read_text())
    return [
        _story(f"story-{number}", row, row.get("expect", []), row.get("gone", []))
        for number, row in enumerate(rows)
    ]


def read_chat(held_out: Path) -> list[Story]:
    """Read the chat with its questions, as a story."""
    row = yaml.safe_load((held_out / "assistant_chat.yaml").read_text())
    return [_story("chat", row, row["questions"], row.get("not", []))]


def _story(
    user: str, row: dict[str, Any], expected: list[dict[str, Any]], wrong: list[dict[str, Any]]
) -> Story:
    return Story(
        user,
        list(_episodes(user, row["turns"])),
        [_statement(user, one) for one in expected],
        [_statement(user, one) for one in wrong],
    )


def _episodes(user: str, turns: Sequence[dict[str, Any]]) -> Iterator[Episode]:
    for number, turn in enumerate(turns):
        day = datetime.fromisoformat(str(turn["day"])).replace(tzinfo=UTC)
        yield Episode(
            id=f"{user}:{number}",
            content=turn["text"].strip(),
            timestamp=day + number * _TURN,
            source_node="chat_turn",
            agent="default",
            user=user,
            session="chat",
            metadata={"speaker": turn["speaker"]},
        )


def _statement(user: str, row: dict[str, Any]) -> Statement:
    right = [row.get("object", row.get("answer")), *row.get("accept", [])]
    return Statement(
        str(row.get("subject", "{user}")).replace("{user}", user),
        row["predicate"],
        frozenset(str(one).casefold() for one in right),
        row.get("ask", ""),
    )


_OBSERVATIONS = "locomo.observations.jsonl.gz"


async def _observed(opener: Opener, data: Path) -> list[Figure]:
    """Return the share of LoCoMo's observations of which a fact holds a telling word.

    Each speaker has a memory of their own, in which they are the person.
    """
    conversations = of_each_speaker(read_locomo(data))
    with gzip.open(data / _OBSERVATIONS) as file:
        observations = [orjson.loads(line) for line in file]
    async with opener() as engine:
        await put_all(engine, conversations)
        ledgers = await ledgers_of(engine, conversations)
    told: dict[str, set[str]] = {}
    for ledger in ledgers.values():
        for fact in ledger.facts:
            for episode in _sources(fact):
                told.setdefault(episode, set()).update(_telling(fact.payload))
    held = [
        row
        for row in observations
        if any(
            told.get(_own_id(row["subject"], id), set()) & _long_words(row["text"])
            for id in row["evidence"]
        )
    ]
    share = len(held) / (len(observations) or 1)
    return [Figure(SECTION, "observations with a fact", engine.name, share)]


def of_each_speaker(conversations: Conversations) -> Conversations:
    """Return each conversation once for each of its speakers, who is the person of that copy."""
    speakers = {(one.user, one.metadata["speaker"]) for one in conversations.episodes}
    copies = [
        one.model_copy(
            update={
                "id": _own_id(speaker, one.id),
                "user": f"{user}-{speaker}",
                "metadata": {**one.metadata, "speaker": _role(one, speaker)},
            }
        )
        for user, speaker in sorted(speakers)
        for one in conversations.episodes
        if one.user == user
    ]
    return Conversations(conversations.name, copies, [])


def _role(episode: Episode, person: str) -> str:
    speaker = str(episode.metadata["speaker"])
    return _PERSON if speaker == person else speaker


def _own_id(speaker: str, id: str) -> str:
    return f"{speaker}:{id}"


def _sources(fact: KnownFact) -> Iterator[str]:
    for step in fact.lineage:
        if "rule_id" in step:
            yield from step["source_episode_ids"]


def _telling(payload: Mapping[str, Any]) -> set[str]:
    return _long_words(str(payload.get("object")))


def _long_words(text: str) -> set[str]:
    return {word for word in _words(text) if len(word) >= _LETTERS}
