"""Find conditions of a valid filter that never hold, always hold, or are probably not meant.

Each doubt is proved by the values that a column can have, or is a form that is often a slip. The
proofs run the condition on sample episodes, through the sandbox.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import date, datetime, timedelta
from itertools import pairwise
from typing import Any, NamedTuple

import orjson

from slumberd.consolidation.claim import INTENTS
from slumberd.model.episode import INTERFACES
from slumberd.model.errors import FilterError
from slumberd.rules.filters.checks import DATES, columns_in
from slumberd.rules.filters.conditions import (
    KEY_OF_METADATA,
    TEXTS,
    Bound,
    bound_of,
    exclude_each_other,
    split_at,
    without_parentheses,
)
from slumberd.rules.filters.sandbox import check_filter, select_samples
from slumberd.rules.filters.tokenizer import FilterToken, arguments, split
from slumberd.rules.validation import nearest

Tokens = Sequence[FilterToken]


class Doubt(NamedTuple):
    """What is doubtful in a filter, and the position of its first character, from 0."""

    problem: str
    position: int


_TRIPLE = frozenset({"subject", "predicate", "object"})
_COMPARISONS = frozenset({"=", "==", "<>", "!=", "<", "<=", ">", ">="})
_EQUALS = frozenset({"=", "==", "<>", "!="})
_PLAIN_WORDS = frozenset(
    {"", "between", "and", "or", "in", "not", "is", "null", "isnull", "notnull"}
)
_PLAIN_SIGNS = _COMPARISONS | {","}
_BETWEEN_LITERALS = frozenset({"", "in", "not", "is"})
_NUMBERS_AS_TIMES = frozenset({"unixepoch", "auto", "julianday"})
"""The modifiers of date functions that read a number, also one in quotes."""

_TYPES: Mapping[str, frozenset[str]] = {
    "json_type": frozenset({"null", "true", "false", "integer", "real", "text", "array", "object"}),
    "typeof": frozenset({"null", "integer", "real", "text", "blob"}),
}
"""The answers of functions that name a type."""

_CASES: Mapping[str, Callable[[str], str]] = {
    "lower": lambda text: text.encode().lower().decode(),
    "upper": lambda text: text.encode().upper().decode(),
}
"""What SQLite's functions answer, which change the letters of ASCII only."""


def find_doubts(fragment: str) -> list[Doubt]:
    """Return what is doubtful in a filter, by position; nothing for a filter that is refused."""
    try:
        check_filter("samples", fragment)
    except FilterError:
        return []
    tokens = split(fragment)
    if not tokens:
        return []
    found = [
        *_find_mixed_joins(tokens),
        *_find_impossible_dates(fragment, tokens),
        *(doubt for group in _groups_of(tokens) for doubt in _find_in_group(fragment, group)),
    ]
    return sorted(dict.fromkeys(found), key=lambda doubt: doubt.position)


def needs_stated_triple(fragment: str) -> bool:
    """Return whether it is proved that a filter selects no episode without a stated triple."""
    try:
        check_filter("samples", fragment)
    except FilterError:
        return False
    tokens = split(fragment)
    return bool(tokens) and _needs_triple(fragment, tokens)


def _needs_triple(fragment: str, tokens: Tokens) -> bool:
    tokens = without_parentheses(tokens)
    either = split_at(tokens, "or")
    if len(either) > 1:
        return all(_needs_triple(fragment, part) for part in either)
    both = split_at(tokens, "and")
    if len(both) > 1:
        return any(_needs_triple(fragment, part) for part in both)
    text = _text_of(fragment, tokens)
    if key := KEY_OF_METADATA.fullmatch(text):
        return key[1] in {*_TRIPLE, "triples"}
    columns = columns_in([*tokens])
    return bool(columns) and columns <= _TRIPLE and not any(select_samples(text, [{}]))


def _text_of(fragment: str, tokens: Tokens) -> str:
    return fragment[tokens[0].position : tokens[-1].end]


def _groups_of(tokens: Tokens) -> Iterator[list[Tokens]]:
    """Yield the single conditions that must hold together, for each alternative of a filter."""
    single: list[Tokens] = []
    for part in _conjuncts_of(tokens):
        either = split_at(part, "or")
        if len(either) > 1:
            for alternative in either:
                yield from _groups_of(alternative)
        elif part:
            single.append(part)
    yield single


