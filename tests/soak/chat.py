"""Plain chat sentences of the soak, and what the rules with stages must make of them."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from slumberd.clock import SystemClock
from slumberd.model.episode import microseconds

AGENT = "chat"
"""The agent of all chat episodes, and of no other."""

UNPINNED = "c0"
"""The user whose marks people end."""

CHANNELS = {"heard": "chat", "wants": "wants"}
"""The channels of what is extracted, with the rule that fills each."""

DAY = 86_400_000_000
KNOWN_NUMBERS = 1_000
"""A writer says so much; then it edits what it said. The stages read all of it at each firing."""

LONG_SESSION = 6
"""A session with more episodes is summarised, all but its newest `RECENT`."""

RECENT = LONG_SESSION // 2
_TOGETHER = 20

HALF_LIFE_DAYS = 10
"""Episodes decay after 43 days. Those of the soak are 3 or 103 days old: no clock step matters."""

FINAL_STAGES: list[dict[str, Any]] = [
    {"extract": {"with": "conversation", "speakers": {"guest": "{user}"}}},
    {"dedup": {"method": "jaccard", "similarity": 0.85, "keep": "newest"}},
    {"decay": {"half_life": f"{HALF_LIFE_DAYS}d", "threshold": 0.05, "protect_importance": 0.8}},
    {"importance": {"below": 0.1}},
    {"summarise": {"when_more_than": LONG_SESSION, "max_tokens": 60}},
]
"""The stages at the end, which `expected_marks` computes again."""

Chat = dict[str, Any]

_IDLE = [
    "Hello there, friend!", "How are you doing today?", "Let us talk about the weather.",
    "Okay, see you tomorrow then.", "Thanks a lot for your help.",
    "Please play some quiet music.", "Remind me later of everything.",
]  # fmt: skip
_GREETINGS = ["", "", "Good evening! ", "Once more. "]
_IMPORTANCES = [None, None, None, 0.02, 0.05, 0.9]
_FOODS = ["thai", "greek", "indian"]


def user_of(id: str) -> str:
    """Return the user of a chat episode; its number alone determines it."""
    number = int(id.rpartition("-")[2])
    return f"gone{number // 400}" if number % 25 == 0 else f"c{number // 50}"


def session_of(id: str) -> str:
    """Return the session of a chat episode; an episode stays in its session."""
    return f"s{int(id.rpartition('-')[2]) // 2 % 2}"


def chats(name: str, chance: random.Random) -> Iterator[Chat]:
    """Yield random chat episodes; many are new versions of earlier ones."""
    base = microseconds(SystemClock().now()) - 3 * DAY
    count = edits = 0
    while True:
        number = count
        if count >= KNOWN_NUMBERS or (count and chance.random() < 0.25):
            number = chance.randrange(max(0, count - 60), count)
        if count >= KNOWN_NUMBERS and chance.random() < 0.5:
            number = chance.randrange(count)
        count = max(count, number + 1)
        edits += 1
        yield _random_chat(f"{name}-{number}", base, edits, chance)


def _random_chat(id: str, base: int, edit: int, chance: random.Random) -> Chat:
    old, user = chance.random() < 0.25, user_of(id)
    metadata: dict[str, Any] = {"edit": edit, "old": old}  # so no two versions are the same
    if (importance := chance.choice(_IMPORTANCES)) is not None:
        metadata["importance"] = importance
    return {
        "id": id, "user": user, "agent": AGENT, "session": session_of(id),
        "at": base + chance.randrange(DAY // 2) - (100 * DAY if old else 0),
        "metadata": metadata, **_random_saying(user, chance),
    }  # fmt: skip


def _random_saying(user: str, chance: random.Random) -> Chat:
    """Return a text, and what each rule must extract from it, with the place of each."""
    heard: list[list[Any]] = []
    wants: list[list[Any]] = []
    text = chance.choice(_GREETINGS)
    kind = chance.random()
    if kind < 0.4:
        text += chance.choice(_IDLE)
    elif kind < 0.55:
        food = chance.choice(_FOODS)
        start = len(text) + len("I want some ")
        wants.append(["restaurant", "food", food, start, start + len(food)])
        text += f"I want some {food} food."
    else:
        for subject, predicate, sentence, what in _random_sentences(user, chance):
            text += " " if text and not text.endswith(" ") else ""
            heard.append([subject, predicate, what, len(text), len(text) + len(sentence)])
            text += sentence
    return {"content": text, "heard": heard, "wants": wants}


def _random_sentences(user: str, chance: random.Random) -> list[tuple[str, str, str, str]]:
    """Return sentences, each with its triple; each subject occurs once."""
    job = chance.choice(["chef", "nurse", "pilot"])
    city, town = chance.choice(["Rome", "Oslo"]), chance.choice(["Leeds", "York"])
    sentences = [
        (user, "lives_in", f"I live in {city}.", city),
        (f"{user}'s mother", "lives_in", f"My mum lives in {town}.", town),
        (f"{user}'s father", "job", f"My dad is a {job}.", job),
    ]
    return chance.sample(sentences, chance.randrange(1, 3))


class Marked(NamedTuple):
    """What a mark says of an episode: its predicate and its object."""

    kind: str
    object: str


def expected_marks(existing: Iterable[Chat]) -> dict[str, Marked]:
    """Return the marks that `FINAL_STAGES` make of episodes, by id; those of one user or several.

    No two texts of the soak are similar unless they are equal.
    """
    by_user: dict[str, list[Chat]] = defaultdict(list)
    for episode in sorted(existing, key=lambda one: (one["at"], one["id"])):
        by_user[episode["user"]].append(episode)
    marks: dict[str, Marked] = {}
    for episodes in by_user.values():
        marks |= _marks_of_user(episodes)
    return marks


def _marks_of_user(episodes: Sequence[Chat]) -> dict[str, Marked]:
    by_text: dict[str, list[Chat]] = defaultdict(list)
    for episode in episodes:
        by_text[episode["content"]].append(episode)
    marks: dict[str, Marked] = {}
    for *repeats, kept in by_text.values():
        marks |= {one["id"]: Marked("duplicate_of", kept["id"]) for one in repeats}
        importance = max(one["metadata"].get("importance", 0.5) for one in [*repeats, kept])
        if kept["metadata"].get("old") and importance < 0.8:
            marks[kept["id"]] = Marked("archived", "decayed")
        elif importance < 0.1:
            marks[kept["id"]] = Marked("archived", "unimportant")
    return marks | _summarised([one for one in episodes if one["id"] not in marks])


def _summarised(live: Sequence[Chat]) -> dict[str, Marked]:
    """Return the marks of the episodes that summaries stand for."""
    sessions: dict[str, list[Chat]] = defaultdict(list)
    for episode in live:
        sessions[episode["session"]].append(episode)
    marks: dict[str, Marked] = {}
    for members in sessions.values():
        older = members[:-RECENT] if len(members) > LONG_SESSION else []
        parts = -(-len(older) // _TOGETHER)
        for part in range(parts):
            group = older[len(older) * part // parts : len(older) * (part + 1) // parts]
            into = Marked("summarised_into", f"@summaries/{group[0]['id']}")
            marks |= {episode["id"]: into for episode in group}
    return marks
