"""Read the turns of a transcript: what a person and a coding agent said to each other.

Tool calls, their output, thinking, the words of subagents, and texts that the agent inserts by
itself are no turns. A text that slumberd recalled is left out of a turn.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Any, NamedTuple

from slumberd.capture.secrets import masked_line, pieces
from slumberd.hooks.agents import CLAUDE_CODE, CODEX
from slumberd.model.recalled import strip_recalled

MOST_CHARACTERS = 100_000
"""The longest text that one episode takes; a longer turn becomes several episodes."""

_CHARACTERS_OF_ID = 20
_SPEAKERS = ("user", "assistant")

_PERSONS = ("human", "user")
"""The kinds of origin of a line that a person typed."""

_NOT_SAID = ("isMeta", "isSidechain", "isCompactSummary", "isApiErrorMessage")
"""Flags of Claude Code for lines that neither the person nor the agent said."""

_INSERTED = re.compile(r"<system-reminder>.*?</system-reminder>", re.DOTALL)
_ENVELOPE = re.compile(r"\s*<([a-z0-9]+(?:[-_][a-z0-9]+)+)(?:\s[^<>]*)?>.*?</\1>", re.DOTALL)
"""A block of Claude Code at the beginning of a text: the name of its tag has several words."""

_MARKUP = (
    "<bash-input>",
    "<bash-stderr>",
    "<bash-stdout>",
    "<command-message>",
    "<command-name>",
    "<local-command-",
    "[Request interrupted by user",
)
"""How texts begin that Claude Code writes in the name of the person."""


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


def read_turn(agent: str, line: bytes, session: str) -> Turn | None:
    """Return the turn of a line; None when the line has none.

    Args:
        agent: The name of the coding agent that wrote the transcript.
        line: One line of it.
        session: The conversation, unless the line names its own.

    Raises:
        ValueError: The line is no JSON object, or lacks what its kind of line always has.
    """
    try:
        record = json.loads(line)
    except RecursionError as error:
        raise ValueError("it is nested too deep") from error
    if not isinstance(record, dict):
        raise ValueError("it is no JSON object")  # noqa: TRY004 # a malformed file, no wrong type
    said = _READERS[agent](record, line, session)
    if said is None:
        return None
    text = _clean(said.text)
    return said._replace(text=text) if text else None


def _read_claude_code(record: dict[str, Any], _: bytes, session: str) -> Turn | None:
    speaker = record.get("type")
    if speaker not in _SPEAKERS or any(record.get(flag) for flag in _NOT_SAID):
        return None
    key, message = record.get("uuid"), record.get("message")
    if not isinstance(key, str) or not isinstance(message, dict):
        raise ValueError("it has no uuid, or no message")  # noqa: TRY004
    content = message.get("content")
    text = _INSERTED.sub("", _text_of(content, "text"))
    if speaker == "user":
        if _is_inserted(record) or text.lstrip().startswith(_MARKUP):
            return None
        text = _INSERTED.sub("", _text_of(content, "text", _without_envelopes))
    own = record.get("sessionId")
    session = own if isinstance(own, str) and own else session
    return Turn(key, session, speaker, text, _instant_of(record))


def _read_codex(record: dict[str, Any], line: bytes, session: str) -> Turn | None:
    payload = record.get("payload")
    if not isinstance(payload, dict):
        return None
    match record.get("type"), payload.get("type"), payload.get("role"):
        # The model also gets messages of the user that nobody typed; this event has the typed one.
        case "event_msg", "user_message", _:
            speaker, text = "user", payload.get("message")
        case "response_item", "message", "assistant":
            speaker, text = "assistant", _text_of(payload.get("content"), "output_text")
        case _:
            return None
    if not isinstance(text, str):
        raise ValueError("its message is no text")  # noqa: TRY004
    # Only some versions of Codex give a line an id.
    key = hashlib.sha256(masked_line(line)).hexdigest()[:_CHARACTERS_OF_ID]
    return Turn(key, session, speaker, text, _instant_of(record))


_READERS: dict[str, Callable[[dict[str, Any], bytes, str], Turn | None]] = {
    CLAUDE_CODE.name: _read_claude_code,
    CODEX.name: _read_codex,
}


def _is_inserted(record: dict[str, Any]) -> bool:
    """Return whether a line of Claude Code says that a program wrote its text, and no person."""
    origin = record.get("origin")
    kind = origin.get("kind") if isinstance(origin, dict) else None
    return isinstance(kind, str) and kind not in _PERSONS


def _without_envelopes(text: str) -> str:
    """Return a text without the blocks at its beginning that a program put there."""
    while found := _ENVELOPE.match(text):
        text = text[found.end() :]
    return text


def _text_of(content: object, kind: str, clean: Callable[[str], str] = str) -> str:
    """Return the text of a message: a text itself, or blocks of which some are texts."""
    if isinstance(content, str):
        return clean(content)
    blocks = content if isinstance(content, list) else []
    texts = [
        block.get("text")
        for block in blocks
        if isinstance(block, dict) and block.get("type") == kind
    ]
    cleaned = [clean(text) for text in texts if isinstance(text, str)]
    return "\n\n".join(filter(None, cleaned))


def _clean(text: str) -> str:
    """Return a text without what was recalled, and without what an episode cannot hold."""
    said = strip_recalled(text).replace("\0", "\N{REPLACEMENT CHARACTER}")
    return said.encode(errors="replace").decode().strip()


def _instant_of(record: dict[str, Any]) -> str | None:
    """Return the instant of a line, if it has a valid one with an offset."""
    given = record.get("timestamp")
    try:
        at = datetime.fromisoformat(given) if isinstance(given, str) else None
    except ValueError:
        return None
    return None if at is None or at.tzinfo is None else at.isoformat()


def episodes_of(turn: Turn, user: str, agent: str) -> Iterator[dict[str, Any]]:
    """Yield the requests that put a turn: one, or several for a long text.

    The same turn of the same session has the same ids, so that it may be put again.

    Args:
        turn: The turn.
        user: Whose memory it goes to.
        agent: Which agent's memory it goes to.
    """
    name = "\0".join((user, agent, turn.session, turn.key)).encode(errors="replace")
    id = f"turn-{hashlib.sha256(name).hexdigest()[:_CHARACTERS_OF_ID]}"
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