def _conjuncts_of(tokens: Tokens) -> list[Tokens]:
    tokens = without_parentheses(tokens)
    if len(split_at(tokens, "or")) > 1:
        return [tokens]
    both = split_at(tokens, "and")
    if len(both) == 1:
        return [tokens]
    return [one for part in both for one in _conjuncts_of(part)]


_MIXED = (
    "AND and OR stand beside each other, and AND binds closer; put what belongs together in"
    " parentheses"
)


def _find_mixed_joins(tokens: Tokens) -> Iterator[Doubt]:
    """Find AND and OR beside each other without parentheses."""
    joins: list[set[str]] = [set()]
    between = [0]
    for token in tokens:
        if token.kind == "open" or token.word == "case":  # CASE lasts until its END
            joins.append(set())
            between.append(0)
        elif token.kind == "close" or token.word == "end":
            joins.pop()
            between.pop()
        elif token.text == "," or token.word in ("when", "then", "else"):
            joins[-1] = set()
        elif token.word == "and" and between[-1]:
            between[-1] -= 1
        elif token.word in ("and", "or"):
            joins[-1].add(token.word)
            if len(joins[-1]) > 1:
                yield Doubt(_MIXED, token.position)
                joins[-1] = set()
        between[-1] += token.word == "between"


def _find_impossible_dates(fragment: str, tokens: list[FilterToken]) -> Iterator[Doubt]:
    """Find calls of a date function on a literal that is no date."""
    for place, token in enumerate(tokens[:-1]):
        if token.word not in DATES or tokens[place + 1].kind != "open":
            continue
        given = arguments(tokens, place)[token.word == "strftime" :]
        literal = given[0] if given else []
        modifiers = {one.text[1:-1].strip().lower() for modifier in given[1:] for one in modifier}
        if len(literal) == 1 and literal[0].kind == "string" and not modifiers & _NUMBERS_AS_TIMES:
            call = f"date({literal[0].text}) IS NOT NULL"
            if not any(select_samples(call, [{}])):
                yield Doubt(f"{literal[0].text} is no date or time", literal[0].position)


def _find_in_group(fragment: str, group: Sequence[Tokens]) -> Iterator[Doubt]:
    """Find what is doubtful in conditions that must hold together."""
    alone = [doubt for tokens in group for doubt in _find_in_single(fragment, tokens)]
    yield from alone
    if not alone:
        yield from _find_contradictions(fragment, group)


def _find_contradictions(fragment: str, group: Sequence[Tokens]) -> Iterator[Doubt]:
    """Find columns that no value of which meets all conditions of a group."""
    bounds = [(tokens, bound) for tokens in group if (bound := bound_of(tokens)) is not None]
    for column in dict.fromkeys(bound.column for _, bound in bounds):
        if exclude_each_other([bound for _, bound in bounds], column):
            last = [tokens for tokens, bound in bounds if bound.column == column][-1]
            yield Doubt(f"no {column} meets all conditions on it", last[0].position)
    numeric = [
        tokens
        for tokens in group
        if _is_plain_confidence(tokens) and all(token.kind != "string" for token in tokens)
    ]
    if len(numeric) > 1 and not _holds_for_a_confidence(fragment, numeric):
        yield Doubt("no confidence meets all conditions on it", numeric[-1][0].position)


def _find_in_single(fragment: str, tokens: Tokens) -> Iterator[Doubt]:
    """Find what is doubtful in a condition that consists of no others."""
    columns = columns_in([*tokens])
    start = tokens[0].position
    if columns == {"confidence"}:
        yield from _doubt_of_confidence(fragment, tokens)
    elif columns == {"is_person"}:
        if not any(select_samples(_text_of(fragment, tokens), [{"role": "user"}, {}])):
            yield Doubt("is never true: is_person is 1 or 0", start)
    elif columns == {"timestamp"}:
        yield from _doubts_of_timestamp(tokens)
    bound = bound_of(tokens)
    if bound is not None:
        yield from (Doubt(problem, start) for problem in _problems_of(bound))
    yield from _doubts_of_form(tokens)


