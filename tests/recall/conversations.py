"""Read conversations with questions and their evidence: LoCoMo, BEAM and REALTALK.

LoCoMo is two files of JSON lines. BEAM is a directory such as ``chats/100K`` of its public
repository. REALTALK is a directory with a JSON file for each of its ten chats.
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

_UPDATES = "knowledge_update"

_TURN_ID = re.compile(r"D\d+:\d+")
_SESSION = re.compile(r"session_\d+")
_REALTALK_TIME = "%d.%m.%Y, %H:%M:%S"

LAST_OF_DEV = 5
"""The chats of REALTALK up to this number may be read while rules are written."""

DEV, HELD_OUT = "dev", "held out"


class Question(NamedTuple):
    """A question to the memory of one user.

    Attributes:
        user: Whose memory.
        text: The question.
        kind: Its category in the corpus.
        evidence: The ids of the episodes that answer it.
        part: The part of the corpus that has figures of its own; empty for none.
    """

    user: str
    text: str
    kind: str
    evidence: frozenset[str]
    part: str = ""


class Update(NamedTuple):
    """A question whose answer has changed in the conversation.

    Attributes:
        user: Whose memory.
        text: The question.
        old: The episodes that say what no longer holds.
        new: The episodes that say what holds.
        values: What they say: what held, and what holds.
    """

    user: str
    text: str
    old: frozenset[str]
    new: frozenset[str]
    values: tuple[str, str]


class Conversations(NamedTuple):
    """Episodes of many users, the questions that have evidence, and those about updates."""

    name: str
    episodes: list[Episode]
    questions: list[Question]
    updates: list[Update] = []  # noqa: RUF012 # never changed

    def first(self, most: int | None) -> Conversations:
        """Return those of the first users only; None for all."""
        users = dict.fromkeys(episode.user for episode in self.episodes)
        kept = set(list(users)[:most])
        return Conversations(
            self.name,
            [episode for episode in self.episodes if episode.user in kept],
            [question for question in self.questions if question.user in kept],
            [update for update in self.updates if update.user in kept],
        )


def read_locomo(folder: Path) -> Conversations:
    """Read ``locomo.episodes`` and ``locomo.questions`` of a directory."""
    episodes = [Episode.model_validate(row) for row in _lines(folder / "locomo.episodes.jsonl.gz")]
    questions = [
        Question(row["user"], row["question"], row["category"], frozenset(row["evidence"]))
        for row in _lines(folder / "locomo.questions.jsonl.gz")
        if row["evidence"]
    ]
    return Conversations("locomo", episodes, questions)


def read_beam(folder: Path, name: str = "beam") -> Conversations:
    """Read the chats of a directory that has a subdirectory with a number for each of them."""
    episodes: list[Episode] = []
    questions: list[Question] = []
    updates: list[Update] = []
    numbers = [path.name for path in folder.iterdir() if path.name.isdecimal()]
    for number in sorted(numbers, key=int):
        batches = orjson.loads((folder / number / "chat.json").read_bytes())
        episodes += _beam_episodes(number, batches)
        asked = folder / number / "probing_questions" / "probing_questions.json"
        by_kind = orjson.loads(asked.read_bytes())
        questions += _beam_questions(number, by_kind)
        updates += _beam_updates(number, by_kind.get(_UPDATES, []))
    return Conversations(name, episodes, questions, updates)


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


def _beam_updates(number: str, asked: list[dict[str, Any]]) -> Iterator[Update]:
    """Yield the questions that say which turns have the old value, and which the new one."""
    for row in asked:
        ids = row.get("source_chat_ids")
        if not isinstance(ids, dict):
            continue
        old = frozenset(_beam_id(number, id) for id in _leaves(ids.get("original_info")))
        new = frozenset(_beam_id(number, id) for id in _leaves(ids.get("updated_info")))
        if old - new and new:
            references = row.get("conversation_references") or [row["question"]]
            values = (str(references[0]), str(row.get("answer", references[-1])))
            yield Update(f"beam-{number}", row["question"], old - new, new, values)


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


def read_realtalk(folder: Path) -> Conversations:
    """Read the chats of a directory: chats 1 to 5 are for development, the others held out."""
    episodes: list[Episode] = []
    questions: list[Question] = []
    by_number = {int(path.stem.split("_")[1]): path for path in folder.rglob("Chat_*.json")}
    for number, path in sorted(by_number.items()):
        chat = orjson.loads(path.read_bytes())
        some = list(_realtalk_episodes(number, chat))
        episodes += some
        questions += _realtalk_questions(number, chat["qa"], {one.id for one in some})
    return Conversations("realtalk", episodes, questions)


def _realtalk_episodes(number: int, chat: dict[str, Any]) -> Iterator[Episode]:
    at = datetime.min.replace(tzinfo=UTC)
    for session in filter(_SESSION.fullmatch, chat):
        for turn in chat[session]:
            said = datetime.strptime(turn["date_time"], _REALTALK_TIME).replace(tzinfo=UTC)
            at = max(said, at + timedelta(microseconds=1))  # the order of the file counts
            caption = turn.get("blip_caption")
            yield Episode(
                id=_realtalk_id(number, turn["dia_id"]),
                content=turn["clean_text"],
                timestamp=at,
                source_node="chat_turn",
                agent=turn["speaker"],
                user=f"realtalk-{number}",
                session=session,
                metadata={"speaker": turn["speaker"]} | ({"caption": caption} if caption else {}),
            )


def _realtalk_questions(
    number: int, asked: list[dict[str, Any]], known: set[str]
) -> Iterator[Question]:
    part = DEV if number <= LAST_OF_DEV else HELD_OUT
    for row in asked:
        named = _TURN_ID.findall(" ".join(map(str, row.get("evidence") or ())))
        turns = known.intersection(_realtalk_id(number, turn) for turn in named)
        if turns:
            kind = f"category {row['category']}"
            yield Question(f"realtalk-{number}", row["question"], kind, frozenset(turns), part)


def _realtalk_id(number: int, turn: str) -> str:
    return f"realtalk:{number}:{turn}"


def _lines(path: Path) -> Iterator[dict[str, Any]]:
    with gzip.open(path) as file:
        for line in file:
            yield orjson.loads(line)
