"""Split a filter into its conditions, and say in words which of them an episode does not meet.

A condition that is no simple one stays whole, in the words of the filter.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Literal, NamedTuple

from slumberd.filters.checks import columns_in
from slumberd.filters.disjoint import split_at, without_parentheses
from slumberd.filters.tokenizer import Refusal, Token, split

MOST_CONDITIONS = 16
"""A filter of more conditions stays whole."""

_KEY_OF_METADATA = re.compile(
    r"json_extract\(\s*metadata\s*,\s*'\$\.(\w+)'\s*\)\s+IS\s+NOT\s+NULL", re.IGNORECASE
)
STATED = ("subject", "predicate", "object", "intent")
"""The columns of a filter that are NULL unless the metadata of an episode state them."""

_WORDS = {
    "subject": "a subject", "predicate": "a predicate", "object": "an object",
    "intent": "an intent", "confidence": "a confidence", "speaker": "a known speaker",
}  # fmt: skip
"""What an episode lacks, by the column that is NULL for it."""

_JOINED_BY: Mapping[str, str] = {"and": " and ", "or": ", or "}


class Condition(NamedTuple):
    """A condition of a filter, or several of them.

    Attributes:
        text: The condition, as the filter has it.
        columns: The columns that it reads.
        joined: Whether an episode must meet all `parts`, or one; ``single`` when it has none.
        parts: The conditions that it consists of.
    """

    text: str
    columns: frozenset[str]
    joined: Literal["single", "and", "or"] = "single"
    parts: tuple[Condition, ...] = ()

    def singles(self) -> Iterator[Condition]:
        """Yield the conditions that consist of no others."""
        if self.joined == "single":
            yield self
        for part in self.parts:
            yield from part.singles()


def condition_of(fragment: str) -> Condition | None:
    """Return the condition that a filter states; None for an empty or refused filter."""
    try:
        tokens = split(fragment)
    except Refusal:
        return None
    if not tokens:
        return None
    found = _condition(fragment, tokens)
    if sum(1 for _ in found.singles()) > MOST_CONDITIONS:
        return Condition(found.text, found.columns)
    return found


def _condition(fragment: str, tokens: Sequence[Token]) -> Condition:
    tokens = without_parentheses(tokens)
    text = fragment[tokens[0].position : tokens[-1].end]
    columns = columns_in([*tokens])
    joins: tuple[Literal["or", "and"], ...] = ("or", "and")
    for word in joins:  # AND binds closer than OR
        parts = split_at(tokens, word)
        if len(parts) > 1 and all(parts):
            found = tuple(_condition(fragment, part) for part in parts)
            return Condition(text, columns, word, found)
    return Condition(text, columns)


def describe_unmet(
    condition: Condition, unmet: Collection[str], unstated: Collection[str]
) -> list[str]:
    """Return what an episode lacks to meet a condition, such as ``a predicate``; none if it does.

    Args:
        condition: The condition.
        unmet: The texts of the single conditions that it does not meet.
        unstated: The columns that are NULL for it.
    """
    if condition.joined == "single":
        return [_describe(condition, unstated)] if condition.text in unmet else []
    found = [describe_unmet(part, unmet, unstated) for part in condition.parts]
    if condition.joined == "or":
        lacking = dict.fromkeys(_joined(words, "and") for words in found)
        return [_joined([*lacking], "or")] if all(found) else []
    return [*dict.fromkeys(word for words in found for word in words)]


def _joined(words: Sequence[str], joined: str) -> str:
    return _JOINED_BY[joined].join(words)


def _describe(condition: Condition, unstated: Collection[str]) -> str:
    [column, *others] = sorted(condition.columns) or [""]
    if not others and column in unstated and column in _WORDS:
        return _WORDS[column]
    if key := _KEY_OF_METADATA.fullmatch(condition.text):
        return f"`{key[1]}` in the metadata"
    return f"`{condition.text}`"
