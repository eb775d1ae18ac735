"""Split filters into conditions: say which an episode does not meet, and which filters differ.

A condition that is no simple one stays whole, in the words of the filter.

Two filters are proved never to select the same episode by a column that both bound by texts, or by
``is_person``, in a way that no value fits both. Without a proof, the filters may well exclude each
other all the same.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Literal, NamedTuple

from slumberd.rules.filters.checks import columns_in
from slumberd.rules.filters.tokenizer import FilterRefusal, FilterToken, split

TEXTS = frozenset({
    "agent", "id", "intent", "predicate", "scope_key", "session", "source_node", "speaker",
    "subject", "user",
})  # fmt: skip
"""The columns that hold texts or NULL, and are compared character by character."""

_PERSON = "is_person"
_TRUTHS = {"1": True, "true": True, "0": False, "false": False}

_COMPARISON = 3
_SIGNS = {
    "=": True, "==": True, "is": True, "in ( )": True, "is null": True, "isnull": True,
    "!=": False, "<>": False, "is not": False, "not in ( )": False, "is not null": False,
    "notnull": False,
}  # fmt: skip
"""The forms of comparisons, without their texts, and whether the value is among these."""

Values = frozenset[str | None]


class Bound(NamedTuple):
    """What a filter says of a column: the value is, or is not, among some values."""

    column: str
    values: Values
    holds: bool


def are_disjoint(one: str, other: str) -> bool:
    """Return whether it is proved that no episode passes both filters."""
    try:
        bounds = [_bounds_of(split(each)) for each in (one, other)]
    except FilterRefusal:
        return False
    columns = {bound.column for bound in bounds[0]} | {bound.column for bound in bounds[1]}
    return any(exclude_each_other([*bounds[0], *bounds[1]], column) for column in columns)


def exclude_each_other(bounds: Sequence[Bound], column: str) -> bool:
    """Return whether no value of a column fits all bounds."""
    found = [bound for bound in bounds if bound.column == column]
    allowed = [bound.values for bound in found if bound.holds]
    if not allowed:
        return False
    left = frozenset.intersection(*allowed)
    return left <= frozenset[str | None]().union(*(one.values for one in found if not one.holds))


def _bounds_of(tokens: Sequence[FilterToken]) -> list[Bound]:
    """Return what each part of a conjunction says of a single column."""
    tokens = without_parentheses(tokens)
    parts = _conjuncts(tokens)
    if len(parts) > 1:
        return [bound for part in parts for bound in _bounds_of(part)]
    bound = bound_of(tokens)
    return [bound] if bound else []


def without_parentheses(tokens: Sequence[FilterToken]) -> Sequence[FilterToken]:
    """Return tokens without the parentheses around all of them."""
    while tokens and tokens[0].kind == "open" and _closes_at_end(tokens):
        tokens = tokens[1:-1]
    return tokens


def _closes_at_end(tokens: Sequence[FilterToken]) -> bool:
    """Return whether the first parenthesis is closed by the last token."""
    depths = [*_depths_of(tokens)]
    return depths[-1] == 0 and 0 not in depths[:-1]


def _depths_of(tokens: Sequence[FilterToken]) -> Iterator[int]:
    """Yield the depth of parentheses after each token."""
    depth = 0
    for token in tokens:
        depth += (token.kind == "open") - (token.kind == "close")
        yield depth


def _conjuncts(tokens: Sequence[FilterToken]) -> list[Sequence[FilterToken]]:
    """Return the parts of a conjunction; of another condition, the whole."""
    return [tokens] if len(split_at(tokens, "or")) > 1 else split_at(tokens, "and")


def split_at(tokens: Sequence[FilterToken], word: str) -> list[Sequence[FilterToken]]:
    """Return what lies between AND or OR; the whole if these may mean something else."""
    top = {token.word for token, depth in zip(tokens, _depths_of(tokens), strict=True) if not depth}
    if "case" in top:
        return [tokens]
    parts: list[list[FilterToken]] = [[]]
    between = 0  # whose AND is still to come
    for token, depth in zip(tokens, _depths_of(tokens), strict=True):
        between += token.word == "between" and not depth
        if token.word == "and" and not depth and between:
            between -= 1
            parts[-1].append(token)
        elif token.word == word and not depth:
            parts.append([])
        else:
            parts[-1].append(token)
    return list(parts)


def bound_of(tokens: Sequence[FilterToken]) -> Bound | None:
    """Return what a comparison says of a column; None when it is no simple one."""
    if len(tokens) == _COMPARISON and tokens[0].kind == "string":
        tokens = tokens[::-1]
    column = tokens[0].word if tokens else ""
    if column == "not" or column == _PERSON:
        return _bound_of_person([token.word or token.text for token in tokens])
    holds = _SIGNS.get(_form_of(tokens[1:])) if column in TEXTS else None
    values = _values_in(tokens[1:])
    return None if holds is None or values is None else Bound(column, values, holds)


def _form_of(tokens: Sequence[FilterToken]) -> str:
    """Return a comparison without the texts in it."""
    return " ".join(
        token.word or token.text for token in tokens if token.kind != "string" and token.text != ","
    )


def _bound_of_person(words: list[str]) -> Bound | None:
    """Return what a condition on the column ``is_person`` says, which is 0 or 1."""
    denied = words[0] == "not"
    match words[denied:]:
        case ["is_person"]:
            value = "1"
        case ["is_person", "=" | "==" | "is", value] if value in _TRUTHS:
            pass
        case ["is_person", "!=" | "<>", value] | ["is_person", "is", "not", value] if (
            value in _TRUTHS
        ):
            denied = not denied
        case _:
            return None
    return Bound(_PERSON, frozenset({str(_TRUTHS[value] != denied)}), holds=True)


def _values_in(tokens: Sequence[FilterToken]) -> Values | None:
    """Return the texts that a comparison lists, or NULL; None when it lists nothing."""
    found = frozenset(
        token.text[1:-1].replace("''", "'") for token in tokens if token.kind == "string"
    )
    if tokens and tokens[-1].word in ("null", "isnull", "notnull"):
        return frozenset({None})
    return found or None


MOST_CONDITIONS = 16
"""A filter of more conditions stays whole."""

KEY_OF_METADATA = re.compile(
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
    except FilterRefusal:
        return None
    if not tokens:
        return None
    found = _condition(fragment, tokens)
    if sum(1 for _ in found.singles()) > MOST_CONDITIONS:
        return Condition(found.text, found.columns)
    return found


def _condition(fragment: str, tokens: Sequence[FilterToken]) -> Condition:
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
    if key := KEY_OF_METADATA.fullmatch(condition.text):
        return f"`{key[1]}` in the metadata"
    return f"`{condition.text}`"
