"""Leave out of a text what a program inserted: blocks of markup, and an editor's context.

Every scan is linear in the length of the text, whatever marks it holds.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from slumberd.model.recalled import BEGIN

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
        start: Where it begins.
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
