"""Index the texts of one scope in memory, and find those that answer a question."""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from hashlib import blake2b
from heapq import nlargest
from itertools import pairwise, product
from typing import TYPE_CHECKING, NamedTuple

import orjson

from slumberd.model.episode import instant
from slumberd.model.texts import AUTO
from slumberd.search import priors
from slumberd.search.columns import Interned, Parts, SavedParts, read_array, read_json
from slumberd.search.embeddings import word_table
from slumberd.search.languages import (
    DEFAULT,
    STOP_WORDS,
    UNKNOWN,
    ScopeLanguages,
    names_in_question,
    recognise,
    words_of,
)
from slumberd.search.priors import SessionEvidence, Sought, TextSigns
from slumberd.search.term_index import (
    CHOSEN,
    NONE,
    SATURATION,
    Allows,
    Concept,
    Entries,
    Neighbours,
    SimilarWords,
    TermIndex,
)
from slumberd.search.terms import Analyser, require_language

if TYPE_CHECKING:
    from slumberd.search.scope_vectors import ScopeVectors

VECTOR_WEIGHT = 0.4
"""What a text with the meaning of the question, but none of its words, has of the most."""

WHOLE = 0.9
"""The score of a short text that has each word of a question once; the same text has 1."""

_EACH_WORD_ONCE = 1 / (1 + SATURATION)
"""What such a text has of the most that a text can have."""

_LEAST_OF_EXACT = 0.25
"""The same text has at least so much of it, unless a caption makes it longer."""

_LEAST_COMPOUND = 6
_LEAST_FIRST_PART = 3
_LEAST_LAST_PART = 2
"""The least letters of a compound that is split, and of its two parts."""

_BYTES_OF_TEXT = 300
_BYTES_OF_TURN = 300
"""About the bytes that the index keeps of a text beside its words, and of one that it keeps."""

_DAY = 86_400_000_000
"""Microseconds."""

_RECOGNISED = (None, UNKNOWN, *STOP_WORDS)
"""What a text may be recognised as."""

_SIGNS = [TextSigns(*signs) for signs in product((False, True), repeat=3)]
_UNREAD = 255
"""In place of the number of the signs of a text that was not read yet."""

_DIGITS = 8
"""Decimals of a score: sums of the same numbers in another order are equal then."""

_MOST_REMOVED = 1_000
"""The index is rebuilt when it holds more removed texts than this, and than others."""


class IndexedTurn(NamedTuple):
    """A text that can be found.

    Attributes:
        id: Unique in the index.
        session: The conversation that it belongs to; empty for a text without neighbours.
        at: When it was said, microseconds since 1970 UTC; 0 for a text without a date.
        speaker: Who said it.
        extra: Other words about it, such as the caption of a picture.
        questions: Words that ask for it.
    """

    id: str
    text: str
    session: str = ""
    at: int = 0
    speaker: str = ""
    extra: str = ""
    questions: str = ""


class FoundText(NamedTuple):
    """A text that was found.

    Attributes:
        score: How much of the question it answers, above 0 and up to 1.
        lexical: The part of the words, 0 to 1.
        vector: The cosine of the meanings, -1 to 1; None without vectors.
    """

    id: str
    score: float
    lexical: float
    vector: float | None = None


class _Question(NamedTuple):
    """A question to an index.

    Attributes:
        text: The question, with the words that are added to it.
        words: All of its own words.
        length: How many of them count.
        concepts: What it asks for.
    """

    text: str
    words: list[str]
    length: int
    concepts: list[Concept]


class _Part(NamedTuple):
    """What a text has of a question.

    Attributes:
        number: The number of the text.
        id: Its id.
        session: The conversation that it belongs to.
        lexical: What its words have of the most that a text can have, 0 to 1.
        cosine: The cosine of the meanings; None without vectors.
        both: What words and meaning have together, 0 to 1.
    """

    number: int
    id: str
    session: str
    lexical: float
    cosine: float | None
    both: float


_Name = list[tuple[str, ...]]
"""The terms of a name, in order, each as the languages of a scope have it."""

Accept = Callable[[str], bool]
"""Returns whether the text with an id may be found."""

Source = Callable[[str], IndexedTurn]
"""Returns the text with an id that is in the index."""