def _doubt_of_confidence(fragment: str, tokens: Tokens) -> Iterator[Doubt]:
    if not _is_plain_confidence(tokens):
        return
    text = next((token for token in tokens if token.kind == "string"), None)
    if text is not None and text.text != "''":
        yield Doubt(
            f"confidence is a number, and {text.text} is a text; write it without quotes",
            text.position,
        )
    elif text is None and not _holds_for_a_confidence(fragment, [tokens]):
        yield Doubt("is never true: confidence is a number from 0 to 1", tokens[0].position)


def _is_plain_confidence(tokens: Tokens) -> bool:
    """Return whether a condition only compares the confidence with literals."""
    return columns_in([*tokens]) == {"confidence"} and all(
        token.word in {*_PLAIN_WORDS, "confidence"}
        and (token.kind != "sign" or token.text in _PLAIN_SIGNS)
        and token.kind != "quoted"
        for token in tokens
    )


def _holds_for_a_confidence(fragment: str, conditions: Sequence[Tokens]) -> bool:
    """Return whether a confidence meets all conditions: a bound of theirs, or one between."""
    numbers = (token.text for tokens in conditions for token in tokens if token.kind == "number")
    bounds = sorted({0.0, 1.0, *(one for one in map(_number_of, numbers) if 0 <= one <= 1)})
    between = [(low + high) / 2 for low, high in pairwise(bounds)]
    samples: list[dict[str, Any]] = [{"confidence": one} for one in [*bounds, *between]]
    text = " AND ".join(f"({_text_of(fragment, tokens)})" for tokens in conditions)
    return any(select_samples(text, [*samples, {"confidence": "malformed"}]))


def _number_of(text: str) -> float:
    return float(int(text, 16)) if text[:2] in ("0x", "0X") else float(text)


def _problems_of(bound: Bound) -> Iterator[str]:
    """Yield what is doubtful in the texts with which a condition compares a column."""
    texts = sorted(value for value in bound.values if value)  # '' is often a guard
    for text in texts:
        if bound.column == "intent" and text not in INTENTS:
            close = nearest(text, INTENTS)
            known = f"did you mean {close!r}?" if close else f"intents are {', '.join(INTENTS)}"
            yield f"no intent is {text!r}; {known}"
        elif bound.column == "speaker" and text in INTERFACES:
            yield f"{text!r} names an interface, not a speaker; the person is `is_person`"
        elif bound.column == "scope_key" and not text.startswith("/user/"):
            yield f"no scope_key is {text!r}: each begins with '/user/'; user is a column"
        elif text.strip("%") != text:
            yield f"compares with the sign % itself in {text!r}; LIKE takes patterns"


def _doubts_of_form(tokens: Tokens) -> Iterator[Doubt]:
    """Find literals that the value beside them never equals."""
    function, column, rest = _head_of(tokens)
    if not _compares_with_literals(rest):
        return
    for token in rest:
        if token.kind == "number" and not function and column in TEXTS:
            yield Doubt(
                f"{column} is a text, and never equals a number; write '{token.text}'",
                token.position,
            )
        elif token.kind == "string":
            text = token.text[1:-1].replace("''", "'")
            if function in _TYPES and text not in _TYPES[function]:
                known = ", ".join(sorted(_TYPES[function]))
                yield Doubt(f"{function} answers {known}, and never {text!r}", token.position)
            elif function in _CASES and text != _CASES[function](text):
                yield Doubt(f"{function} never answers {text!r}", token.position)
            elif column == "metadata" and not function and text and not _is_json(text):
                yield Doubt(
                    "metadata is JSON text; write json_extract(metadata, '$.KEY')", token.position
                )


def _compares_with_literals(rest: Tokens) -> bool:
    """Return whether a comparison has only literals behind its column, as ``IN ('a', 'b')``."""
    if not rest or (rest[0].text not in _EQUALS and rest[0].word not in ("in", "is", "not")):
        return False
    return all(
        token.word in _BETWEEN_LITERALS
        and (token.kind != "sign" or token.text in _EQUALS or token.text == ",")
        for token in rest
    )


