r"""Translate expressions, so that RE2 reads the letters and digits of all scripts.

In RE2 ``\w``, ``\d``, ``\s``, ``\b`` and classes such as ``[:alpha:]`` know ASCII only. The classes
become classes of Unicode. RE2 has no ``\b`` of Unicode, and no look-around to build one. So an
expression with ``\b`` or ``\B`` has a second form, for texts that are not ASCII. It reads a
*marked* text, where each character stands between two marks. The marks beside a letter are ASCII
letters, and those beside a space or a stop are ``-``. There the ``\b`` of RE2 is right.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

WORD = r"_\x{200C}\x{200D}\pN\pM\pL"
r"""The characters of ``\w``: letters with their marks, numbers, ``_``, and joiners in words."""

_SPACE = r"\t-\r\x1C-\x20\x{85}\pZ"
_CLASSES = {
    "w": WORD,
    "d": r"\p{Nd}",
    "s": _SPACE,
    "alnum": r"\pN\pM\pL",
    "alpha": r"\pM\pL",
    "blank": r"\t\p{Zs}",
    "cntrl": r"\p{Cc}",
    "digit": r"\p{Nd}",
    "graph": r"\p{Cf}\p{Co}\pS\pP\pN\pM\pL",
    "lower": r"\p{Ll}",
    "print": r"\p{Zs}\p{Cf}\p{Co}\pS\pP\pN\pM\pL",
    "punct": r"$+<=>^`|~\pP",
    "space": _SPACE,
    "upper": r"\p{Lu}",
    "word": WORD,
}
"""The characters of each class, by its letter or its POSIX name; ``ascii`` and ``xdigit`` stay."""

_ESCAPE = r"\\(?:x\{[0-9A-Fa-f]+\}|x[0-9A-Fa-f]{2}|[0-7]{1,3}|[pP](?:\{[^}]*\}|.)|.)"
_POSIX = r"\[:(?P<not>\^?)(?P<name>[a-z]+):\]"
_ITEM = re.compile(rf"{_POSIX}|(?P<one>{_ESCAPE}|.)", re.DOTALL)
_TOKEN = re.compile(
    r"\\Q(?P<quoted>.*?)(?:\\E|\Z)"
    rf"|(?P<class>\[\^?\]?(?:\[:\^?[a-z]+:\]|{_ESCAPE}|[^\]\\])*\])"
    r"|(?:\((?:\?(?:P?<[^>]*>|[A-Za-z]*-?[A-Za-z]*[:)]))?|[)|]"  # groups
    r"|(?:[*+?]|\{[0-9]+(?:,[0-9]*)?\})\??"  # repetitions
    r"|[\^$]|\\[bBAz])"  # places
    rf"|(?P<one>{_ESCAPE}|.)",
    re.DOTALL,
)


class Unsupported(NamedTuple):
    """A part of an expression that has no meaning for texts of Unicode.

    Attributes:
        problem: Why, and what to write.
        position: Where it begins in the expression, in characters.
    """

    problem: str
    position: int


class Token(NamedTuple):
    """A part of an expression.

    Attributes:
        text: As it stands; a quoted character is escaped.
        position: Where it begins.
        is_character: Whether it matches exactly one character.
    """

    text: str
    position: int
    is_character: bool


def tokens_of(expression: str) -> list[Token]:
    """Return the parts of a valid expression in RE2's syntax, in order."""
    return list(_tokens(expression))


def _tokens(expression: str) -> Iterator[Token]:
    for match in _TOKEN.finditer(expression):
        if match["quoted"] is None:
            yield Token(match[0], match.start(), bool(match["class"] or match["one"]))
        for character in match["quoted"] or "":
            yield Token(f"\\x{{{ord(character):x}}}", match.start(), True)


def find_unsupported(tokens: Iterable[Token]) -> Unsupported | None:
    """Return the first part of an expression that has no translation."""
    for token in tokens:
        if token.text == r"\C":
            return Unsupported(r"\C is one byte; write (?s:.) for any character", token.position)
    return None


def has_boundary(tokens: Iterable[Token]) -> bool:
    r"""Return whether an expression contains ``\b`` or ``\B``."""
    return any(token.text in (r"\b", r"\B") for token in tokens)


def translate(
    tokens: Iterable[Token], outside: Callable[[str], str], *, marked: bool = False
) -> str:
    """Return a valid expression with classes of Unicode.

    Args:
        tokens: The parts of the expression; none is unsupported.
        outside: Returns the characters that are not in a class, as a class.
        marked: Whether the result reads marked texts.
    """
    form = r"(?:\C{}\C)" if marked else "{}"
    return "".join(
        form.format(_atom(token.text, outside)) if token.is_character else token.text
        for token in tokens
    )


def _atom(text: str, outside: Callable[[str], str]) -> str:
    if text.startswith("["):
        return _class(text, outside)
    name = text[1:].lower()
    if text.startswith("\\") and name in _CLASSES:
        return f"[{'^' if text[1].isupper() else ''}{_CLASSES[name]}]"
    return text


def _class(text: str, outside: Callable[[str], str]) -> str:
    start = 2 if text.startswith("[^") else 1
    items = [_item(match, outside) for match in _ITEM.finditer(text, start, len(text) - 1)]
    return text[:start] + "".join(items) + "]"


def _item(match: re.Match[str], outside: Callable[[str], str]) -> str:
    one = match["one"]
    if one is None:
        known, is_negated = _CLASSES.get(match["name"]), bool(match["not"])
    else:
        known, is_negated = _CLASSES.get(one[1:].lower()), one[1:].isupper()
        known = known if one.startswith("\\") else None
    if known is None:
        return match[0]
    return outside(known) if is_negated else known