class ScopeIndex:
    """The texts of one scope.

    A result depends on the set of the texts only, not on the order in which they came. Use one
    index in one thread at a time.

    Args:
        language: The language of the texts, one of `texts.LANGUAGES`; `texts.AUTO` recognises
            it; None stems no word.
        vectors: Whether meanings count, too; needs the extra ``vectors``.
        source: Who keeps the texts; None keeps them here.
        is_mixed: Whether one text has words of several languages, as a fact with an English
            predicate has. Each text then has terms in all recognised languages and in English.

    Raises:
        ExtraMissingError: The extra ``vectors`` is not installed.
        UsageError: The language is unknown.
    """

    def __init__(
        self,
        *,
        language: str | None = None,
        vectors: bool = False,
        source: Source | None = None,
        is_mixed: bool = False,
    ) -> None:
        require_language(language)
        self._recognises = language == AUTO
        self._is_mixed = is_mixed
        self._has_vectors = vectors
        self._kept: frozenset[str] = frozenset()
        self._turns: dict[str, IndexedTurn] = {}
        self._source = source or self._turns.__getitem__
        self._keeps_turns = source is None
        self._begin(self._choose(ScopeLanguages()) if self._recognises else (language,))

    def _choose(self, counted: ScopeLanguages) -> tuple[str, ...]:
        """Return the languages that count, the first one first."""
        chosen = counted.chosen()
        is_english_too = self._is_mixed and not {DEFAULT, UNKNOWN}.intersection(chosen)
        return (*chosen, DEFAULT) if is_english_too else chosen

    def _begin(self, languages: tuple[str | None, ...]) -> None:
        self.languages = languages
        self._analysers = {language: Analyser(language, self._kept) for language in languages}
        self._counted = ScopeLanguages()
        self._recognised = array("B")
        self._numbers: dict[str, int] = {}
        self._ids: list[str | None] = []
        self._ats = array("q")
        self._sessions = Interned[str]()
        self._session_of = array("I")
        self._speakers = Interned[str]()
        self._speaker_of = array("I")
        self._signs = array("B")
        self._names: dict[str, frozenset[str]] = {}
        self._days: dict[int, frozenset[str]] = {}
        self._hashes = array("q")
        self._same: dict[int, list[int]] = {}
        """By the hash of their own words, the numbers of texts; equal words have one hash."""
        self._saved_same = array("q"), array("I")
        """The same of saved texts: the hash of each, and their numbers in the order of hashes."""
        self._neighbours = Neighbours(self._entries_of_sessions)
        self._similar = SimilarWords() if UNKNOWN in languages else None
        self._words = TermIndex(self._neighbours, self._age, self._similar)
        self._vectors = _vectors_of(self._neighbours) if self._has_vectors else None

    def parts(self) -> SavedParts:
        """Return what `load` needs. The texts are not in it."""
        hashes, used = self._hashes[:], [*self._numbers.values()]
        state = {
            "languages": self.languages,
            "counted": self._counted.counts(),
            "kept": sorted(self._kept),
            "ids": self._ids[:],
            "sessions": self._sessions.values[:],
            "speakers": self._speakers.values[:],
        }
        own: SavedParts = {
            "scope": lambda: orjson.dumps(state),
            "recognised": self._recognised[:],
            "ats": self._ats[:],
            "session_of": self._session_of[:],
            "session_uses": self._sessions.uses[:],
            "speaker_of": self._speaker_of[:],
            "speaker_uses": self._speakers.uses[:],
            "signs": self._signs[:],
            "hashes": hashes,
            "same": lambda: array("I", sorted(used, key=hashes.__getitem__)),
        }
        vectors = self._vectors.parts() if self._vectors is not None else {}
        return own | self._neighbours.parts() | self._words.parts() | vectors

    def load(self, parts: Parts) -> None:
        """Take what was saved of an index with the same language.

        Raises:
            LookupError: A part is missing.
            TypeError: A part is of another form.
            ValueError: A part is damaged.
        """
        state = read_json(parts["scope"])
        self._kept = frozenset(state["kept"])
        self._begin((*state["languages"],))
        self._counted = ScopeLanguages(state["counted"])
        self._recognised = read_array("B", parts["recognised"])
        self._ids = state["ids"]
        self._numbers = {id: number for number, id in enumerate(self._ids) if id is not None}
        self._ats = read_array("q", parts["ats"])
        self._sessions = Interned(state["sessions"], read_array("I", parts["session_uses"]))
        self._session_of = read_array("I", parts["session_of"])
        self._speakers = Interned(state["speakers"], read_array("I", parts["speaker_uses"]))
        self._speaker_of = read_array("I", parts["speaker_of"])
        self._signs = read_array("B", parts["signs"])
        self._hashes = read_array("q", parts["hashes"])
        self._saved_same = self._hashes[:], read_array("I", parts["same"])
        self._neighbours.load(parts)
        self._words.load(parts)
        if self._vectors is not None:
            self._vectors.load(parts)

    def _entries_of_sessions(self) -> Entries:
        """Return the texts of each session, in order, without one that is being added."""
        found: Entries = {}
        for number in range(len(self._neighbours.previous)):
            id = self._ids[number]
            session = "" if id is None else self._sessions[self._session_of[number]]
            if id is not None and session:
                found.setdefault(session, []).append((self._ats[number], id, number))
        for entries in found.values():
            entries.sort()
        return found

    def __len__(self) -> int:
        return len(self._numbers)

    def __contains__(self, id: object) -> bool:
        return id in self._numbers

    @property
    def size_bytes(self) -> int:
        """About how much memory the index takes."""
        vectors = self._vectors.size_bytes if self._vectors is not None else 0
        of_texts = _BYTES_OF_TEXT * len(self._ids) + _BYTES_OF_TURN * len(self._turns)
        return self._words.size_bytes + vectors + of_texts

    @property
    def analyser(self) -> Analyser:
        """The analyser of the first language."""
        return self._analysers[self.languages[0]]

    def keep(self, words: frozenset[str]) -> None:
        """Count these folded words although they are stop words, and no others."""
        if words != self._kept:
            self._kept = words
            self._rebuild(self.languages)

    def put(self, turns: Iterable[IndexedTurn]) -> None:
        """Add texts; a text with the id of another replaces it."""
        for turn in turns:
            if turn.id in self._numbers:
                self._remove(turn.id)
            self._add(turn)
            if _is_power_of_two(len(self._ids)):
                self._rebuild_if_needed()
        self._rebuild_if_needed()

    def drop(self, ids: Iterable[str]) -> None:
        """Remove texts; unknown ids are ignored."""
        for id in ids:
            if id in self._numbers:
                self._remove(id)
        self._rebuild_if_needed()

    def _add(self, turn: IndexedTurn) -> None:
        number = len(self._ids)
        self._numbers[turn.id] = number
        self._ids.append(turn.id)
        if self._keeps_turns:
            self._turns[turn.id] = turn
        self._ats.append(turn.at)
        self._session_of.append(self._sessions.add(turn.session))
        self._speaker_of.append(self._speakers.add(turn.speaker))
        self._signs.append(_UNREAD)
        text = f"{turn.text} {turn.extra}" if turn.extra else turn.text
        words = words_of(text)
        own = words_of(turn.text) if turn.extra else words
        hash_of_words = _hash_of(own)
        self._hashes.append(hash_of_words)
        self._same.setdefault(hash_of_words, []).append(number)
        language = self._recognise(words) if self._recognises else None
        self._recognised.append(_RECOGNISED.index(language))
        self._counted.add(language)
        terms = self._terms_of(words, language, is_ascii=text.isascii())
        names, dates = self._names_of(turn.speaker or turn.questions), self._dates_of(turn.at)
        self._neighbours.append(number, turn.session, turn.at, turn.id)
        self._words.append(terms, names, dates)
        if self._vectors is not None:
            text = f"{turn.speaker} {turn.text} {turn.extra}"
            self._vectors.append(text, short=self._words.is_short(number))

    def _recognise(self, words: Sequence[str]) -> str | None:
        """Return the language of a text. Stop words that are names in this scope do not count."""
        if not self._kept.isdisjoint(words):
            words = [word for word in words if word not in self._kept]
        return recognise(words)

    def _terms_of(self, words: Sequence[str], language: str | None, *, is_ascii: bool) -> list[str]:
        """Return the terms of a text: in its language, or in each one when texts are mixed.

        Args:
            words: All words of the text.
            language: The language that was recognised.
            is_ascii: Whether the words are ASCII.
        """
        own = self._analysers.get(language, self.analyser)
        found = own.terms_of(own.counted(words), is_ascii=is_ascii)
        if not self._is_mixed or len(self._analysers) == 1:
            return found
        for analyser in self._analysers.values():
            known = {*found}
            terms = analyser.terms_of(analyser.counted(words), is_ascii=is_ascii)
            found += [term for term in terms if term not in known]
        return found

    def _names_of(self, speaker: str) -> frozenset[str]:
        found = self._names.get(speaker)
        if found is None:
            terms = (analyser.terms(speaker) for analyser in self._analysers.values())
            found = self._names[speaker] = frozenset(term for some in terms for term in some)
        return found

    def _dates_of(self, at: int) -> frozenset[str]:
        if not at:
            return frozenset()
        day = at // _DAY
        found = self._days.get(day)
        if found is None:
            terms = (analyser.date_terms(instant(at)) for analyser in self._analysers.values())
            found = self._days[day] = frozenset(term for some in terms for term in some)
        return found

    def _remove(self, id: str) -> None:
        number = self._numbers.pop(id)
        self._turns.pop(id, None)
        session = self._sessions[self._session_of[number]]
        self._neighbours.remove(number, session, self._ats[number], id)
        self._names.pop(self._speakers[self._speaker_of[number]], None)
        self._sessions.remove(self._session_of[number])
        self._speakers.remove(self._speaker_of[number])
        self._forget_same(number)
        self._ids[number] = None
        self._signs[number] = _UNREAD
        self._counted.remove(_RECOGNISED[self._recognised[number]])
        self._words.remove(number)
        if self._vectors is not None:
            self._vectors.remove(number)

    def _forget_same(self, number: int) -> None:
        hash_of_words = self._hashes[number]
        self._hashes[number] = 0
        same = self._same.get(hash_of_words, [])
        if number in same:  # else it is among the saved ones
            same.remove(number)
            if not same:
                del self._same[hash_of_words]

    def _same_as(self, words: Sequence[str]) -> Collection[int]:
        """Return the numbers of the texts with just these words, or at least with their hash."""
        wanted = _hash_of(words)
        hashes, numbers = self._saved_same
        hash_of = hashes.__getitem__
        begin = bisect_left(numbers, wanted, key=hash_of)
        end = bisect_right(numbers, wanted, begin, key=hash_of)
        saved = [number for number in numbers[begin:end] if self._hashes[number] == wanted]
        return {*saved, *self._same.get(wanted, ())}

    def _rebuild_if_needed(self) -> None:
        """Build the index anew when it is sparse, or when its texts are of other languages now."""
        languages = self._choose(self._counted) if self._recognises else self.languages
        removed = len(self._ids) - len(self._numbers)
        if languages != self.languages or removed > max(_MOST_REMOVED, len(self._numbers)):
            self._rebuild(languages)

    def _rebuild(self, languages: tuple[str | None, ...]) -> None:
        left = [self._source(id) for id in self._ids if id is not None]
        self._begin(languages)
        for turn in left:
            self._add(turn)

    def search(
        self,
        query: str,
        *,
        limit: int = 10,
        least: float = 0.0,
        accept: Accept | None = None,
        aliases: Sequence[Sequence[str]] = (),
        also: Sequence[str] = (),
    ) -> list[FoundText]:
        """Return the texts that answer a question best, best first; equal scores by id.

        Args:
            least: The least score. A text with a score of 0 is never returned.
            accept: Chooses the texts that may be found, before they are ranked.
            aliases: Groups of names that mean the same.
            also: More words of the question. The exact text of the question does not have them.
        """
        if limit < 1 or not self._numbers:
            return []
        question = self._question(query, aliases, also)
        allows = None if accept is None else self._allowance(accept)
        found = self._score(question, max(limit, CHOSEN), allows)
        found = [match for match in found if match.score > 0 and match.score >= least]
        found.sort(key=lambda match: (-match.score, match.id))
        return found[:limit]

    def _score(self, question: _Question, limit: int, allows: Allows | None) -> list[FoundText]:
        """Return the best texts by words and the best by meaning, with their scores."""
        cosines, nearest = None, list[int]()
        if self._vectors is not None:
            cosines = self._vectors.cosines(question.text)
            nearest = self._vectors.nearest(cosines, limit, allows)
        # Where each word is frequent, the choice by words may lack the exact text.
        also = {*nearest, *self._exact(question.words, limit, allows)}
        lexical = self._words.score(
            question.concepts, most=limit, also=also, allows=allows, asked=question.length
        )
        most = sum(concept.most for concept in question.concepts) or 1.0
        parts = [
            self._part(number, score / most, None if cosines is None else float(cosines[number]))
            for number, score in lexical.items()
        ]
        # So many parts at most: their choice must not depend on how many hits are asked for.
        best = sorted(parts, key=lambda part: (-part.both, part.id))[:CHOSEN]
        sessions = priors.evidence_of_sessions((part.session, part.both) for part in best)
        sought = priors.sought_by(question.text, question.words, self._names_of_speakers())
        same = self._same_as(question.words)
        return [
            _exact_match(part)
            if part.number in same and self._is_exact(question, part)
            else self._match(part, sought, sessions)
            for part in parts
        ]

    def _part(self, number: int, lexical: float, cosine: float | None) -> _Part:
        id, session = self._id_of(number), self._sessions[self._session_of[number]]
        if cosine is None:
            return _Part(number, id, session, lexical, None, 1 - (1 - lexical))
        cosine = round(cosine, _DIGITS)
        # Two signs. The text fails the question only as far as both fail.
        both = 1 - (1 - lexical) * (1 - VECTOR_WEIGHT * max(cosine, 0.0))
        return _Part(number, id, session, lexical, cosine, both)

    def _match(self, part: _Part, sought: Sought, sessions: SessionEvidence) -> FoundText:
        speaker = self._speakers[self._speaker_of[part.number]]
        share = sessions.share_of(part.session, part.both)
        weight = priors.weight_of(self._signs_of(part), speaker, share, sought)
        score = _on_scale(priors.raised(part.both, weight))
        return FoundText(part.id, score, min(_on_scale(part.lexical), score), part.cosine)

    def _signs_of(self, part: _Part) -> TextSigns:
        """Return the signs of a text; each text is read once."""
        found = self._signs[part.number]
        if found == _UNREAD:
            signs = priors.signs_of(self._source(part.id).text)
            found = self._signs[part.number] = _SIGNS.index(signs)
        return _SIGNS[found]

    def _is_exact(self, question: _Question, part: _Part) -> bool:
        """Return whether a text is the question."""
        turn = self._source(part.id)
        may_be_exact = part.lexical >= _LEAST_OF_EXACT or bool(turn.extra)
        return may_be_exact and words_of(turn.text) == question.words

    def _exact(self, words: Sequence[str], most: int, allows: Allows | None) -> list[int]:
        """Return the newest texts with just these words, or at least with their hash."""
        same: Iterable[int] = self._same_as(words) if words else ()
        allowed = same if allows is None else filter(allows, same)
        return nlargest(most, allowed, key=self._age)

    def _age(self, number: int) -> tuple[int, str]:
        return self._ats[number], self._id_of(number)

    def _id_of(self, number: int) -> str:
        id = self._ids[number]
        assert id is not None  # noqa: S101 # removed texts have no score
        return id

    def _names_of_speakers(self) -> Iterator[tuple[str, frozenset[str]]]:
        """Yield the speakers of the texts, each with the words of the name."""
        for speaker in self._speakers.used():
            yield speaker, frozenset(words_of(speaker))

    def previous(self, id: str) -> str | None:
        """Return the id of the text before another in its session; None when there is none."""
        number = self._neighbours.previous[self._numbers[id]]
        return self._ids[number] if number != NONE else None

    def _question(
        self, query: str, aliases: Sequence[Sequence[str]], also: Sequence[str]
    ) -> _Question:
        asked = words_of(query)
        words = [*asked, *also]
        counted = self._asked_in(query, words).counted(words)
        groups = self._meanings(words, [*dict.fromkeys(counted)])
        for names in self._terms_of_aliases(aliases):
            _add_aliases(groups, names)
        concepts = [self._words.concept([*terms]) for terms in groups.values()]
        return _Question(" ".join([query, *also]), asked, len(counted), concepts)

    def _asked_in(self, query: str, words: Sequence[str]) -> Analyser:
        """Return the analyser whose stop words a question has, without the names in it."""
        analyser = self._analyser_of_question(words)
        names = names_in_question(query) if analyser.language == "english" else frozenset()
        return Analyser("english", self._kept | names) if names else analyser

    def _analyser_of_question(self, words: Sequence[str]) -> Analyser:
        """Return the analyser of the language of a question."""
        if not self._recognises or len(self.languages) == 1 == len(words):
            return self.analyser
        language = self._recognise(words)
        if language in self._analysers or language in (None, UNKNOWN):
            return self._analysers.get(language, self.analyser)
        return Analyser(language, self._kept)

    def _meanings(self, words: Sequence[str], counted: Sequence[str]) -> dict[str, dict[str, None]]:
        """Return the terms of a question: by the first one, all that mean the same, in order.

        Args:
            words: All words of the question.
            counted: Each word that counts, once.
        """
        joined = self._joined(words)
        found: dict[str, dict[str, None]] = {}
        for word in counted:
            for part in self._split(word):
                for same in self._forms(part):
                    others = dict.fromkeys([*same, *joined.get(part, ())])
                    found.setdefault(same[0], {}).update(others)
        return found

    def _forms(self, word: str) -> list[tuple[str, ...]]:
        """Return each term of a word, as each language of the scope has it, and similar ones."""
        terms = [analyser.terms_of_word(word) for analyser in self._analysers.values()]
        if self._similar is not None:
            return [(term, *self._similar.like(term)) for term in terms[0]]
        return [*zip(*terms, strict=True)]

    def _joined(self, words: Sequence[str]) -> dict[str, list[str]]:
        """Return the terms of compounds that texts have and a question writes as two words."""
        found: dict[str, list[str]] = {}
        for first, second in pairwise(words):
            for term, *_ in self._forms(first + second):
                if self._words.texts_with(term):
                    found.setdefault(first, []).append(term)
                    found.setdefault(second, []).append(term)
        return found

    def _split(self, word: str) -> Sequence[str]:
        """Return the two words that texts have for a compound that no text has; else the word."""
        if len(word) < _LEAST_COMPOUND or not word.isalpha() or self._knows(word):
            return (word,)
        ends = range(_LEAST_FIRST_PART, len(word) - _LEAST_LAST_PART + 1)
        for end in ends:
            parts = word[:end], word[end:]
            if all(map(self._knows, parts)):
                return parts
        return (word,)

    def _knows(self, word: str) -> bool:
        return any(self._words.texts_with(term) for same in self._forms(word) for term in same)

    def _terms_of_aliases(self, aliases: Sequence[Sequence[str]]) -> Iterator[list[_Name]]:
        """Yield each group of names, each name as its terms in the languages of the scope."""
        for group in aliases:
            names = ([*self._forms_of_name(name)] for name in group)
            yield [name for name in names if name]

    def _forms_of_name(self, name: str) -> Iterator[tuple[str, ...]]:
        for word in self.analyser.counted(words_of(name)):
            yield from self._forms(word)

    def _allowance(self, accept: Accept) -> Allows:
        """Return whether a number may be found; each one is asked about once."""
        known: dict[int, bool] = {}

        def allows(number: int) -> bool:
            found = known.get(number)
            if found is None:
                id = self._ids[number]
                found = known[number] = id is not None and accept(id)
            return found

        return allows


