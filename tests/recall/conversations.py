"""Read conversations with questions and their evidence: LoCoMo and BEAM.

LoCoMo is two files of JSON lines. BEAM is the directory ``chats/100K`` of its public repository.
"""

from __future__ import annotations

import gzip
import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

import orjson

from slumberd.model.episode import Episode

_START = datetime(2024, 1, 1, tzinfo=UTC)
_TURN = timedelta(seconds=30)

_PLAN_MARK = re.compile(r"\s*->->[\d,.NA/ )]*\s*$")
"""The reference to its plan that BEAM leaves at the end of a turn."""

_UNMEASURED = "summarization"
"""BEAM's summaries have half a chat as evidence: no ten turns contain it."""


class Question(NamedTuple):
    """A question to the memory of one user.

    Attributes:
        user: Whose memory.
        text: The question.
        kind: Its category in the corpus.
        evidence: The ids of the episodes that answer it.
    """

    user: str
    text: str
    kind: str
    evidence: frozenset[str]


class Conversations(NamedTuple):
    """Episodes of many users, and the questions that have evidence."""

    name: str
    episodes: list[Episode]
    questions: list[Question]


def read_locomo(folder: Path) -> Conversations:
    """Read ``locomo.episodes`` and ``locomo.questions`` of a directory."""
    episodes = [Episode.model_validate(row) for row in _lines(folder / "locomo.episodes.jsonl.gz")]
    questions = [
        Question(row["user"], row["question"], row["category"], frozenset(row["evidence"]))
        for row in _lines(folder / "locomo.questions.jsonl.gz")
        if row["evidence"]
    ]
    return Conversations("locomo", episodes, questions)


def read_beam(folder: Path) -> Conversations:
    """Read the chats of a directory that has a subdirectory with a number for each of them."""
    episodes: list[Episode] = []
    questions: list[Question] = []
    numbers = [path.name for path in folder.iterdir() if path.name.isdecimal()]
    for number in sorted(numbers, key=int):
        batches = orjson.loads((folder / number / "chat.json").read_bytes())
        episodes += _beam_episodes(number, batches)
        asked = folder / number / "probing_questions" / "probing_questions.json"
        questions += _beam_questions(number, orjson.loads(asked.read_bytes()))
    return Conversations("beam", episodes, questions)


def _beam_episodes(number: str, batches: list[dict[str, Any]]) -> Iterator[Episode]:
    at = _START
    for batch in batches:
        anchor = batch.get("time_anchor")
        for turn in (turn for group in batch["turns"] for turn in group):
            at = _instant(turn.get("time_anchor") or anchor, after=at)
            anchor = None
            yield Episode(
                id=_beam_id(number, turn["id"]),
                content=_PLAN_MARK.sub("", turn["content"]),
                timestamp=at,
                source_node="chat_turn",
                agent=turn["role"],
                user=f"beam-{number}",
                session=f"batch_{batch['batch_number']}",
                metadata={"speaker": turn["role"]},
            )


def _instant(anchor: str | None, *, after: datetime) -> datetime:
    """Return the day that a turn names, if it is later; else a moment after the turn before."""
    if anchor:
        day = datetime.strptime(anchor, "%B-%d-%Y").replace(tzinfo=UTC)
        if day > after:
            return day
    return after + _TURN


def _beam_questions(number: str, by_kind: dict[str, list[dict[str, Any]]]) -> Iterator[Question]:
    for kind, asked in by_kind.items():
        for row in asked:
            turns = {_beam_id(number, id) for id in _leaves(row.get("source_chat_ids"))}
            if turns and kind != _UNMEASURED:
                yield Question(f"beam-{number}", row["question"], kind, frozenset(turns))


def _leaves(ids: Any) -> Iterator[int]:
    """Yield the numbers of a list, of lists in a list, or of lists by name."""
    match ids:
        case list():
            for part in ids:
                yield from _leaves(part)
        case dict():
            yield from _leaves(list(ids.values()))
        case int():
            yield ids
        case _:
            return


def _beam_id(number: str, turn: int) -> str:
    return f"beam:{number}:{turn}"


def _lines(path: Path) -> Iterator[dict[str, Any]]:
    with gzip.open(path) as file:
        for line in file:
            yield orjson.loads(line)
