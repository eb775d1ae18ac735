"""Find what people say of themselves, their relatives and their pets, in plain English.

The extractor prefers silence: a wrong fact costs more than a missing one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from slumberd.extraction.attributes_in_english import ATTRIBUTES
from slumberd.extraction.clauses import Clause, asserted_sentences
from slumberd.extraction.english_parser import Parsed, Word
from slumberd.extraction.objects_in_english import Object
from slumberd.extraction.short_answers import (
    answered,
    corrected,
    is_taken_back,
    left_there,
    meant_instead,
    names_in,
    slip,
)
from slumberd.extraction.statements_in_english import expressions
from slumberd.extraction.turn_notes import ANSWERED, NAME, STATED
from slumberd.extraction.turn_reader import (
    ALL_READERS,
    MAX_TEXT,
    NOT_PARSED,
    TurnReader,
    is_worth_parsing,
)
from slumberd.extraction.turns import arrange, name_of_speaker
from slumberd.extraction.vocabulary import Vocabulary
from slumberd.model.extraction import Extracted, Turn

VERSION = 1
"""Changes when the same text and vocabulary give other triples than before."""


class Parser(Protocol):
    """Parses English sentences."""

    def parse(self, sentences: Sequence[str]) -> list[tuple[Word, ...]]:
        """Return the words of sentences, in order."""
        ...


@dataclass(frozen=True, slots=True)
class Conversation:
    """Finds triples in what people say.

    Attributes:
        vocabulary: The words that it knows.
        speakers: The name of each speaker, by the speaker of a turn. Others keep theirs.
        parser: Parses sentences; None leaves them to the expressions alone.
    """

    vocabulary: Vocabulary
    speakers: Mapping[str, str] = field(default_factory=dict)
    parser: Parser | None = None

    def extract(
        self, turns: Sequence[Turn], before: Sequence[Turn | None]
    ) -> list[list[Extracted]]:
        """Return the triples of each turn; see `Extractor`."""
        parsed = self._parse(turns)
        return [self._extract(*each) for each in zip(turns, before, parsed, strict=True)]

    def _parse(self, turns: Sequence[Turn]) -> list[Mapping[Clause, Parsed]]:
        """Return the parsed sentences of each turn; all are parsed together, which is faster."""
        if self.parser is None:
            return [NOT_PARSED for _ in turns]
        sentences = [
            [one for one in asserted_sentences(turn.content[:MAX_TEXT]) if is_worth_parsing(one)]
            if name_of_speaker(turn, self.speakers)
            else []
            for turn in turns
        ]
        words = iter(self.parser.parse([one.text for each in sentences for one in each]))
        return [{one: next(words) for one in each} for each in sentences]

    def _extract(
        self, turn: Turn, before: Turn | None, parsed: Mapping[Clause, Parsed]
    ) -> list[Extracted]:
        name = name_of_speaker(turn, self.speakers)
        found = self._read(turn, name, parsed) if name else []
        if name and (predicate := left_there(turn.content)):
            found += self._leave(turn, before, name, predicate)
        elif name and not found and before is not None:
            found = self._answer(turn, before, name)
        if name and turn.own_last is not None:
            if is_taken_back(turn.content):
                found = [*self._take_back(turn, turn.own_last, name, found), *found]
            elif not found and (words := slip(turn.content)):
                found = [*self._correct(turn, turn.own_last, name, words)]
        if not turn.is_person and self.speakers.get(turn.speaker) != "{user}":
            found = [one for one in found if one.intent == "add"]
        return arrange(one for one in found if one.by not in self.vocabulary.removed)

    def _read(self, turn: Turn, name: str, parsed: Mapping[Clause, Parsed]) -> list[Extracted]:
        """Return the triples of a turn, without those that the turn itself takes back."""
        found = TurnReader(turn, name, self.vocabulary, parsed).find()
        correction = corrected(turn.content) if found else None
        if correction is None:
            return found
        start, end, meant, is_certain = correction
        head = turn.content[:start].rstrip(_BEFORE_CORRECTION)
        said_before = self._find_again(turn._replace(content=head), name)
        wrong = [one for one in said_before if one.intent == "add" and one.span[1] >= len(head)]
        if not wrong:
            return found
        instead = self._meant(wrong, meant, end)
        if not instead and not is_certain:
            return found
        after = turn._replace(content=" " * end + turn.content[end:])
        rest = self._find_again(after, name)
        wrong = [one for one in wrong if not instead or one.predicate == instead[0].predicate]
        return [one for one in said_before if one not in wrong] + instead + rest

    def _meant(self, wrong: Sequence[Extracted], meant: str, end: int) -> list[Extracted]:
        """Return the last of some triples that can have the object that was meant instead."""
        for one in reversed(wrong):
            objects = _read_again(one, meant, self.vocabulary, _EXACT) if meant else []
            if objects:
                return [
                    one._replace(
                        object=objects[0],
                        span=(one.span[0], end),
                        by=f"{NAME}/slip",
                        confidence=ANSWERED,
                    )
                ]
        return []

    def _leave(
        self, turn: Turn, before: Turn | None, name: str, predicate: str
    ) -> Iterator[Extracted]:
        """Yield what ``I don't live there any more`` takes back: what the turns before name."""
        last = turn.own_last
        own = self._find_again(last, name) if last is not None else []
        places = [str(one.object) for one in own if one.predicate == predicate]
        places += names_in(before.content) if before is not None else ()
        for place in dict.fromkeys(places):
            yield Extracted(
                name, predicate, None, "delete", (0, len(turn.content)), f"{NAME}/left_there",
                STATED, tuple(place.split()),
            )  # fmt: skip

    def _find_again(self, turn: Turn, name: str) -> list[Extracted]:
        """Return the triples of the last turn of a speaker, or of a part of a turn."""
        return TurnReader(turn, name, self.vocabulary, *self._parse([turn])).find()

    def _answer(self, turn: Turn, before: Turn, name: str) -> list[Extracted]:
        answer = answered(before.content, turn.content)
        if answer is None or not self.vocabulary.knows(answer.predicate):
            return []
        objects = ALL_READERS[answer.reader](answer.words, self.vocabulary)
        span = (0, len(turn.content))
        return [
            Extracted(name, answer.predicate, one, "add", span, f"{NAME}/answer", ANSWERED)
            for one in objects[:1]
        ]

    def _correct(self, turn: Turn, last: Turn, name: str, words: str) -> Iterator[Extracted]:
        """Yield the triples of the last turn with the object that a slip corrects."""
        for one in self._find_again(last, name):
            objects = _read_again(one, words, self.vocabulary, _EXACT)
            if one.intent == "add" and objects and one.object != objects[0]:
                span, by = (0, len(turn.content)), f"{NAME}/slip"
                subject, predicate = one.subject, one.predicate
                yield Extracted(
                    subject, predicate, None, "delete", span, by, STATED, (), (last.id,)
                )
                yield Extracted(subject, predicate, objects[0], "add", span, by, ANSWERED)
                return

    def _take_back(
        self, turn: Turn, last: Turn, name: str, found: Sequence[Extracted]
    ) -> Iterator[Extracted]:
        """Yield the retractions of a speaker's last turn, and what was meant instead."""
        said_before = [one for one in self._find_again(last, name) if one.intent == "add"]
        span = (0, len(turn.content))
        by = f"{NAME}/taken_back"
        for subject, predicate in dict.fromkeys(
            (one.subject, one.predicate) for one in said_before
        ):
            yield Extracted(subject, predicate, None, "delete", span, by, STATED, (), (last.id,))
        words = meant_instead(turn.content)
        if words and said_before and not found:
            first = said_before[0]
            for one in _read_again(first, words, self.vocabulary)[:1]:
                yield Extracted(first.subject, first.predicate, one, "add", span, by, ANSWERED)


_BEFORE_CORRECTION = " ,.;:!(\u2013\u2014-"

_EXACT = frozenset({"age", "count", "day", "named_employer", "named_place", "names", "place"})
"""The readers that a slip may use: they know a wrong word from a right one."""


def _read_again(
    first: Extracted, words: str, vocabulary: Vocabulary, only: frozenset[str] = frozenset()
) -> list[Object]:
    """Return the object that replaces the one of a triple, by the reader that read it.

    Args:
        first: The triple.
        words: What was meant.
        vocabulary: The words that are known.
        only: The readers that count; none counts all.
    """
    effects = (
        effect
        for expression in expressions()
        for effect in expression.effects
        if effect.predicate == first.predicate and effect.reader
    )
    of_attribute = [
        reader for _, _, predicate, reader in ATTRIBUTES if predicate == first.predicate
    ]
    readers = [effect.reader for effect in effects] + of_attribute or ["phrase"]
    readers = [reader for reader in readers if not only or reader in only]
    for reader in dict.fromkeys(readers):
        if found := ALL_READERS[reader](words, vocabulary):
            return found
    return []
