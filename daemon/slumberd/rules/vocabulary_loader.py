"""Load the vocabulary of the extractor ``conversation``: the shipped one, and a user's file.

The forms here are the schema of that file.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Annotated, Literal

import orjson
from pydantic import Field

from slumberd.consolidation.extraction.english_parser import PARSER, EnglishParser, parser_version
from slumberd.consolidation.extraction.vocabulary import NAME, VERSION, PersonWord, Vocabulary
from slumberd.model.errors import ConfigurationError, Mistake
from slumberd.model.extraction import Extracted, Extraction, Extractor, Failed, Turn
from slumberd.rules.validation import Form, mistakes_of, suggestion
from slumberd.rules.yaml_reader import Document, read_document

Word = Annotated[str, Field(min_length=1, max_length=100)]
Words = Annotated[list[Word], Field(max_length=2_000)]


class PersonForm(Form):
    """What a word for a person means.

    Attributes:
        gender: ``female`` or ``male``: whom ``she`` and ``he`` may mean.
        named: The predicate that a name after the word states, such as ``partner``.
        implies: What ``my`` with the word states of the speaker: objects by predicate.
    """

    gender: Literal["female", "male"] | None = None
    named: Word | None = None
    implies: dict[Word, Word] = Field(default_factory=dict)


class VocabularyFile(Form):
    """The words of the extractor ``conversation``. A file adds to the shipped vocabulary.

    Attributes:
        predicates: How many objects each predicate holds at once: ``one`` or ``many``. A name that
            ends with ``*`` names all predicates that begin so.
        remove: Predicates that the extractor must not state, and patterns of which it must take
            nothing, as ``conversation/moved``: a fact names its pattern in ``extracted.by``.
        opposites: Pairs of predicates. A statement with one takes back the same object of the
            other.
        people: What words for people mean, such as ``wife``.
        aliases: Other words for people and animals, such as ``mum`` for ``mother``.
        words: Lists of words, such as ``jobs``. A file adds words to a list.
    """

    predicates: dict[Word, Literal["one", "many"]] = Field(default_factory=dict)
    remove: Words = Field(default_factory=list)
    opposites: list[Annotated[list[Word], Field(min_length=2, max_length=2)]] = Field(
        default_factory=list
    )
    people: dict[Word, PersonForm] = Field(default_factory=dict)
    aliases: dict[Word, Word] = Field(default_factory=dict)
    words: dict[Word, Words] = Field(default_factory=dict)


@cache
def shipped_vocabulary() -> Vocabulary:
    """Return the vocabulary of the package."""
    return _vocabulary(_shipped_form())


@cache
def _shipped_form() -> VocabularyFile:
    file = Path(__file__).parents[1] / "consolidation" / "extraction" / "vocabulary.yaml"
    return VocabularyFile.model_validate(read_document(file, by_root=False).value)


def vocabulary_of(document: Document) -> Vocabulary:
    """Return the shipped vocabulary with what a user's file adds and removes.

    Args:
        document: The file.

    Raises:
        ConfigurationError: The file has mistakes; the error lists all of them.
    """
    mistakes = [*mistakes_of(document, VocabularyFile)]
    if not mistakes:
        mistakes = _find_unknown(document, VocabularyFile.model_validate(document.value))
    if mistakes:
        raise ConfigurationError(mistakes)
    return _vocabulary(_merged(_shipped_form(), VocabularyFile.model_validate(document.value)))


@dataclass(frozen=True)
class LateConversationExtractor:
    """Finds triples in what people say; imports its expressions with the first turn.

    Most commands load the rules and read no turn. The expressions take longer to compile than the
    rest of the rules.
    """

    vocabulary: Vocabulary
    speakers: Mapping[str, str]
    parser: EnglishParser | None

    @cached_property
    def _extractor(self) -> Extractor:
        from slumberd.consolidation.extraction.conversation import ConversationExtractor

        return ConversationExtractor(self.vocabulary, self.speakers, self.parser)

    def extract(
        self, turns: Sequence[Turn], before: Sequence[Turn | None]
    ) -> Sequence[Sequence[Extracted] | Failed]:
        """Return the triples of each turn; see `Extractor`."""
        return self._extractor.extract(turns, before)


def conversation_extraction(
    speakers: Mapping[str, str], vocabulary: Vocabulary | None = None, *, parser: bool = False
) -> Extraction:
    """Return the extraction from what people say.

    Args:
        speakers: Other names of speakers, by the speaker.
        vocabulary: The words; None takes the shipped ones.
        parser: Whether a parser reads the sentences, too.

    Raises:
        ExtraMissingError: There is to be a parser, and the extra ``english`` is not installed.
    """
    words = vocabulary or shipped_vocabulary()
    depends = [VERSION, dict(speakers), _content(words), *([parser_version()] if parser else [])]
    content = orjson.dumps(depends, option=orjson.OPT_SORT_KEYS)
    return Extraction(
        NAME,
        hashlib.sha256(content).hexdigest()[:16],
        LateConversationExtractor(words, speakers, PARSER if parser else None),
        reads_previous=True,
        reads_own=True,
        single_valued=words.single_valued,
        multi_valued=words.multi_valued,
    )


def _content(words: Vocabulary) -> dict[str, object]:
    return {
        "single": sorted(words.single_valued),
        "many": sorted(words.multi_valued),
        "opposites": {name: sorted(others) for name, others in words.opposites.items()},
        "people": {
            name: [person.gender, person.named, dict(person.implies)]
            for name, person in words.people.items()
        },
        "aliases": dict(words.aliases),
        "words": {name: sorted(listed) for name, listed in words.words.items()},
        "removed": sorted(words.removed),
    }


def _find_unknown(document: Document, form: VocabularyFile) -> list[Mistake]:
    """Return mistakes where a file names a list or a predicate that there is not."""
    from slumberd.consolidation.extraction.conversation import pattern_names

    shipped = _shipped_form()
    predicates = {**shipped.predicates, **form.predicates}
    removable = {*predicates, *pattern_names()}
    found = [
        document.mistake(
            ("words", name),
            f"there is no list {name!r}; {suggestion(name, shipped.words)}",
            at="key",
        )
        for name in form.words
        if name not in shipped.words
    ]
    found += [
        document.mistake(
            ("remove", number),
            f"there is no predicate or pattern {name!r}; {suggestion(name, removable)}",
        )
        for number, name in enumerate(form.remove)
        if name not in removable
    ]
    found += [
        document.mistake(
            ("opposites", number, place),
            f"there is no predicate {name!r}; {suggestion(name, predicates)}",
        )
        for number, pair in enumerate(form.opposites)
        for place, name in enumerate(pair)
        if name not in predicates
    ]
    return found


def _merged(shipped: VocabularyFile, form: VocabularyFile) -> VocabularyFile:
    words = {name: [*listed, *form.words.get(name, [])] for name, listed in shipped.words.items()}
    return VocabularyFile(
        predicates={**shipped.predicates, **form.predicates},
        remove=form.remove,
        opposites=[*shipped.opposites, *form.opposites],
        people={**shipped.people, **form.people},
        aliases={**shipped.aliases, **form.aliases},
        words=words,
    )


def _vocabulary(form: VocabularyFile) -> Vocabulary:
    kept = {name: held for name, held in form.predicates.items() if name not in form.remove}
    opposites: dict[str, set[str]] = {}
    for one, other in form.opposites:
        opposites.setdefault(one, set()).add(other)
        opposites.setdefault(other, set()).add(one)
    return Vocabulary(
        single_valued=frozenset(name for name, held in kept.items() if held == "one"),
        multi_valued=frozenset(name for name, held in kept.items() if held == "many"),
        opposites={name: frozenset(others) for name, others in opposites.items()},
        people={name.casefold(): _person(person) for name, person in form.people.items()},
        aliases={alias.casefold(): name.casefold() for alias, name in form.aliases.items()},
        words={
            name: frozenset(word.casefold() for word in listed)
            for name, listed in form.words.items()
        },
        removed=frozenset(name for name in form.remove if name.startswith(f"{NAME}/")),
    )


def _person(form: PersonForm) -> PersonWord:
    return PersonWord(form.gender or "", form.named or "", dict(form.implies))
