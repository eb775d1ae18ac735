"""Say whether a fact is what a pattern asks for. Regular expressions are compiled elsewhere."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from functools import partial
from typing import Any

from slumberd.core.act import canonical, channel_of
from slumberd.core.fact import Fact, FactPattern, aware, confidence
from slumberd.core.globs import GlobProblem, matcher_of
from slumberd.core.pattern import LONGEST, Equals, Glob, Matches, OneOf, Prefix
from slumberd.errors import PatternError

SLOTS = ("subject", "predicate", "object", "user", "agent", "id")
"""Those that take forms; the first three are of the payload."""

IN_PAYLOAD = SLOTS[:3]

Says = Callable[[Any], bool]
"""Says whether a value, of whatever type, is what is asked for."""

Compile = Callable[[str, str], Callable[[str], bool]]
"""Takes a slot and its regular expression, and returns what says whether a text matches it whole.
It raises `PatternError`, and `ExtraMissingError`."""


def matcher(pattern: FactPattern, compile: Compile) -> Callable[[Fact], bool]:  # noqa: A002 # what it does
    """Return what says whether a fact is what a pattern asks for, wherever it stands in an order.

    Raises:
        PatternError: A glob or a regular expression cannot be read.
        ExtraMissingError: There is a regular expression, and no engine for it.
    """
    tests = [test for slot in SLOTS for test in _of_slot(pattern, slot, compile)]
    tests += _of_bounds(pattern)
    return lambda fact: all(test(fact) for test in tests)


def _of_slot(pattern: FactPattern, slot: str, compile: Compile) -> list[Callable[[Fact], bool]]:  # noqa: A002
    form = getattr(pattern, slot)
    if form is None:
        return []
    says = _says(form, slot, compile)
    if slot in IN_PAYLOAD:
        return [lambda fact: says(fact.payload.get(slot))]
    return [lambda fact: says(getattr(fact, slot))]


def _says(form: object, slot: str, compile: Compile) -> Says:  # noqa: A002
    match form:
        case Prefix(prefix=start):
            return _of_text(lambda text: text.startswith(start))
        case Glob(glob=glob):
            return _of_text(_glob(slot, _short(slot, glob)))
        case Matches(matches=expression):
            return _of_text(compile(slot, _short(slot, expression)))
        case OneOf(one_of=values) if all(isinstance(value, str) for value in values):
            return _of_text(frozenset(values).__contains__)
        case OneOf(one_of=values):
            return partial(_is_one_of, frozenset(map(canonical, values)))
        case Equals(equals=value):
            return partial(_is_one_of, frozenset([canonical(value)]))
        case _:
            return lambda value: bool(value == form)


def _of_text(says: Callable[[str], bool]) -> Says:
    return lambda value: isinstance(value, str) and says(value)


def _is_one_of(values: frozenset[str], value: object) -> bool:
    return canonical(value) in values


def _short(slot: str, text: str) -> str:
    if len(text) > LONGEST:
        shown = f"{text[:40]}..."
        raise PatternError(slot, shown, f"is longer than {LONGEST} characters", LONGEST)
    return text


def _glob(slot: str, glob: str) -> Callable[[str], bool]:
    try:
        return matcher_of(glob)
    except GlobProblem as error:
        raise PatternError(slot, glob, error.problem, error.position) from error


def _of_bounds(pattern: FactPattern) -> list[Callable[[Fact], bool]]:
    tests: list[Callable[[Fact], bool]] = []
    if (channel := pattern.channel) is not None:
        tests.append(lambda fact: channel_of(fact.id) == channel)
    if (least := pattern.min_confidence) is not None:
        tests.append(lambda fact: confidence(fact) >= least)
    if (most := pattern.max_confidence) is not None:
        tests.append(lambda fact: 0 <= confidence(fact) <= most)
    tests += _between(lambda fact: fact.said_at, pattern.said_since, pattern.said_until)
    tests += _between(
        lambda fact: aware(fact.pinned_at), pattern.pinned_since, pattern.pinned_until
    )
    return tests


def _between(
    instant_of: Callable[[Fact], datetime], since: datetime | None, until: datetime | None
) -> list[Callable[[Fact], bool]]:
    """Return what says whether an instant of a fact lies from `since` on, and before `until`."""
    tests: list[Callable[[Fact], bool]] = []
    if since is not None:
        tests.append(lambda fact: instant_of(fact) >= since)
    if until is not None:
        tests.append(lambda fact: instant_of(fact) < until)
    return tests
