"""Run the tests of a pattern file: conversations, and the triples that they state."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from slumberd.extraction.turns import previous_turns
from slumberd.model.extraction import Extracted, Extractor, Failed, Intent, Turn
from slumberd.model.fact_ids import canonical
from slumberd.model.texts import words_of


class Expected(NamedTuple):
    """One triple that a test expects."""

    subject: str
    predicate: str
    object: Any
    intent: Intent = "add"
    object_words: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class PatternTest:
    """One test of patterns.

    Attributes:
        name: What the test shows.
        turns: The turns of one conversation, in order.
        expected: All triples that the turns state together, in any order.
        line: Its line in the test file; 0 without a file.
    """

    name: str
    turns: tuple[Turn, ...]
    expected: tuple[Expected, ...]
    line: int = 0


def run_pattern_tests(extractor: Extractor, tests: Iterable[PatternTest]) -> list[str]:
    """Return the failures in words, in the order of the tests; none when all is as expected."""
    return [failure for test in tests for failure in _failures(extractor, test)]


def _failures(extractor: Extractor, test: PatternTest) -> Iterator[str]:
    found = _triples_of(extractor, test.turns)
    missing = Counter(map(_words, test.expected))
    for one in found:
        stated = Expected(one.subject, one.predicate, one.object, one.intent, one.object_words)
        words = _words(stated)
        if missing[words]:
            missing[words] -= 1
        else:
            yield f"pattern {one.by!r} states {words}, which is not expected"
    for words in missing.elements():
        yield f"no pattern states {words}"


def _triples_of(extractor: Extractor, turns: tuple[Turn, ...]) -> list[Extracted]:
    by_turn = extractor.extract(turns, previous_turns(turns))
    # Patterns read every text.
    return [one for found in by_turn if not isinstance(found, Failed) for one in found]


def _words(triple: Expected) -> str:
    words = {word for text in triple.object_words for word in words_of(text)}
    object_ = sorted(words) if words else triple.object
    objects = () if object_ is None else (object_,)
    parts = (canonical(part) for part in (triple.subject, triple.predicate, *objects))
    return f"{triple.intent} {' '.join(parts)}"