def _is_json(text: str) -> bool:
    try:
        orjson.loads(text)
    except orjson.JSONDecodeError:
        return False
    return True


def _head_of(tokens: Tokens) -> tuple[str, str, Tokens]:
    """Return the function and the column that a comparison begins with, and what follows.

    A comparison that begins with a literal is turned round.
    """
    if len(tokens) > 2 and tokens[0].kind in ("string", "number") and tokens[1].text in _EQUALS:
        tokens = [*tokens[2:], tokens[1], tokens[0]]
    if len(tokens) > 1 and tokens[1].kind == "open" and tokens[0].word:
        depth = 0
        for place, token in enumerate(tokens):
            depth += (token.kind == "open") - (token.kind == "close")
            if depth == 0 and token.kind == "close":
                inner = tokens[2:place]
                column = inner[0].word if len(inner) == 1 else ""
                return tokens[0].word, column, tokens[place + 1 :]
    return "", tokens[0].word, tokens[1:]


_PART_OF_INSTANT = re.compile(
    r"\d{4}(-\d\d(-\d\d(T\d\d(:\d\d(:\d\d(\.\d+)?)?)?(Z|[+-]\d\d:\d\d)?)?)?)?"
)
_LONGEST_PART_OF_DATE = 7


def _doubts_of_timestamp(tokens: Tokens) -> Iterator[Doubt]:
    """Find literals that are no instants, or are written otherwise than instants are."""
    reversed_ = len(tokens) > 2 and tokens[0].kind == "string"
    if reversed_ and tokens[1].text in _COMPARISONS:
        tokens = [*tokens[2:], tokens[1], tokens[0]]
    function, column, rest = _head_of(tokens)
    if column != "timestamp" or function not in ("", "date", "datetime"):
        return
    if any(
        token.word not in _PLAIN_WORDS
        or (token.kind == "sign" and token.text not in _PLAIN_SIGNS)
        or token.text == "''"
        for token in rest
    ):
        return
    equals = bool(rest) and (rest[0].text in _EQUALS or rest[0].word in ("in", "is"))
    for token in rest:
        if token.kind == "string":
            problem = _problem_of_instant(token.text[1:-1], function, equals=equals)
            if problem:
                yield Doubt(problem, token.position)
        elif token.kind == "number":
            yield Doubt(f"a time is a text, and no number; write '{token.text}'", token.position)


def _problem_of_instant(text: str, function: str, *, equals: bool) -> str:
    """Return what is wrong with a text beside ``timestamp``; empty when it is an instant."""
    instant = text.replace(" ", "T", 1)
    if not _is_instant(instant):
        return f"{text!r} is no date or time; write it as '2026-03-31T08:00:00'"
    separator = text[10:11]
    if function == "date":
        whole = len(text) == len("2026-03-31")
        return (
            ""
            if whole or (not equals and not separator)
            else (f"date() answers a date as '2026-03-31', and never {text!r}")
        )
    if function == "datetime":
        whole = len(text) == len("2026-03-31 08:00:00")
        return (
            ""
            if separator != "T" and (whole or not equals)
            else (f"datetime() answers a time as '2026-03-31 08:00:00', and never {text!r}")
        )
    if separator == " ":
        return f"{text!r} has a space between date and time; timestamps have a T"
    if _offset_of(text) != timedelta(0):
        return f"timestamps are compared as texts, in UTC; write {text!r} in UTC"
    if equals and not separator:
        return f"no timestamp equals {text!r}, which has no time; write date(timestamp)"
    return ""


def _is_instant(text: str) -> bool:
    """Return whether a text is an instant in ISO 8601, or the beginning of one."""
    if not _PART_OF_INSTANT.fullmatch(text):
        return False
    whole = text + "-01-01"[len(text) - 4 :] if len(text) <= _LONGEST_PART_OF_DATE else text
    try:
        if "T" in whole:
            datetime.fromisoformat(whole)
        else:
            date.fromisoformat(whole)
    except ValueError:
        return False
    return True


def _offset_of(text: str) -> timedelta:
    if "T" not in text:
        return timedelta(0)
    return datetime.fromisoformat(text).utcoffset() or timedelta(0)
