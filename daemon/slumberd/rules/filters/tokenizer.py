"""Split a ``when_filter`` into tokens, or refuse it at a character that belongs to no token."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from typing import NamedTuple

DEEPEST = 20
"""The deepest nesting of parentheses; the limit of SQLite's own parser varies."""

_TOKEN = re.compile(
    r"""
      (?P<space>   [ \t\r\n\f]+ )
    | (?P<comment> -- | /\* )
    | (?P<string>  '(?:[^']|'')*' )
    | (?P<quoted>  "(?:[^"]|"")*" | `[^`]*` | \[[^\]]*\] )
    | (?P<number>  0[xX][0-9a-fA-F]+ | (?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)? )
    | (?P<word>    [A-Za-z_][A-Za-z0-9_]* )
    | (?P<open>    \( )
    | (?P<close>   \) )
    | (?P<sign>    \|\| | ->> | -> | << | >> | <= | >= | <> | != | == | [=<>+\-*/%&|~,.] )
    """,
    re.VERBOSE,
)

_REMEDIES = {
    ";": "one expression, without ';'",
    "?": "no parameters; write the value itself",
    ":": "no parameters; write the value itself",
    "@": "no parameters; write the value itself",
    "$": "no parameters; write the value itself",
    "#": "no parameters; write the value itself",
    "!": "write NOT, or <> for what is not equal",
    "\u00a0": "this is no plain space; write one",
    "'": "the text that begins here has no end; double a quote inside a text",
    '"': "the name that begins here has no end; texts take single quotes",
    "\0": "NUL has no place in a filter",
    **dict.fromkeys("\u2018\u2019\u201c\u201d`\u00b4", "a text takes plain single quotes: '"),
}


class FilterToken(NamedTuple):
    """One token of a filter.

    Attributes:
        kind: ``string quoted number word open close sign``.
        text: As written.
        position: Its first character, from 0.
    """

    kind: str
    text: str
    position: int

    @property
    def end(self) -> int:
        """Its end, from 0."""
        return self.position + len(self.text)

    @property
    def word(self) -> str:
        """The text in lower case, if it is a word; else empty."""
        return self.text.lower() if self.kind == "word" else ""


class FilterRefusal(Exception):  # noqa: N818 # internal; callers get a FilterError
    """Why a filter is not allowed, and the position of the offending character, from 0."""

    def __init__(self, violation: str, position: int | None = None) -> None:
        self.violation = violation
        self.position = position
        super().__init__(violation)


def split(fragment: str) -> list[FilterToken]:
    """Return the tokens of a filter whose parentheses are balanced.

    Raises:
        Refusal: It holds an unknown character, a comment, or an unbalanced parenthesis.
    """
    tokens = list(_tokens(fragment))
    _check_parentheses(tokens)
    return tokens


def _tokens(fragment: str) -> Iterator[FilterToken]:
    position = 0
    while position < len(fragment):
        match = _TOKEN.match(fragment, position)
        if match is None:
            raise FilterRefusal(_describe_unexpected(fragment[position]), position)
        kind = str(match.lastgroup)
        if kind == "comment":
            raise FilterRefusal("comments are not allowed", position)
        if kind in ("string", "quoted"):
            _check_text(match.group(), position)
        if kind != "space":
            yield FilterToken(kind, match.group(), position)
        position = match.end()


def _describe_unexpected(character: str) -> str:
    known = "" if character.isascii() else f" (U+{ord(character):04X}, {_name_of(character)})"
    return _REMEDIES.get(
        character, f"{character!r}{known} has no place outside a text in single quotes"
    )


def _name_of(character: str) -> str:
    """Return the name of a character, which may look like a letter of English."""
    return unicodedata.name(character, "without a name").lower()


def _check_text(text: str, position: int) -> None:
    for offset, character in enumerate(text):
        if character == "\0" or "\ud800" <= character <= "\udfff":
            raise FilterRefusal(f"{character!r} has no place in a filter", position + offset)


def _check_parentheses(tokens: list[FilterToken]) -> None:
    open_at: list[int] = []
    for token in tokens:
        if token.kind == "open":
            open_at.append(token.position)
        if token.kind == "close" and not open_at:
            raise FilterRefusal("')' closes nothing", token.position)
        if token.kind == "close":
            open_at.pop()
        if len(open_at) > DEEPEST:
            raise FilterRefusal(f"parentheses are nested deeper than {DEEPEST}", token.position)
    if open_at:
        raise FilterRefusal("'(' is never closed", open_at[-1])


def arguments(tokens: list[FilterToken], place: int) -> list[list[FilterToken]]:
    """Return the arguments, as tokens, of the call whose name is the token at this place."""
    found: list[list[FilterToken]] = [[]]
    depth = 1
    for token in tokens[place + 2 :]:
        depth += (token.kind == "open") - (token.kind == "close")
        if depth == 0:
            break
        if depth == 1 and token.text == ",":
            found.append([])
        else:
            found[-1].append(token)
    return found
