"""Run the held-out conversations through the engine, and say how many end right."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from slumberd.model.episode import Episode
from slumberd.model.fact import Fact, FactPattern
from slumberd.model.predicates import ManyBut
from slumberd.rules.vocabulary_loader import conversation_extraction
from tests.support.builders import START, rule
from tests.support.open_stores import open_stores

HELD_OUT = Path(__file__).parent / "held_out"
_MOST_FURTHER_WORDS = 2


class Outcome(NamedTuple):
    """What became of one conversation.

    Attributes:
        name: Of the conversation.
        wrong: What is missing or should not be there, in words; empty when it ended right.
    """

    name: str
    wrong: list[str]


def read(name: str) -> Any:
    """Return the conversations of a file."""
    return yaml.safe_load((HELD_OUT / f"{name}.yaml").read_text(encoding="utf-8"))


async def measure_stories() -> list[Outcome]:
    """Return what became of each story."""
    stories = read("stories")
    facts = await _facts_of([story["turns"] for story in stories])
    return [
        Outcome(
            story["name"],
            [
                *_missing(story["expect"], known, f"u{number}"),
                *_present(story.get("gone", []), known, f"u{number}"),
            ],
        )
        for number, (story, known) in enumerate(zip(stories, facts, strict=True))
    ]


async def measure_traps() -> list[Outcome]:
    """Return which traps were taken."""
    traps = read("traps")
    facts = await _facts_of([trap["turns"] for trap in traps])
    found = []
    for trap, known in zip(traps, facts, strict=True):
        last = f":{len(trap['turns']) - 1}#"
        wrong = [
            f"{fact.payload['predicate']}: {fact.payload['object']}"
            for fact in known
            for forbidden in trap["not"]
            if (
                fact.payload["predicate"] == forbidden["predicate"]
                and _is_right(fact, [forbidden["object"]])
                if forbidden["predicate"]
                else last in fact.id
            )
        ]
        found.append(Outcome(trap["name"], wrong))
    return found


async def measure_paraphrases() -> list[Outcome]:
    """Return which paraphrases were understood."""
    cases = read("paraphrases")
    facts = await _facts_of(
        [[{"day": date(2026, 3, 1), "speaker": "user", "text": case["text"]}] for case in cases]
    )
    return [
        Outcome(case["text"], _missing([case["expect"]], known, f"u{number}"))
        for number, (case, known) in enumerate(zip(cases, facts, strict=True))
    ]


async def measure_chat() -> tuple[list[Outcome], list[str]]:
    """Return which questions of the assistant chat facts answer, and what is invented or stale."""
    chat = read("assistant_chat")
    [known] = await _facts_of([chat["turns"]])
    answers = [
        Outcome(one["ask"], _missing([{**one, "object": one["answer"]}], known, "u0"))
        for one in chat["questions"]
    ]
    return answers, _present(chat["not"], known, "u0")


async def _facts_of(conversations: Sequence[Sequence[dict[str, Any]]]) -> list[list[Fact]]:
    """Return the facts of each conversation; each has a user of its own."""
    extraction = conversation_extraction({})
    with tempfile.TemporaryDirectory() as folder:
        async with open_stores(Path(folder)) as home:
            channels = {"facts": ManyBut(extraction.single_valued)}
            await home.facts.ledger.set_channels(channels, at=START)
            for number, turns in enumerate(conversations):
                await home.put(*_episodes(number, turns))
            said = rule("all", extract=extraction, when_filter="is_person")
            await home.fire(said, when=datetime(2027, 1, 1, tzinfo=UTC))
            found = await home.facts.query(FactPattern())
    by_user: dict[str, list[Fact]] = {}
    for fact in found:
        by_user.setdefault(str(fact.payload["user"]), []).append(fact)
    return [by_user.get(f"u{number}", []) for number in range(len(conversations))]


def _episodes(number: int, turns: Sequence[dict[str, Any]]) -> Iterator[Episode]:
    for place, turn in enumerate(turns):
        day = datetime.combine(turn["day"], datetime.min.time(), UTC)
        yield Episode(
            id=f"c{number}:{place}", content=turn["text"], user=f"u{number}", agent="assistant",
            session=f"{turn['day']}", source_node="chat", metadata={"speaker": turn["speaker"]},
            timestamp=day + timedelta(hours=9, minutes=place),
        )  # fmt: skip


def _missing(expected: Sequence[dict[str, Any]], known: Sequence[Fact], user: str) -> list[str]:
    return [
        f"no {one['predicate']}: {one['object']}"
        for one in expected
        if not any(_says(fact, one, user) for fact in known)
    ]


def _present(gone: Sequence[dict[str, Any]], known: Sequence[Fact], user: str) -> list[str]:
    return [
        f"still {one['predicate']}: {fact.payload['object']}"
        for one in gone
        for fact in known
        if _says(fact, one, user)
    ]


def _says(fact: Fact, one: dict[str, Any], user: str) -> bool:
    subject = str(one["subject"]).replace("{user}", user)
    return (
        str(fact.payload["subject"]).casefold() == subject.casefold()
        and fact.payload["predicate"] == one["predicate"]
        and _is_right(fact, [one["object"], *one.get("accept", [])])
    )


def _is_right(fact: Fact, accepted: Sequence[object]) -> bool:
    """Return whether an object equals an accepted one, or has at most two further words."""
    words = f" {fact.payload['object']} ".casefold()
    return any(
        f" {text} ".casefold() in words
        and len(words.split()) <= len(str(text).split()) + _MOST_FURTHER_WORDS
        for text in accepted
    )
