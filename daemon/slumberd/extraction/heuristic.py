"""Find triples in plain English sentences such as ``Bob is a chef``, without patterns.

The rule prefers silence: a question, a guess, a denial, or a sentence about somebody whom only the
conversation names states nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from slumberd.extraction.negation import is_negated
from slumberd.extraction.normalisers import collapse_spaces
from slumberd.extraction.sentences import (
    Sentence,
    divide_into_sentences,
    readable_form,
)
from slumberd.extraction.turns import arrange, name_of_speaker
from slumberd.model.extraction import Extracted, Turn

CONFIDENCE = 0.8
"""The confidence of every triple of the rule."""

MAX_SUBJECT = 60
MAX_OBJECT = 120
"""In characters; a longer subject or object states nothing."""

MAX_SENTENCE = 400
"""A longer sentence states nothing. This bounds the time for each sentence."""

_MAX_SUBJECT_WORDS = 6


def _word(words: str) -> str:
    return rf"(?:{'|'.join(words.split())})\b"


_VERB = re.compile(r"\b(is|are|has|have|was|were)\b(?!')", re.IGNORECASE)
_HEDGED = re.compile(
    r"\b"
    + _word(
        "maybe perhaps probably possibly presumably might if would could should shall seems? seemed"
        " guess think thinks thought suppose supposedly apparently allegedly hopes? hopefully"
        " wish wishes wonder whether unless doubt imagine pretend unsure rumou?rs? likely"
    )
    + r"|\b(?:not sure|as though|can be)\b",
    re.IGNORECASE,
)
_MODAL_MAY = re.compile(r"\w may\b")
_CHATTER = re.compile(
    r"(?:(?:no,|"
    + _word(
        "well so ok okay oh ah aw hey hi hello lol lmao omg wow ugh hmm btw fyi yes yeah yep and"
        " but also actually anyway then now today yesterday tonight still plus basically honestly"
        " sadly unfortunately luckily guys sorry thanks because ha(?:ha)+"
    )
    + r")[\s,:!.\u2026-]*)+",
    re.IGNORECASE,
)
_NO_SUBJECT = re.compile(
    _word(
        "he she it they we you this that these those there here who whom whose what which when"
        " where why how do does did can will am is are was were has have let make be get take see"
        " look check tell remember note while since until although though after before as all"
        " everything everyone everybody something someone somebody anything anyone anybody nothing"
        " nobody none some most many few both each either neither one another others mine yours"
        " his her hers its their theirs our ours your whatever whoever glad happy sorry nice good"
        " great lucky proud excited thankful grateful got thank last next lots? tons"
        r" a\slot"
    ),
    re.IGNORECASE,
)
_CLAUSE_IN_SUBJECT = re.compile(
    r"\b"
    + _word(
        "who whom which that what when where why how because says? said believes? knows? knew hear"
        " heard tells? told means? meant sure feels? felt sees? saw while until he she it they we"
        " you your yourself us like likes love loves want wants need needs am isn't aren't wasn't"
        " weren't"
    )
    + r"|\b\w+'(?:m|re|ve|ll|d)\b|\b(?:to|must|will|can|may|cannot)$|,|(?<!\band )\bi\b",
    re.IGNORECASE,
)
_OBJECT_END = re.compile(
    r",(?:\s|$)|;|:\s|\s[-\u2013\u2014]+\s|\s?[(\[]|\s[:=;]['-]?[()DPpoO/\\|]|\u2026|\.\.\."
    r"|\s(?:but|because|although|though|while|when|where|unless|until|than i|lol|lmao|haha)\b"
    r"|\sand\s+(?:i|we|you|he|she|they|it|my|his|her|their|our|your|the|this|that|then)\b",
    re.IGNORECASE,
)
_NO_OBJECT = re.compile(
    r"(?:been|to|got|had|like|just like|his|her|its|their|our)\b"
    r"|(?:it|this|that|there|here|so|too|what|mine|yours)\W*$",
    re.IGNORECASE,
)
_UNNAMED = re.compile(r"\b(?:i|you|your|yours|yourself)\b", re.IGNORECASE)
_LIST = re.compile(r"\b(?:and|or)\b", re.IGNORECASE)
_BREAK = re.compile(r"[;:]\s|\s[-\u2013\u2014]+\s")
_FIRST_PERSON = re.compile(r"\b(?:my|me|myself|i)\b", re.IGNORECASE)
_ARTICLE = re.compile(r"^(?i:the|an?)\s+(?=[^A-Z\s])")


@dataclass(frozen=True, slots=True)
class Heuristic:
    """Finds triples in sentences of the form subject, ``is are has have was were``, object.

    Attributes:
        speakers: The name of each speaker, by the speaker of a turn. Others keep theirs.
    """

    speakers: Mapping[str, str] = field(default_factory=dict)

    def extract(
        self, turns: Sequence[Turn], before: Sequence[Turn | None]
    ) -> list[list[Extracted]]:
        """Return the triples of each turn; see `Extractor`. The turns before have no effect."""
        return [arrange(self._find(turn)) for turn, _ in zip(turns, before, strict=True)]

    def _find(self, turn: Turn) -> Iterator[Extracted]:
        speaker = name_of_speaker(turn, self.speakers)
        for sentence in divide_into_sentences(readable_form(turn.content)):
            yield from _state(sentence, speaker)


def _state(sentence: Sentence, speaker: str) -> Iterator[Extracted]:
    """Yield the triple of a sentence, or nothing."""
    text = sentence.text
    verb = _VERB.search(text) if len(text) <= MAX_SENTENCE else None
    if verb is None or not _is_assertion(text):
        return
    subject = _subject(text[: verb.start()], speaker)
    object_, end = _object(text, verb.end(), speaker)
    if subject and object_ and not is_negated(text, end):
        span = (sentence.start, sentence.start + len(text))
        yield Extracted(subject, verb[0].casefold(), object_, "add", span, "heuristic", CONFIDENCE)


def _is_assertion(text: str) -> bool:
    """Return whether a sentence neither asks nor guesses."""
    return "?" not in text[-3:] and not _HEDGED.search(text) and not _MODAL_MAY.search(text)


def _subject(text: str, speaker: str) -> str:
    """Return the subject in the text before the verb; empty when it has none."""
    words = _main_part(text)
    if words.casefold() == "i":
        return speaker
    if _NO_SUBJECT.match(words) or _CLAUSE_IN_SUBJECT.search(words):
        return ""
    named = _name_speaker(_ARTICLE.sub("", words), speaker)
    fits = len(named) <= MAX_SUBJECT and len(named.split()) <= _MAX_SUBJECT_WORDS
    return named if fits else ""


def _main_part(text: str) -> str:
    """Return the words before the verb without chatter, introductions and appositions."""
    words = _without_chatter(_BREAK.split(collapse_spaces(text))[-1])
    if words.endswith(","):
        return words.partition(",")[0]
    last = words.rpartition(", ")[2]
    return words if _LIST.search(last) else _without_chatter(last)


def _without_chatter(words: str) -> str:
    chatter = _CHATTER.match(words)
    return words[chatter.end() :] if chatter else words


def _name_speaker(words: str, speaker: str) -> str:
    """Return words with the speaker's name for ``my`` and ``me``; empty when it is unknown."""
    if not _FIRST_PERSON.search(words):
        return words
    return _FIRST_PERSON.sub(lambda found: _name_for(found[0], speaker), words) if speaker else ""


def _name_for(word: str, speaker: str) -> str:
    return f"{speaker}'s" if word.casefold() == "my" else speaker


def _object(text: str, start: int, speaker: str) -> tuple[str, int]:
    """Return the object after the verb, and where it ends; empty when there is none."""
    cut = _OBJECT_END.search(text, start)
    words = _without_symbols(text[start : cut.start() if cut else None])
    plain = collapse_spaces(words).lstrip("\"'*~ ")
    named = _name_speaker(plain, speaker)
    if len(named) > MAX_OBJECT or _NO_OBJECT.match(plain) or _UNNAMED.search(plain):
        return "", start
    return named, start + len(words)


def _without_symbols(words: str) -> str:
    """Return words without full stops, emoji and other symbols at their end."""
    while words and not (words[-1].isalnum() or words[-1] in ")%\u20ac\u00a3"):
        words = words[:-1]
    return words
