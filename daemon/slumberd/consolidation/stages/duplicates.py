"""Decide which entries say the same as another entry.

A duplicate is not kept, so a wrong one loses what it says. Two texts are never duplicates when they
assert different triples, when their numbers or negations differ, or when words that both have
stand in another order: "Ann owes Bob" is not "Bob owes Ann".
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from heapq import merge
from itertools import islice, repeat
from typing import Literal, NamedTuple, Protocol

from slumberd.consolidation.stages.entries import Duplicate, Entry, in_order
from slumberd.consolidation.stages.similar_texts import (
    NEGATIONS,
    Embed,
    NearVectors,
    SimilarSets,
    Wording,
    jaccard,
    rank_by_rarity,
    set_of_words,
    wording_of,
)
from slumberd.consolidation.stages.spellings import (
    FUZZY_CHARACTERS,
    FUZZY_SHARE,
    SpelledSets,
    by_characters,
    spelled_alike,
    spelled_share,
)
from slumberd.model.errors import ExtraMissingError
from slumberd.search.vectors import Rows

Method = Literal["exact", "jaccard", "fuzzy", "vectors"]
"""How texts are compared: as a whole, or by their words, their characters or their vectors."""

Keep = Literal["newest", "oldest"]
"""Which of several entries that say the same is kept."""

VECTORS_SHARE = 0.5
"""Texts whose words have a lower Jaccard similarity are not equal by vectors.

The mean of many words that the model does not know says nothing.
"""

VECTORS_REST = 0.6
"""Texts are not equal by vectors when the cosine of the words that they do not share is lower.

The vector of a whole text hardly changes with one word: "my son called" is near to "my daughter
called". The vectors of "son" and "daughter" are not near.
"""

_AFTER_LATIN = "\u0250"
"""The first character after those of Latin script.

The model spells most words of other scripts letter by letter: all of them are near.
"""

_MOST_SIMILAR = 25
"""An entry that differs in its roles from this many similar entries is kept.