def _vectors_of(neighbours: Neighbours) -> ScopeVectors:
    word_table()  # before numpy: it says which extra is missing
    from slumberd.search.scope_vectors import ScopeVectors  # numpy is of the extra

    return ScopeVectors(neighbours)


def _exact_match(part: _Part) -> FoundText:
    return FoundText(part.id, 1.0, 1.0, part.cosine)


def _add_aliases(groups: Mapping[str, dict[str, None]], names: Sequence[_Name]) -> None:
    """Let the terms of a name in a question stand for all other names of its group, too.

    Args:
        groups: By the first term, all that mean the same.
        names: The names of one group.
    """
    for name in names:
        firsts = [same[0] for same in name]
        if all(first in groups for first in firsts):
            others = [term for other in names if other != name for same in other for term in same]
            for first in firsts:
                groups[first].update(dict.fromkeys(others))


def _on_scale(part: float) -> float:
    """Return the score of a text, 0 to 1.

    Args:
        part: What it has of the most that a text can have. A short text that has each word of the
            question once has `_EACH_WORD_ONCE` of it, and the score `WHOLE`.
    """
    if part <= _EACH_WORD_ONCE:
        return round(WHOLE * part / _EACH_WORD_ONCE, _DIGITS)
    more = (part - _EACH_WORD_ONCE) / (1 - _EACH_WORD_ONCE)
    return round(WHOLE + (1 - WHOLE) * more, _DIGITS)


def _hash_of(words: Sequence[str]) -> int:
    """Return a hash that is the same in each process; it is never 0."""
    digest = blake2b("\0".join(words).encode(errors="surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, "little", signed=True) or 1


def _is_power_of_two(count: int) -> bool:
    return count & (count - 1) == 0
