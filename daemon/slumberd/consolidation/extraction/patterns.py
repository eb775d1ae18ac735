"""Find triples with patterns: expressions with named groups, and templates over the groups.

A template writes a group, and an expression a list of words, as ``{name}``. The tests of a pattern
file are conversations, and the triples that they state.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from itertools import islice, product
from typing import Any, Literal, NamedTuple

from slumberd.consolidation.extraction.normalisers import (
    NormaliserName,
    Value,
    collapse_spaces,
    normalise,
    replace_alias,
)
from slumberd.consolidation.extraction.sentences import (
    Sentence,
    clause_around,
    divide_into_sentences,
    is_negated,
    listed,
    readable_form,
)
from slumberd.consolidation.extraction.turns import arrange, name_of_speaker, previous_turns
from slumberd.model.extraction import MAX_EXTRACTED, Extracted, Extractor, Failed, Intent, Turn
from slumberd.model.scope import canonical
from slumberd.model.texts import words_of
from slumberd.search.expressions import Expression, Match

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


MAX_MATCHES = 50
"""Of each expression a turn counts at most this many matches, vetoed ones too.

Every match takes linear time; this bound keeps the whole turn linear.
"""

MAX_TEXT = 1_000
"""In characters; a match with a longer subject, predicate or object states nothing."""

Negated = Literal["allow", "veto", "delete"]
"""What a match under a negation means: the same, nothing, or that the triple is taken back."""

UnlessIn = Literal["clause", "sentence"]
"""Where the expressions of `unless` are looked for."""

WITHOUT_CONTENT = listed(
    "a an the my our your his her its their this that these those of to in on at for from with and"
    " or"
)
"""Words that an object need not hold to be taken back by its words."""

FIRST_PERSON = frozenset({"i", "me", "my", "mine", "myself"})
"""A group with one of these words means the speaker."""

SECOND_PERSON = frozenset({"you", "your", "yours", "yourself"})
"""A group with one of these words means the other speaker."""


class Says(NamedTuple):
    """The templates of the triple that a pattern states.

    Attributes:
        subject: A template, or the whole text.
        predicate: A template, or the whole text.
        object: A template, or any JSON scalar. None takes all objects of the predicate back.
        object_words: A template of the words of the objects to take back; empty for none.
    """

    subject: str
    predicate: str
    object: Value | bool | None = None
    object_words: str = ""


@dataclass(frozen=True, slots=True)
class Pattern:
    """One pattern.

    Attributes:
        id: Its id; each triple names it.
        when: Expressions; each one may match anywhere in a sentence.
        says: The triple of a match. A match without a named group's text states nothing.
        when_previous: An expression that must match in the previous turn of another speaker. Its
            groups count where those of `when` have no text.
        unless: Expressions; a match of one vetoes the pattern there.
        unless_in: Whether they are looked for in the sentence, or in the clause of the match.
        intent: ``add`` or ``delete``.
        negated: What a match means whose end stands under a negation.
        confidence: 0 to 1.
        normalise: The normalisers of each group, in order. Every group has its white space
            collapsed first.
        keep_unknown: The groups whose text stays as it is when a normaliser does not know it. For
            other groups the match is dropped.
    """

    id: str
    when: tuple[Expression, ...]
    says: Says
    when_previous: Expression | None = None
    unless: tuple[Expression, ...] = ()
    unless_in: UnlessIn = "sentence"
    intent: Intent = "add"
    negated: Negated = "veto"
    confidence: float = 1.0
    normalise: Mapping[str, Sequence[NormaliserName]] = field(default_factory=dict)
    keep_unknown: Set[str] = frozenset()


class Aliases(NamedTuple):
    """The aliases of the three parts of a triple: the name of each, by `alias_key`."""

    subjects: Mapping[str, str] = {}
    predicates: Mapping[str, str] = {}
    objects: Mapping[str, str] = {}


@dataclass(frozen=True, slots=True)
class PatternSet:
    """The patterns of a file; an `Extractor`.

    Attributes:
        patterns: The patterns, in the order of the file.
        aliases: Replace subjects, predicates and objects of all patterns.
        speakers: The name of each speaker, by the speaker of a turn. Others keep theirs.
        opposites: The predicates whose equal object a triple takes back, by its predicate.
    """

    patterns: tuple[Pattern, ...]
    aliases: Aliases = field(default_factory=Aliases)
    speakers: Mapping[str, str] = field(default_factory=dict)
    opposites: Mapping[str, Sequence[str]] = field(default_factory=dict)

    def extract(
        self, turns: Sequence[Turn], before: Sequence[Turn | None]
    ) -> list[list[Extracted]]:
        """Return the triples of each turn; see `Extractor`."""
        pairs = zip(turns, before, strict=True)
        return [arrange(self._find(turn, previous)) for turn, previous in pairs]

    def _find(self, turn: Turn, previous: Turn | None) -> Iterator[Extracted]:
        sentences = divide_into_sentences(readable_form(turn.content))
        asked = None if previous is None else readable_form(previous.content)
        other = "" if previous is None else self._name(previous)
        context = _Context(turn.at, self._name(turn), other)
        for pattern in self.patterns:
            given = _given_before(pattern, asked, context)
            if given is not None:
                given |= context.speakers()
                for candidate in _candidates(pattern, sentences):
                    groups = given | _values(pattern, candidate.groups, context)
                    names = sorted(groups)
                    each = product(*(groups[name] for name in names))
                    for values in islice(each, MAX_EXTRACTED):
                        named = dict(zip(names, values, strict=True))
                        yield from self._state(pattern, candidate, named)

    def _name(self, turn: Turn) -> str:
        return name_of_speaker(turn, self.speakers)

    def _state(
        self, pattern: Pattern, candidate: _Candidate, values: Mapping[str, Value | None]
    ) -> Iterator[Extracted]:
        """Yield the triple of a candidate, and what it takes back; nothing if a part is missing."""
        says, aliases = pattern.says, self.aliases
        subject = _replaced(_filled(says.subject, values), aliases.subjects)
        predicate = _replaced(_filled(says.predicate, values), aliases.predicates)
        object_ = _replaced(_filled(says.object, values), aliases.objects)
        words = content_words(_filled(says.object_words, values))
        given = (object_,) if says.object is not None else words if says.object_words else ("all",)
        if not given or not all(map(_is_stated, (subject, predicate, *given))):
            return
        found = Extracted(
            str(subject), str(predicate), object_, candidate.intent, candidate.span,
            pattern.id, pattern.confidence, words,
        )  # fmt: skip
        yield found
        if found.intent == "add":
            for opposite in self.opposites.get(found.predicate, ()):
                yield found._replace(predicate=opposite, intent="delete")


def _filled(
    template: Value | bool | None, values: Mapping[str, Value | None]
) -> Value | bool | None:
    return fill(template, values) if isinstance(template, str) else template


def content_words(text: Value | bool | None) -> tuple[str, ...]:
    """Return the words of a text by which objects are taken back, in order."""
    words = dict.fromkeys(words_of(text)) if isinstance(text, str) else {}
    return tuple(word for word in words if word not in WITHOUT_CONTENT)


def _is_stated(part: Value | bool | None) -> bool:
    return 0 < len(part) <= MAX_TEXT if isinstance(part, str) else part is not None


def _replaced(value: Value | bool | None, aliases: Mapping[str, str]) -> Value | bool | None:
    return replace_alias(value, aliases) if isinstance(value, str) else value


_Values = dict[str, Sequence[Value | None]]
"""The values of each group, several for a list; None for an empty or unknown one."""


class _Context(NamedTuple):
    """What a turn's matches share.

    Attributes:
        at: The instant of the turn, in microseconds since 1970 UTC.
        speaker: The name of the speaker; may be empty.
        other: The name of the previous speaker; empty when there is none.
    """

    at: int
    speaker: str
    other: str

    def speakers(self) -> _Values:
        """Return the values that every template may name; None where a speaker is unknown."""
        return {"speaker": [self.speaker or None], "other": [self.other or None]}

    def of_other(self) -> _Context:
        """Return the context in which the other speaker says ``I``."""
        return self._replace(speaker=self.other, other=self.speaker)


def _given_before(pattern: Pattern, asked: str | None, context: _Context) -> _Values | None:
    """Return the values that the previous turn gives; None when the pattern needs another one."""
    if pattern.when_previous is None:
        return {}
    match = None if asked is None else pattern.when_previous.search(asked)
    return None if match is None else _values(pattern, _texts(match), context.of_other())


def _values(pattern: Pattern, groups: Mapping[str, str], context: _Context) -> _Values:
    return {name: _values_of(pattern, name, text, context) for name, text in groups.items()}


def _values_of(pattern: Pattern, name: str, text: str, context: _Context) -> Sequence[Value | None]:
    if text.casefold() in FIRST_PERSON | SECOND_PERSON:
        return [_speaker_or(text, context)]
    found = _normalised(pattern, name, text, context.at)
    return [_speaker_or(value, context) for value in found]  # a list may be "Bob and I"


def _speaker_or(value: Value | None, context: _Context) -> Value | None:
    """Return the speaker whom a pronoun means, None if unknown; another value as it is."""
    word = value.casefold() if isinstance(value, str) else ""
    if word in FIRST_PERSON:
        return context.speaker or None
    if word in SECOND_PERSON:
        return context.other or None
    return value


class _Candidate(NamedTuple):
    """A match of a pattern that nothing vetoes."""

    groups: Mapping[str, str]
    span: tuple[int, int]
    intent: Intent


def _candidates(pattern: Pattern, sentences: Sequence[Sentence]) -> Iterator[_Candidate]:
    for expression in pattern.when:
        for sentence, match in islice(_matches(pattern, expression, sentences), MAX_MATCHES):
            # What follows the last group only limits it: ", but" belongs to the next clause.
            last = max(map(match.end, expression.groupindex.values()), default=-1)
            end = match.end() if last < 0 else last
            intent = _intent_of(
                pattern, sentence, {end, match.end(), *_starts(match, expression.groupindex, last)}
            )
            if intent is not None and not _is_vetoed_in_clause(pattern, sentence, match, end):
                span = (sentence.start + match.start(), sentence.start + match.end())
                yield _Candidate(_texts(match), span, intent)


def _starts(match: Match, numbers: Mapping[str, int], end: int) -> list[int]:
    """Return where the named groups with an end begin: a comma in them ends no negation."""
    texts = _texts(match).items()
    return [end - len(text) for name, text in texts if match.end(numbers[name]) == end]


def _matches(
    pattern: Pattern, expression: Expression, sentences: Iterable[Sentence]
) -> Iterator[tuple[Sentence, Match]]:
    """Yield the matches of an expression in the sentences that `unless` does not veto whole."""
    vetoes = pattern.unless if pattern.unless_in == "sentence" else ()
    for sentence in sentences:
        matches = expression.finditer(sentence.text)
        first = next(matches, None)
        if first is None or any(veto.search(sentence.text) for veto in vetoes):
            continue
        yield sentence, first
        for match in matches:
            yield sentence, match


def _is_vetoed_in_clause(pattern: Pattern, sentence: Sentence, match: Match, end: int) -> bool:
    if pattern.unless_in == "sentence" or not pattern.unless:
        return False
    clause = clause_around(sentence.text, match.start(), end)
    return any(veto.search(clause) for veto in pattern.unless)


def _intent_of(pattern: Pattern, sentence: Sentence, places: Set[int]) -> Intent | None:
    """Return the intent of a match at some places; None when a negation before one vetoes it."""
    if pattern.negated == "allow" or not any(is_negated(sentence.text, at) for at in places):
        return pattern.intent
    return "delete" if pattern.negated == "delete" else None


def _texts(match: Match) -> dict[str, str]:
    """Return the groups that have a text."""
    return {name: text for name, text in match.groupdict().items() if text is not None}


def _normalised(pattern: Pattern, name: str, text: str, at: int) -> Sequence[Value | None]:
    """Return the values of a group: several for a list; None for an empty or unknown text."""
    values: list[Value | None] = [collapse_spaces(text) or None]
    for normaliser in pattern.normalise.get(name, ()):
        values = [
            after
            for before in values
            for after in _values_after(normaliser, before, at, keep=name in pattern.keep_unknown)
        ]
    return values


def _values_after(
    normaliser: NormaliserName, value: Value | None, at: int, *, keep: bool
) -> Sequence[Value | None]:
    if not isinstance(value, str):
        return [value]
    found = normalise(normaliser, value, at)
    if isinstance(found, list):
        return found
    return [value] if found is None and keep else [found]


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
