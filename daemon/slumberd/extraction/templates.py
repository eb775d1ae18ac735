"""Templates of triples, and word lists in expressions. Both write a name as ``{name}``."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from slumberd.extraction.normalisers import Value

SPEAKERS = ("speaker", "other")
"""The names that stand for the two speakers in every template."""

_PLACEHOLDER = re.compile(r"\{([^\W\d]\w*)\}")
_WORDS = re.compile(r"(?<!\\[pPx])\{([^\W\d]\w*)\}")


def placeholders(template: str) -> list[str]:
    """Return the names in a template, in order."""
    return _PLACEHOLDER.findall(template)


def fill(template: str, values: Mapping[str, Value | None]) -> Value | None:
    """Return a template with its names replaced; None when a name has no value.

    A template that is one name and nothing else keeps the type of the value.
    """
    names = placeholders(template)
    if any(values.get(name) is None for name in names):
        return None
    if len(names) == 1 and template == f"{{{names[0]}}}":
        return values[names[0]]
    return _PLACEHOLDER.sub(lambda match: str(values[match[1]]), template)


def word_lists(expression: str) -> list[str]:
    """Return the names of the word lists in an expression, in order."""
    return _WORDS.findall(expression)


def insert_words(expression: str, words: Mapping[str, Sequence[str]]) -> str:
    """Return an expression with each named list as a group of its words, the longest first.

    A space in a word stands for any white space. An unknown name stays as it is.
    """

    def group(match: re.Match[str]) -> str:
        listed = words.get(match[1])
        return match[0] if listed is None else _one_of(listed)

    return _WORDS.sub(group, expression)


def _one_of(words: Sequence[str]) -> str:
    longest_first = sorted(words, key=lambda word: (-len(word), word))
    return "(?:" + "|".join(r"\s+".join(map(_quote, word.split())) for word in longest_first) + ")"


def _quote(word: str) -> str:
    """Return an expression that matches exactly a word."""
    return re.sub(r"([^\w\s])", r"\\\1", word, flags=re.ASCII) if word.isascii() else _hex(word)


def _hex(word: str) -> str:
    return "".join(letter if letter.isalnum() else f"\\x{{{ord(letter):x}}}" for letter in word)