Else many texts of the same words in different orders would take the square of their number.
"""


class Pair(NamedTuple):
    """Two entries that may be duplicates, found outside, for example by vectors.

    Attributes:
        left: The id of one entry.
        right: The id of the other.
        similarity: Of the two, 0 to 1.
    """

    left: str
    right: str
    similarity: float


class _Compared(NamedTuple):
    """An entry with what is compared of it."""

    entry: Entry
    wording: Wording

    @property
    def assertion(self) -> tuple[object, ...]:
        """What duplicates have in common exactly."""
        return self.entry.triple, self.wording.numbers, self.wording.negations

    @property
    def words(self) -> frozenset[str]:
        """The set of words; of a text without words, the text itself."""
        return set_of_words(self.wording.words, self.wording.text)


class _Finder(Protocol):
    """Finds kept entries that are similar to another entry."""

    def keep(self, compared: _Compared) -> None:
        """Add an entry to the kept ones."""

    def similar(self, compared: _Compared) -> Iterator[tuple[_Compared, float]]:
        """Yield the kept entries that are similar, in the order of keeping."""


def no_vectors(texts: Sequence[str]) -> Rows:
    """Raise, because there is no embedder.

    Raises:
        ExtraMissingError: Always.
    """
    del texts
    raise ExtraMissingError("vectors", "duplicates cannot be compared by what they mean")


def find_duplicates(
    entries: Iterable[Entry],
    method: Method = "jaccard",
    *,
    similarity: float = 0.85,
    keep: Keep = "newest",
    embed: Embed = no_vectors,
) -> list[Duplicate]:
    """Return the entries that say the same as a kept entry, oldest first.

    Entries are decided by instant and id. Each is kept, or is a duplicate of the first kept entry
    that is similar. Equal texts are duplicates with every method, empty texts too.

    Args:
        entries: In any order, of one user and agent.
        method: ``exact``: texts without differences of form, case and white space are equal.
            ``jaccard``: their sets of words are similar. ``fuzzy``: their characters are.
            ``vectors``: their vectors are near, and those of the words that they do not share.
        similarity: The least similarity of duplicates, above 0, at most 1. Not used by ``exact``.
        keep: Whether the newest or the oldest entry is kept.
        embed: Returns the vectors of texts, for ``vectors``.

    Raises:
        ValueError: A parameter or an entry is out of bounds.
        ExtraMissingError: The extra that the method needs is not installed.
    """
    _check(similarity, keep)
    compared = _in_keeping_order(entries, keep)
    match method:
        case "exact":
            finder: _Finder = _Nothing()
        case "jaccard":
            finder = _ByWords(compared, similarity)
        case "fuzzy":
            finder = _ByCharacters(similarity)
        case "vectors":
            finder = _ByVectors(compared, similarity, embed)
        case _:
            raise ValueError(f"method is {method!r}, not 'exact', 'jaccard', 'fuzzy' or 'vectors'")
    return _find(compared, finder, spelled_alike if method == "fuzzy" else _as_they_are)


def duplicates_of_pairs(
    entries: Iterable[Entry],
    pairs: Iterable[Pair],
    *,
    similarity: float = 0.85,
    keep: Keep = "newest",
) -> list[Duplicate]:
    """Return the duplicates among pairs that another method found, oldest first.

    What never makes duplicates of two texts holds here too. Equal texts need no pair.

    Args:
        entries: In any order, of one user and agent.
        pairs: In any order and direction; of several for two entries, the most similar counts.
        similarity: The least similarity of duplicates, above 0, at most 1.
        keep: Whether the newest or the oldest entry is kept.

    Raises:
        ValueError: A parameter or an entry is out of bounds.
    """
    _check(similarity, keep)
    return _find(_in_keeping_order(entries, keep), _ByPairs(pairs, similarity))


def _check(similarity: float, keep: str) -> None:
    if not 0 < similarity <= 1:
        raise ValueError(f"similarity is {similarity!r}, not above 0 and at most 1")
    if keep not in ("newest", "oldest"):
        raise ValueError(f"keep is {keep!r}, not 'newest' or 'oldest'")


def _in_keeping_order(entries: Iterable[Entry], keep: Keep) -> list[_Compared]:
    found = [_Compared(entry, wording_of(entry.content)) for entry in in_order(entries)]
    return found[::-1] if keep == "newest" else found


_Words = Sequence[str]


def _as_they_are(left: _Words, right: _Words) -> tuple[_Words, _Words]:
    return left, right


def _find(
    compared: Sequence[_Compared],
    finder: _Finder,
    spell: Callable[[_Words, _Words], tuple[_Words, _Words]] = _as_they_are,
) -> list[Duplicate]:
    """Keep each entry that is similar to no kept one; return the others, oldest first.

    Args:
        spell: Returns the words of two texts, in which the spellings of one word are equal.
    """

    def is_mergeable(left: _Compared, right: _Compared) -> bool:
        return left.assertion == right.assertion and same_roles(
            *spell(left.wording.words, right.wording.words)
        )

    # Equal texts have equal decisions, so each text is compared once.
    decided: dict[tuple[object, ...], tuple[_Compared, float]] = {}
    duplicates: list[tuple[Entry, Duplicate]] = []
    for one in compared:
        text = one.assertion, one.wording.text
        known = text in decided
        if not known:
            similar = islice(finder.similar(one), _MOST_SIMILAR)
            mergeable = (found for found in similar if is_mergeable(one, found[0]))
            decided[text] = next(mergeable, (one, 1.0))
        of, similarity = decided[text]
        if of is not one:
            found = Duplicate(one.entry.id, of.entry.id, similarity)
            duplicates.append((one.entry, found))
        elif not known:
            finder.keep(one)
    duplicates.sort(key=lambda found: (found[0].at, found[0].id))
    return [duplicate for _, duplicate in duplicates]


def same_roles(left: Sequence[str], right: Sequence[str]) -> bool:
    """Return whether two texts use their common words alike.

    The common words stand in the same order, and the same words stand around each negation. A text
    may repeat words.
    """
    common = frozenset(left) & frozenset(right)
    orders = [[word for word in words if word in common] for words in (left, right)]
    shorter, longer = sorted(orders, key=len)
    rest = iter(longer)
    return all(word in rest for word in shorter) and _negated(left) == _negated(right)


def _negated(words: Sequence[str]) -> list[tuple[str, ...]]:
    """Return each negation with the words before and after it."""
    return [
        tuple(words[max(0, place - 1) : place + 2])
        for place, word in enumerate(words)
        if word in NEGATIONS
    ]


class _Nothing:
    """No text is similar to another one; equal texts are found before."""

    def keep(self, compared: _Compared) -> None:
        """Add nothing."""

    def similar(self, compared: _Compared) -> Iterator[tuple[_Compared, float]]:
        """Yield nothing."""
        del compared
        yield from ()


class _ByWords:
    """Texts are similar when their sets of words are."""

    def __init__(self, compared: Sequence[_Compared], similarity: float) -> None:
        rank = rank_by_rarity(one.words for one in compared)
        # Only texts with the same numbers, negations and triple are compared.
        self._groups: Mapping[tuple[object, ...], _Group] = defaultdict(
            lambda: _Group(SimilarSets(rank, similarity), {}, [])
        )
        self._places: dict[str, int] = {}

    def keep(self, compared: _Compared) -> None:
        self._places[compared.entry.id] = len(self._places)
        group = self._groups[compared.assertion]
        number = group.numbers.get(compared.words)
        if number is None:
            group.numbers[compared.words] = group.sets.add(compared.words)
            group.kept.append([compared])
        else:
            group.kept[number].append(compared)

    def similar(self, compared: _Compared) -> Iterator[tuple[_Compared, float]]:
        group = self._groups[compared.assertion]
        by_set = [
            zip(group.kept[number][:_MOST_SIMILAR], repeat(similarity))
            for number, similarity in group.sets.find(compared.words)
        ]
        yield from merge(*by_set, key=lambda found: self._places[found[0].entry.id])


class _Group(NamedTuple):
    """Kept entries that may be duplicates of each other, by their sets of words."""

    sets: SimilarSets
    numbers: dict[frozenset[str], int]
    kept: list[list[_Compared]]


class _ByCharacters:
    """Texts are similar when their characters are, and most words up to one letter."""

    def __init__(self, similarity: float) -> None:
        self._compare = by_characters()
        self._similarity = similarity
        # Only texts with the same numbers, negations and triple are compared.
        self._groups: Mapping[tuple[object, ...], tuple[SpelledSets, list[_Compared]]] = (
            defaultdict(lambda: (SpelledSets(), []))
        )

    def keep(self, compared: _Compared) -> None:
        if len(compared.wording.text) <= FUZZY_CHARACTERS:
            sets, kept = self._groups[compared.assertion]
            sets.add(compared.words)
            kept.append(compared)

    def similar(self, compared: _Compared) -> Iterator[tuple[_Compared, float]]:
        text = compared.wording.text
        if len(text) > FUZZY_CHARACTERS:
            return
        sets, kept = self._groups[compared.assertion]
        candidates = [kept[number] for number in sets.candidates(compared.words)]
        texts = [one.wording.text for one in candidates]
        for _, similarity, place in self._compare(text, texts, self._similarity):
            if spelled_share(compared.words, candidates[place].words) >= FUZZY_SHARE:
                yield candidates[place], similarity


_Rests = tuple[str, str]
"""The words of each of two texts that the other does not have."""


class _ByVectors:
    """Texts are similar when their vectors are near, and the words that they do not share too.

    Where the vectors of these words say nothing, the sets of words must be similar: when one text
    only adds words, when they are of another script, and when the texts share few words.
    """

    def __init__(self, compared: Sequence[_Compared], similarity: float, embed: Embed) -> None:
        self._similarity = similarity
        self._embed = embed
        # Only texts with the same numbers, negations and triple are compared.
        groups: Mapping[tuple[object, ...], dict[str, _Compared]] = defaultdict(dict)
        for one in compared:
            groups[one.assertion].setdefault(one.wording.text, one)
        rows = embed([text for texts in groups.values() for text in texts])
        self._groups: dict[tuple[object, ...], _NearTexts] = {}
        first = 0
        for assertion, texts in groups.items():
            near = NearVectors(rows[first : first + len(texts)], similarity, _MOST_SIMILAR)
            numbers = {one.entry.id: number for number, one in enumerate(texts.values())}
            self._groups[assertion] = _NearTexts([*texts.values()], numbers, near)
            first += len(texts)

    def keep(self, compared: _Compared) -> None:
        group = self._groups[compared.assertion]
        group.near.keep(group.numbers[compared.entry.id])

    def similar(self, compared: _Compared) -> Iterator[tuple[_Compared, float]]:
        texts, numbers, near = self._groups[compared.assertion]
        found = [
            (texts[number], similarity)
            for number, similarity in near.find(numbers[compared.entry.id])
        ]
        shares = [jaccard(compared.words, kept.words) for kept, _ in found]
        rests = [
            _rests(compared.wording.words, kept.wording.words) if share >= VECTORS_SHARE else None
            for (kept, _), share in zip(found, shares, strict=True)
        ]
        cosines = self._cosines_of(rest for rest in rests if rest is not None)
        for (kept, similarity), share, rest in zip(found, shares, rests, strict=True):
            if rest in cosines:
                is_similar = cosines[rest] >= VECTORS_REST
            else:
                is_similar = share >= self._similarity
            if is_similar:
                yield kept, similarity

    def _cosines_of(self, rests: Iterable[_Rests]) -> Mapping[_Rests | None, float]:
        """Return the cosine of each two texts of which none is empty, or of another script."""
        both = [rest for rest in rests if all(rest) and max("".join(rest)) < _AFTER_LATIN]
        if not both:
            return {}
        lefts, rights = (self._embed(side) for side in zip(*both, strict=True))
        cosines = (lefts.astype(float) * rights).sum(axis=1).tolist()
        return dict(zip(both, cosines, strict=True))


class _NearTexts(NamedTuple):
    """Entries of different texts that may be duplicates of each other, with their vectors."""

    texts: list[_Compared]
    numbers: dict[str, int]
    near: NearVectors


def _rests(left: Sequence[str], right: Sequence[str]) -> _Rests:
    """Return the words of each text that the other does not have."""
    mine, others = frozenset(left), frozenset(right)
    return (
        " ".join(word for word in left if word not in others),
        " ".join(word for word in right if word not in mine),
    )


class _ByPairs:
    """Entries are similar when a pair says so."""

    def __init__(self, pairs: Iterable[Pair], similarity: float) -> None:
        self._similar: Mapping[str, dict[str, float]] = defaultdict(dict)
        for left, right, found in pairs:
            if similarity <= found <= 1 and left != right:
                for one, other in ((left, right), (right, left)):
                    before = self._similar[one].get(other, 0.0)
                    self._similar[one][other] = max(found, before)
        self._kept: dict[str, tuple[int, _Compared]] = {}

    def keep(self, compared: _Compared) -> None:
        self._kept[compared.entry.id] = len(self._kept), compared

    def similar(self, compared: _Compared) -> Iterator[tuple[_Compared, float]]:
        found = [
            (*self._kept[other], similarity)
            for other, similarity in self._similar[compared.entry.id].items()
            if other in self._kept
        ]
        for _, kept, similarity in sorted(found, key=lambda place: place[0]):
            yield kept, similarity
