"""Find what people say of themselves, their relatives and their pets, in plain English.

The extractor prefers silence: a wrong fact costs more than a missing one. It also reads short
answers to questions, and what a speaker takes back at once.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from slumberd.consolidation.extraction.clauses import Clause, asserted_sentences, clean
from slumberd.consolidation.extraction.english_parser import Parsed, Word
from slumberd.consolidation.extraction.objects_in_english import Object
from slumberd.consolidation.extraction.short_answers import (
    READ_LAST,
    answered,
    sentence_of_answer,
    supposed_and_meant,
)
from slumberd.consolidation.extraction.statements_in_english import (
    ATTRIBUTES,
    clause_expressions,
    expressions,
)
from slumberd.consolidation.extraction.turn_notes import ANSWERED, STATED
from slumberd.consolidation.extraction.turn_reader import (
    ALL_READERS,
    MAX_TEXT,
    NOT_PARSED,
    TurnReader,
    is_worth_parsing,
)
from slumberd.consolidation.extraction.turns import arrange, name_of_speaker
from slumberd.consolidation.extraction.vocabulary import NAME, Vocabulary
from slumberd.model.extraction import Extracted, Turn

_TAKEN_BACK = re.compile(
    r"\W*(?:(?:oh|wait|no|actually|oops|sorry|hmm|ah|whoops|ugh|hang on|hold on|my bad|my"
    r" mistake)[\s,.!-]+)*"
    r"(?:scratch that|strike that|ignore (?:that|my last message|what I said|the last message)"
    r"|disregard (?:that|my last message)"
    r"|forget (?:that|what I (?:just )?said|I said that)|I take (?:that|it) back|never"
    r" ?mind(?: that| what I said)?|(?:I was |I am |I'm |im )?(?:just |only )?(?:kidding|joking)"
    r"|jk|that (?:was|is) (?:wrong|not true|a typo|a mistake|incorrect|a joke)|that's (?:wrong"
    r"|not true|not right|a typo|incorrect)|I misspoke|I was wrong|typo|wrong|I lied"
    r"|(?:I )?meant(?: to (?:say|write|type))?|I mean(?= \w+[.!]?$)|correction|not true)\b",
    re.IGNORECASE,
)
_SLIP = re.compile(
    r"\W*(?:(?:oh|no|wait|ah|oops),? )*(?:sorry|oops|no|correction|wait)[,:]+ (?:it is |it's "
    r"|the |on |in |at )*"
    r"(?P<o>[\w][\w '-]{0,40}?)(?:[.,!]|$)",
    re.IGNORECASE,
)
_MEANT = re.compile(
    r"\b(?:meant(?: to (?:say|write|type))?|mean|correction:?|it's|it is|should be|should have"
    r" been)[ :]+(?:in |at |a |an |the )?(?P<o>[\w][\w '-]{0,40}?)(?:[.,!]|$)",
    re.IGNORECASE,
)


def is_taken_back(text: str) -> bool:
    """Return whether a turn takes back what its speaker said just before."""
    match = _TAKEN_BACK.match(clean(text[:READ_LAST]))
    return match is not None and "?" not in text[:READ_LAST]


def meant_instead(text: str) -> str:
    """Return what was meant instead, as in ``sorry, I meant Leeds``; empty when it is not said."""
    match = _MEANT.search(clean(text[:READ_LAST]))
    return match["o"].strip() if match else ""


def slip(text: str) -> str:
    """Return what a turn such as ``sorry, 15th of May`` puts in the place of what was said."""
    match = _SLIP.match(clean(text[:READ_LAST]))
    return match["o"].strip() if match and "?" not in text[:READ_LAST] else ""


class SelfCorrection(NamedTuple):
    """Words in a turn that take back what stands before them.

    Attributes:
        start: Where they begin, in characters.
        end: Where they end.
        meant: What is meant instead; empty when the words do not say.
        is_certain: Whether they take something back even when nothing is meant instead.
    """

    start: int
    end: int
    meant: str
    is_certain: bool


_CORRECTED = re.compile(
    r"(?<![\w'])(?:(?P<certain>no,? wait|wait,? no|no,? sorry|sorry,? no|(?:scratch|strike) that"
    r"|I meant(?: to (?:say|write|type))?|or rather)(?=\s*[,.:!\u2013\u2014-]|\s*$"
    r"|\s+(?-i:I|[A-Z0-9]|in|at|it|my)\b)"
    r"|(?:sorry|no|oops)(?=\s?[,:\u2013\u2014-])|actually|(?P<mean>I mean))"
    r"[\s,.:!\u2013\u2014-]{1,4}"
    r"(?:(?:it is|it's|in|at|on|the|a|an) ){0,2}"
    r"(?P<o>(?-i:[^\W_a-z])[\w'-]*(?: (?-i:[^\W_a-z])[\w'-]*)?)?(?P<end>\s*(?:[.!]|$))?",
    re.IGNORECASE,
)


def corrected(text: str) -> SelfCorrection | None:
    """Return how a turn corrects itself, as in ``I live in Paris, no wait, Lyon``.

    Args:
        text: The turn.
    """
    for match in _CORRECTED.finditer(clean(text)):
        meant = match["o"] or "" if match["end"] is not None else ""
        is_certain = match["certain"] is not None
        begins = text[: match.start()].rstrip()[-1:] in ".!?"  # "Sorry, Kim." calls somebody
        is_meant = meant and (match["mean"] is not None or not begins)
        if match.start() and (is_certain or is_meant):
            end = match.end() if meant else match.end("certain")
            return SelfCorrection(match.start(), end, meant, is_certain)
    return None


_LEFT_THERE = re.compile(
    r"\b(?:I|we) (?:no longer (?P<a>live|work) there"
    r"|do(?: not|n['\u2019]?t) (?P<b>live|work) there (?:any ?more|any longer|now))\b",
    re.IGNORECASE,
)
_NAMES = re.compile(r"(?<=[\w,] )[^\W\d_a-z][\w'-]*(?: [^\W\d_a-z][\w'-]*)?")


def left_there(text: str) -> str:
    """Return the predicate that ``I don't live there any more`` ends; empty when it ends none."""
    match = _LEFT_THERE.search(clean(text[:READ_LAST]))
    if match is None or "?" in text[:READ_LAST]:
        return ""
    return "lives_in" if (match["a"] or match["b"]).casefold() == "live" else "works_at"


