"""Read lines of transcripts: what a person and a coding agent said to each other.

Tool calls, their output, thinking, the words of subagents, and texts that the agent inserts by
itself are no turns. A text that slumberd recalled is left out of a turn.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any, NamedTuple

from slumberd.capture.secrets import masked_line, pieces
from slumberd.model.recalled import strip_recalled

MOST_CHARACTERS = 100_000
"""The longest text that one episode takes; a longer turn becomes several episodes."""

PERSON, AGENT = "user", "assistant"
"""Who speaks a turn."""

_CHARACTERS_OF_ID = 20


class Turn(NamedTuple):
    """One thing that a person or a coding agent said.

    Attributes:
        key: What names it within its session.
        session: The conversation.
        speaker: ``user`` or ``assistant``.
        text: What was said; not empty.
        when: ISO 8601 with an offset; None when the line has no valid instant.
    """

    key: str
    session: str
    speaker: str
    text: str
    when: str | None


class Thread(NamedTuple):
    """What the head of a transcript says of the conversation.

    Attributes:
        id: The conversation.
        is_copy: Whether it begins with a copy of another one.
        original: The other one; empty when there is none.
        is_of_person: Whether a person speaks in it; else an agent speaks to a subagent.
        at: When it began, ISO 8601; None when unknown.
        unknown: What of its beginner the reader does not know; empty when it knows everything.
    """

    id: str
    is_copy: bool
    original: str
    is_of_person: bool
    at: str | None
    unknown: str = ""


class Line(NamedTuple):
    """What one line of a transcript says.

    Attributes:
        turn: What was said in it; None when nothing was.
        is_spare: Whether another line near it may have the same turn, and then counts.
        inserted: What a program wrote in the name of a person, if another line near it may have
            the same text and not say so.
        is_typed: Whether it is a turn of a person after which the conversation branches.
        is_wordless: Whether it is a turn of a person without words, such as a picture.
        id: What other lines name it by; empty when they cannot.
        parent: The line that it answers; empty when it says none.
        is_message: Whether it is a message, and not a note between messages.
        is_command: Whether a person gave the agent's program a command, such as ``/clear``.
        thread: What it says of the whole conversation.
        copied: Whether its turn is a copy of one of another session.
        rolled_back: How many turns of the person it takes back.
        is_boundary: Whether a turn of the agent begins or ends here.
        at: Its instant, ISO 8601; None when unknown.
        began: When the agent's turn began, in seconds since 1970; None when unknown.
        version: The version of the agent; empty when it says none.
        unknown: What of it the reader does not know; empty when it knows everything.
    """

    turn: Turn | None = None
    is_spare: bool = False
    inserted: Turn | None = None
    is_typed: bool = False
    is_wordless: bool = False
    id: str = ""
    parent: str = ""
    is_message: bool = False
    is_command: bool = False
    thread: Thread | None = None
    copied: bool = False
    rolled_back: int = 0
    is_boundary: bool = False
    at: str | None = None
    began: float | None = None
    version: str = ""
    unknown: tuple[str, ...] = ()


def read_record(line: bytes) -> dict[str, Any]:
    """Return the JSON object of a line.

    Raises:
        ValueError: The line is none.
    """
    try:
        record = json.loads(line)
    except RecursionError as error:
        raise ValueError("it is nested too deep") from error
    if not isinstance(record, dict):
        raise ValueError("it is no JSON object")  # noqa: TRY004 # a malformed file, no wrong type
    return record


def hash_of(text: str | bytes) -> str:
    """Return a short name of a text."""
    encoded = text if isinstance(text, bytes) else text.encode(errors="replace")
    return hashlib.sha256(encoded).hexdigest()[:_CHARACTERS_OF_ID]


def key_of_line(line: bytes) -> str:
    """Return a key for a line that has no id; its secrets have no part in it."""
    return hash_of(masked_line(line))


def turn_of(turn: Turn) -> Turn | None:
    """Return a turn with a text that an episode can hold; None when nothing is left of it."""
    said = strip_recalled(turn.text).replace("\0", "\N{REPLACEMENT CHARACTER}")
    text = said.encode(errors="replace").decode().strip()
    return turn._replace(text=text) if text else None


def text_of(value: object) -> str:
    """Return a value that is a text; an empty text for any other."""
    return value if isinstance(value, str) else ""


def instant_of(given: object) -> str | None:
    """Return an instant, if it is a valid one with an offset that UTC has, too."""
    try:
        at = datetime.fromisoformat(given) if isinstance(given, str) else None
        return None if at is None or at.tzinfo is None else at.astimezone(UTC).isoformat()
    except (ValueError, OverflowError):
        return None


def episodes_of(turn: Turn, user: str, agent: str) -> Iterator[dict[str, Any]]:
    """Yield the requests that put a turn: one, or several for a long text.

    The same turn of the same session has the same ids, so that it may be put again.

    Args:
        turn: The turn.
        user: Whose memory it goes to.
        agent: Which agent's memory it goes to.
    """
    id = f"turn-{hash_of(chr(0).join((user, agent, turn.session, turn.key)))}"
    for number, (start, end) in enumerate(pieces(turn.text, MOST_CHARACTERS), 1):
        yield {
            "user": user,
            "agent": agent,
            "session": turn.session,
            "speaker": turn.speaker,
            "id": id if number == 1 else f"{id}.{number}",
            "text": turn.text[start:end],
            "when": turn.when,
        }
