"""Read lines of transcripts: what a person and a coding agent said to each other.

Tool calls, their output, thinking, the words of subagents, and texts that the agent inserts by
itself are no turns. A text that slumberd recalled is left out of a turn. Every scan for what a
program inserted is linear in the length of the text, whatever marks it holds.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any, NamedTuple

from slumberd.model.capture.secrets import masked_line, pieces
from slumberd.model.texts import BEGIN, strip_recalled

MOST_CHARACTERS = 100_000
"""The longest text that one episode takes; a longer turn becomes several episodes."""

PERSON, AGENT = "user", "assistant"
"""Who speaks a turn."""

_CHARACTERS_OF_ID = 20


class TranscriptTurn(NamedTuple):
    """One thing that a person or a coding agent said.

    Attributes:
        key: What names it within its session.
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


class TranscriptLine(NamedTuple):
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

    turn: TranscriptTurn | None = None
    is_spare: bool = False
    inserted: TranscriptTurn | None = None
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


def turn_of(turn: TranscriptTurn) -> TranscriptTurn | None:
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


def episodes_of(turn: TranscriptTurn, user: str, agent: str) -> Iterator[dict[str, Any]]:
    """Yield the requests that put a turn: one, or several for a long text.

    The same turn of the same session has the same ids, so that it may be put again.

    Args:
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


_TAG = re.compile(r"<([A-Za-z][\w.:-]{0,100})(?:\s[^<>]*)?>")
_END = re.compile(r"</([A-Za-z][\w.:-]{0,100})>")
_REMINDER = "system-reminder"
_RECALLED = BEGIN[1:-1]
_KNOWN = frozenset({
    "environment_context", "hook_prompt", "ide_diagnostics", "ide_opened_file", "ide_selection",
    "new-diagnostics", "permissions", "persisted-output", "skill", "subagent_notification",
    _REMINDER, "task-notification", "teammate-message", "tool_use_error",
    "turn_aborted", "user-prompt-submit-hook", "user_instructions", "user_shell_command",
})  # fmt: skip
"""The names of blocks that Claude Code and Codex insert."""

_KNOWN_KINDS = ("bash-", "command-", "ide_", "local-command-")
"""How other such names begin."""

_EDITOR = "# Context from my IDE setup:"
_REQUEST = re.compile(r"^## My request(?: for \w+)?:[ \t]*$", re.MULTILINE)
"""The heading in Codex's editors that comes before what the person typed."""


class Words(NamedTuple):
    """What is left of a text.

    Attributes:
        text: The words of its speaker.
        unknown: The names of the blocks that were left out and that slumberd does not know.
    """

    text: str
    unknown: tuple[str, ...] = ()


class _Block(NamedTuple):
    """A block of markup.

    Attributes:
        name: The name of its tag.
        end: Where the text after it begins.
    """

    name: str
    start: int
    end: int


def without_reminders(text: str) -> str:
    """Return a text without the reminders that Claude Code puts between the words."""
    return _without(text, (one for one in _blocks(text) if one.name == _REMINDER))


def words_of_person(text: str, *, is_stated: bool) -> Words:
    """Return what a person typed, without what a program inserted.

    Blocks that are known are left out wherever they stand. Of others, these are left out:

    * one at the beginning whose tag has several words;
    * one on lines of its own whose tag has several words, or that is at the beginning or the end.

    Args:
        text: The text that travels under the name of the person.
        is_stated: Whether the line states that a person typed it; then only the first of the two
            holds, since blocks elsewhere are the person's.
    """
    text = _without_editor(_without(text, (one for one in _blocks(text) if _is_known(one.name))))
    blocks = [*_blocks(text)]
    inserted: list[_Block] = []
    start, is_first = 0, True
    for block in blocks:
        is_first = is_first and not text[start : block.start].strip()
        if is_first and (_has_words(block.name) or not (is_stated or _shares_line(text, block))):
            inserted.append(block)
            start = block.end
        elif is_stated:
            break
        else:
            is_first = False
            if _has_words(block.name) and not _shares_line(text, block):
                inserted.append(block)
    last = blocks[-1] if blocks and not is_stated else None
    if last and last not in inserted and not text[last.end :].strip():
        inserted += [] if _shares_line(text, last) else [last]
    names = dict.fromkeys(block.name for block in inserted if block.name != _RECALLED)
    return Words(_without(text, iter(inserted)), tuple(names))


def _has_words(name: str) -> bool:
    return bool(re.search(r"\w[-_]\w", name))


def _shares_line(text: str, block: _Block) -> bool:
    """Return whether other words stand on the line where a block begins or ends."""
    before, after = block.start - 1, block.end
    while before >= 0 and text[before].isspace() and text[before] != "\n":
        before -= 1
    while after < len(text) and text[after].isspace() and text[after] != "\n":
        after += 1
    is_alone_before = before < 0 or text[before] == "\n"
    return not (is_alone_before and (after == len(text) or text[after] == "\n"))


def _is_known(name: str) -> bool:
    return name in _KNOWN or name.startswith(_KNOWN_KINDS)


def _blocks(text: str) -> Iterator[_Block]:
    """Yield the blocks of a text that have an end, in their order; none within another."""
    opens, closes = [*_TAG.finditer(text)], [*_END.finditer(text)]
    ends, at = _ends_of(opens, closes), 0
    for tag in opens:
        if tag.start() >= at and (end := ends.get(tag.start())):
            at = end
            yield _Block(tag[1], tag.start(), end)


def _ends_of(opens: list[re.Match[str]], closes: list[re.Match[str]]) -> dict[int, int]:
    """Return where each block ends, by where it begins.

    What a program quotes may hold the name of its own tag. So blocks of one name may be nested, and
    an end without a beginning belongs to the block before it.
    """
    # To search for the end of each tag would take the square of the time for a text of tags.
    ends: dict[int, int] = {}
    open_: dict[str, list[int]] = {}
    closed: dict[str, int] = {}
    for mark in sorted((*opens, *closes), key=lambda found: found.start()):
        name, begins = mark[1], open_.setdefault(mark[1], [])
        if mark.re is _TAG:
            begins.append(mark.start())
        elif begins or name in closed:
            closed[name] = begins.pop() if begins else closed[name]
            ends[closed[name]] = mark.end()
    following: dict[str, int] = {}
    for tag in reversed(opens):
        end = ends.get(tag.start(), following.get(tag[1]))
        if end is not None:
            ends[tag.start()] = following[tag[1]] = end
    return ends


def _without(text: str, blocks: Iterator[_Block]) -> str:
    kept, at = [], 0
    for block in blocks:
        kept.append(text[at : block.start])
        at = block.end
    return "".join((*kept, text[at:]))


def _without_editor(text: str) -> str:
    """Return what a person typed in an editor, without the context that the editor wrote first."""
    if not text.startswith("# "):
        return text
    # What the editor quotes may hold such a heading, too: the last one is the editor's.
    headings = [*_REQUEST.finditer(text)]
    if headings:
        return text[headings[-1].end() :]
    return "" if text.startswith(_EDITOR) else text
