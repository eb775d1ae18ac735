"""The schema of a vocabulary of the extractor ``conversation``."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from slumberd.config.validation import Form

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
