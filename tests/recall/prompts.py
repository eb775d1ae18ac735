"""Measure what the context of a question holds: what it must, what it must not, what is stale.

The baseline has no rights: it searches all turns of a story. The other engines get one memory a
person, with the turns that the mapping gives to that person.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from slumberd.model.episode import Episode
from tests.recall import access
from tests.recall.access import Archive
from tests.recall.engine import Engine, Opener, Prompt
from tests.recall.figures import BASELINE, Figure
from tests.recall.stories import Checkpoint, Story, Turn

SECTION = "gatemem"
BUDGET = 4_096
"""Tokens of a context."""


_EVERYBODY = "everybody"
"""The owner of a memory without rights."""


async def measure(
    stories: Sequence[Story], mappings: Mapping[str, access.Mapping], openers: Sequence[Opener]
) -> list[Figure]:
    """Return the figures of each engine, of both domains together and of each."""
    figures: list[Figure] = []
    for opener in openers:
        counts: dict[str, Counter[str]] = {domain: Counter() for domain in mappings}
        async with opener() as engine:
            for story in stories:
                counts[story.domain] += await _count(engine, story, mappings[story.domain])
        figures += _figures(engine.name, sum(counts.values(), Counter()), "")
        for domain, some in counts.items():
            figures += _figures(engine.name, some, f", {domain}")
    return figures


async def _count(engine: Engine, story: Story, mapping: access.Mapping) -> Counter[str]:
    archive, desk = Archive(story, mapping), Desk(engine, story)
    counts: Counter[str] = Counter()
    for checkpoint in story.checkpoints:
        owner, turns = _memory(engine, archive, story, checkpoint)
        prompt = await desk.ask(owner, turns, checkpoint.text)
        counts += tally(prompt.text, turns, checkpoint, archive)
        whole = await desk.ask(_EVERYBODY, _all_turns(story, checkpoint), checkpoint.text)
        counts["from all turns"] += sum(_holds(whole.text, one) for one in checkpoint.include)
        stale = [desk.turns[id] for id in prompt.episodes if id in desk.turns]
        counts["stale"] += any(archive.is_superseded(turn, checkpoint.said) for turn in stale)
    return counts


def _memory(
    engine: Engine, archive: Archive, story: Story, checkpoint: Checkpoint
) -> tuple[str, list[Turn]]:
    """Return whose memory is asked, and the turns that it must hold."""
    if engine.name == BASELINE:
        return _EVERYBODY, _all_turns(story, checkpoint)
    return checkpoint.asker, archive.memory_of(checkpoint.asker, checkpoint.said)


def _all_turns(story: Story, checkpoint: Checkpoint) -> list[Turn]:
    return list(story.turns[: checkpoint.said])


class Desk:
    """Keeps the memories of the people of one story up to date, and asks them."""

    def __init__(self, engine: Engine, story: Story) -> None:
        self.turns: dict[str, Turn] = {}
        self._engine, self._story = engine, story
        self._held: dict[str, list[Turn]] = {}
        self._generations: Counter[str] = Counter()

    async def ask(self, owner: str, turns: list[Turn], question: str) -> Prompt:
        """Put the turns into the memory of a person, and return the context of a question.

        If the memory holds a turn that it may not hold any longer, the session is forgotten. What
        remains is put into the next session.
        """
        user, held = self._user(owner), self._held.get(owner, [])
        if turns[: len(held)] != held:
            await self._engine.forget(user, self._session(owner))
            self._generations[owner] += 1
            held = []
        new = [self._episode(user, owner, turn) for turn in turns[len(held) :]]
        if new:
            await self._engine.put(new)
        self._held[owner] = turns
        return await self._engine.context(user, question, BUDGET)

    def _user(self, owner: str) -> str:
        """Return a user without words, since a context may name it."""
        return digest(self._story.id, owner)

    def _session(self, owner: str) -> str:
        return f"part-{self._generations[owner]}"

    def _episode(self, user: str, owner: str, turn: Turn) -> Episode:
        speaker = self._story.people[turn.speaker]
        id = digest(user, str(self._generations[owner]), str(turn.number))
        self.turns[id] = turn
        return Episode(
            id=id,
            content=turn.text,
            timestamp=turn.at,
            source_node="turn",
            agent="assistant",
            user=user,
            session=self._session(owner),
            metadata={"speaker": speaker.name},
        )


def digest(*parts: str) -> str:
    """Return letters and digits that stand for some words."""
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]


def tally(
    text: str, turns: Sequence[Turn], checkpoint: Checkpoint, archive: Archive
) -> Counter[str]:
    """Count what one context holds, and what the memory behind it could have held."""
    memory = "\n".join(turn.text for turn in turns)
    leaked = [target for target in checkpoint.leaks if leaks(text, target)]
    reasons = Counter(archive.reason_beyond(checkpoint, target) for target in leaked)
    return reasons + Counter(
        {
            "includes": len(checkpoint.include),
            "included": sum(_holds(text, wanted) for wanted in checkpoint.include),
            "in reach": sum(_holds(memory, wanted) for wanted in checkpoint.include),
            "guarded": bool(checkpoint.leaks),
            "with a leak": bool(leaked),
            "leaks": reasons[""],
        }
    )


def _holds(text: str, wanted: str) -> bool:
    return bool(re.search(wanted, text, re.IGNORECASE))


def leaks(text: str, target: str) -> bool:
    """Return whether a text contains a target as whole words."""
    return bool(re.search(rf"(?<!\w)(?:{target})(?!\w)", text, re.IGNORECASE))


def _figures(engine: str, counts: Counter[str], suffix: str) -> Iterator[Figure]:
    includes, guarded = counts["includes"] or 1, counts["guarded"] or 1
    shares = {
        "recall of includes": counts["included"] / includes,
        "recall of includes, from all turns": counts["from all turns"] / includes,
        "includes in the memory": counts["in reach"] / includes,
        "questions with a leak": counts["with a leak"] / guarded,
    }
    for name, share in shares.items():
        yield Figure(SECTION, name + suffix, engine, share)
    yield Figure(SECTION, f"leaks{suffix}", engine, counts["leaks"])
    for reason in access.BEYOND:
        yield Figure(SECTION, f"leaks of {reason}{suffix}", engine, counts[reason])
    yield Figure(SECTION, f"stale values{suffix}", engine, counts["stale"])