def names_in(text: str) -> tuple[str, ...]:
    """Return the names in the end of a turn, which ``there`` may mean."""
    return tuple(dict.fromkeys(_NAMES.findall(text[-READ_LAST:])))[:4]


class Parser(Protocol):
    """Parses English sentences."""

    def parse(self, sentences: Sequence[str]) -> list[tuple[Word, ...]]:
        """Return the words of sentences, in order."""
        ...


@dataclass(frozen=True, slots=True)
class ConversationExtractor:
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
        span, by = (0, len(turn.content)), f"{NAME}/answer"
        answer = answered(before.content, turn.content)
        if answer is not None and self.vocabulary.knows(answer.predicate):
            objects = ALL_READERS[answer.reader](answer.words, self.vocabulary)
            return [
                Extracted(name, answer.predicate, one, "add", span, by, ANSWERED)
                for one in objects[:1]
            ]
        found = self._find_again_in(sentence_of_answer(before.content, turn.content), turn, name)
        if not found:
            supposed, meant = supposed_and_meant(before.content, turn.content)
            found = [*self._mean(self._find_again_in(supposed, turn, name), meant)]
        return [one._replace(span=span, by=by, confidence=ANSWERED) for one in found]

    def _find_again_in(self, sentence: str, turn: Turn, name: str) -> list[Extracted]:
        return self._find_again(turn._replace(content=sentence), name) if sentence else []

    def _mean(self, supposed: Sequence[Extracted], meant: str) -> Iterator[Extracted]:
        """Yield what another speaker supposed wrongly, as a retraction, and what is meant."""
        for one in supposed:
            objects = _read_again(one, meant, self.vocabulary, _EXACT)
            is_whole = objects and str(objects[0]).casefold() == meant.casefold()
            if one.intent == "add" and is_whole and one.object != objects[0]:
                words = tuple(str(one.object).split())
                yield one._replace(object=None, intent="delete", object_words=words)
                yield one._replace(object=objects[0])
                return

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


IN_CODE = (
    "answer", "cancelled", "died", "habit", "i_am", "implied", "inverted", "left_there",
    "moved_out", "named", "partner", "plan", "slip", "taken_back", "that_is_favourite",
)  # fmt: skip
"""The patterns that are in no table; `test_removed_patterns.py` checks them."""


def pattern_names() -> frozenset[str]:
    """Return the names of all patterns."""
    of_clauses = [one.id for one in (*expressions(), *clause_expressions())]
    of_attributes = [id for id, *_ in ATTRIBUTES]
    return frozenset(f"{NAME}/{id}" for id in (*of_clauses, *of_attributes, *IN_CODE))
