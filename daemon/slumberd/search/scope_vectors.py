"""Compare the meanings of the texts of one scope with that of a question; numpy is of an extra.

The vector of a text is the sum of the vectors of its words, each weighted by how rare the word is
in the scope, less the mean of all texts. Without weights and mean, most texts lie in one direction.
The vectors of neighbours count for short texts, as their words do.

The weights go by powers of two, so that a new text changes the weights of few words.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray

from slumberd.search.columns import VECTOR_ROWS, Parts, SavedParts, read_json
from slumberd.search.embeddings import word_table
from slumberd.search.term_index import NEXT_WEIGHTS, PREVIOUS_WEIGHTS, Allows, Neighbours

Floats = NDArray[np.float32]
Numbers = NDArray[np.signedinteger[Any]]

_TOKENS_AT_ONCE = 32_768
"""About so many words are added up in one step; each takes a kilobyte."""

_TINY = 1e-6


class ScopeVectors:
    """The vectors of numbered texts.

    Args:
        neighbours: The order of the texts within their sessions.

    Raises:
        ExtraMissingError: The extra ``vectors`` is not installed.
    """

    def __init__(self, neighbours: Neighbours) -> None:
        self._table = word_table()
        self._neighbours = neighbours
        self._waiting: list[str] = []
        self._gone: set[int] = set()
        self._changed = False
        self._short = bytearray()
        self._words: Numbers = np.zeros(0, np.int64)
        """The words of all texts, one text after the other."""
        self._starts: Numbers = np.zeros(1, np.int64)
        """Where the words of each text begin, and where the last ones end."""
        words, dimensions = self._table.vectors.shape
        self._texts = np.zeros(words, np.int64)
        self._count = 0
        self._weights: Floats = np.zeros(words, np.float32)
        self._room: Floats = np.zeros((0, dimensions), np.float32)
        self._rows: Floats = self._room
        self._lengths: Floats = np.zeros(0, np.float32)
        self._mean: Floats = np.zeros(dimensions, np.float32)
        self._scales: Floats = np.zeros(0, np.float32)
        self._near: list[tuple[float, Numbers, Floats]] = []

    @property
    def size_bytes(self) -> int:
        """About how much memory the vectors take."""
        return 1_300 * len(self._short)

    @property
    def _known(self) -> int:
        """How many texts were embedded, with removed ones."""
        return len(self._starts) - 1

    def parts(self) -> SavedParts:
        """Return what `load` needs."""
        self._update()
        return {
            "vector_words": self._words.astype("int32").tobytes(),
            "vector_starts": self._starts.tobytes(),
            "vector_texts": self._texts.tobytes(),
            "vector_weights": self._weights.tobytes(),
            "vector_sum": orjson.dumps(_sum_of(self._rows.reshape(-1))),
            VECTOR_ROWS: self._rows.tobytes(),
            "vector_lengths": self._lengths[: len(self._rows)].tobytes(),
            "vector_mean": self._mean.tobytes(),
            "vector_scales": self._scales.tobytes(),
            "vector_short": bytes(self._short),
            "vector_count": orjson.dumps(self._count),
        }

    def load(self, parts: Parts) -> None:
        """Take what was saved; the neighbours must be loaded.

        Raises:
            ValueError: The vectors are damaged.
        """
        self._words = np.frombuffer(parts["vector_words"], np.int32)
        self._starts = np.frombuffer(parts["vector_starts"], np.int64)
        self._texts = np.frombuffer(parts["vector_texts"], np.int64).copy()
        self._weights = np.frombuffer(parts["vector_weights"], np.float32)
        dimensions = self._table.vectors.shape[1]
        # No copy: most often nothing has changed.
        rows = np.frombuffer(parts[VECTOR_ROWS], np.float32)
        if _sum_of(rows) != read_json(parts["vector_sum"]):
            raise ValueError("damaged")
        self._rows = self._room = rows.reshape(self._known, dimensions)
        self._lengths = np.frombuffer(parts["vector_lengths"], np.float32).copy()
        self._mean = np.frombuffer(parts["vector_mean"], np.float32)
        self._scales = np.frombuffer(parts["vector_scales"], np.float32).reshape(2, self._known)
        self._short = bytearray(parts["vector_short"])
        self._count = read_json(parts["vector_count"])
        self._place_neighbours(np.zeros(self._known, bool))

    def append(self, text: str, *, short: bool) -> None:
        """Add a text under the next number.

        Args:
            short: Whether the vectors of its neighbours count.
        """
        self._waiting.append(text)
        self._short.append(short)
        self._changed = True

    def remove(self, number: int) -> None:
        """Remove a text; its number stays unused."""
        place = number - self._known
        if place >= 0:
            self._waiting[place] = ""
        self._gone.add(number)
        self._changed = True

    def cosines(self, query: str) -> Floats:
        """Return the cosine of each text with a question, by number; 0 for a text without words."""
        self._update()
        words = self._table.encode([query])
        vector = self._add_up(words)[0] - self._mean
        length = float(np.linalg.norm(vector))
        if length < _TINY or not len(words[0]):
            return np.zeros(self._known, np.float32)
        found = self._with_neighbours(self._rows @ vector) * self._scales[0]
        found = (found - float(self._mean @ vector)) * self._scales[1] / length
        cosines: Floats = np.where(self._scales[0] > 0, found, 0).clip(-1, 1)
        return cosines

    @staticmethod
    def nearest(cosines: Floats, most: int, allows: Allows | None) -> list[int]:
        """Return the numbers of the texts with the highest cosines above 0, in no order.

        Args:
            cosines: What `cosines` returned.
            most: At most so many.
            allows: Returns whether a text may be found; None when all may.
        """
        if allows is None and len(cosines) > most:
            numbers = np.argpartition(cosines, -most)[-most:]
        else:
            numbers = np.argsort(-cosines, kind="stable")
        above = numbers[cosines[numbers] > 0].tolist()
        return [*islice(above if allows is None else filter(allows, above), most)]

    def _update(self) -> None:
        """Embed what has changed since the last question."""
        if not self._changed:
            return
        first = self._known
        self._take_waiting()
        weights = self._weigh()
        changed = np.zeros(self._known, bool)
        changed[first:] = True
        changed[sorted(self._gone)] = True
        owners = np.repeat(np.arange(self._known), np.diff(self._starts))
        changed[owners[(weights != self._weights)[self._words]]] = True
        self._weights = weights
        self._make_room(self._known)
        stale = changed.nonzero()[0]
        self._rows[stale] = self._add_up([self._tokens(number) for number in stale.tolist()])
        self._place_neighbours(changed)
        self._center(changed.nonzero()[0])
        self._gone = set()
        self._changed = False

    def _tokens(self, number: int) -> Numbers:
        """Return the words of a text."""
        return self._words[self._starts[number] : self._starts[number + 1]]

    def _take_waiting(self) -> None:
        """Split new texts into words, and forget the words of removed ones."""
        new = self._table.encode(self._waiting)
        self._waiting = []
        self._words = np.concatenate([self._words, *new])
        lengths = np.concatenate([np.diff(self._starts), np.array([*map(len, new)], np.int64)])
        self._starts = np.append(np.zeros(1, np.int64), np.cumsum(lengths))
        for tokens in new:
            self._count_words(tokens, 1)
        if not self._gone:
            return
        left = np.ones(len(self._words), bool)
        for number in self._gone:
            self._count_words(self._tokens(number), -1)
            left[self._starts[number] : self._starts[number + 1]] = False
        self._words = self._words[left]
        lengths[sorted(self._gone)] = 0
        self._starts = np.append(np.zeros(1, np.int64), np.cumsum(lengths))

    def _make_room(self, count: int) -> None:
        """Provide a row for each text, and some more: to copy all rows takes long.

        Rows that were loaded cannot be written, so they are copied, too.
        """
        if count > len(self._room) or not self._room.flags.writeable:
            dimensions = self._table.vectors.shape[1]
            room = np.zeros((count + count // 4 + 16, dimensions), np.float32)
            room[: len(self._rows)] = self._rows
            self._room = room
            self._lengths = np.resize(self._lengths, len(room))
        self._rows = self._room[:count]

    def _count_words(self, tokens: Numbers, sign: int) -> None:
        if len(tokens):
            self._texts[[*set(tokens.tolist())]] += sign
            self._count += sign

    def _weigh(self) -> Floats:
        """Return how rare each word is: BM25's inverse document frequency, of rounded counts."""
        total = 2.0 ** round(np.log2(max(self._count, 1)))
        texts = 2.0 ** np.round(np.log2(np.maximum(self._texts, 0.5)))
        rare = (total - np.minimum(texts, total) + 0.5) / (texts + 0.5)
        weights: Floats = np.log1p(rare).astype(np.float32)
        return weights

    def _add_up(self, texts: Sequence[Numbers]) -> Floats:
        """Return the weighted sum of the words of each text, of length 1; zeros without words."""
        sums = np.zeros((len(texts), self._table.vectors.shape[1]), np.float32)
        for begin, end in _portions(texts):
            some = [number for number in range(begin, end) if len(texts[number])]
            if not some:
                continue
            tokens = np.concatenate([texts[number] for number in some])
            vectors = self._table.vectors[tokens] * self._weights[tokens][:, None]
            starts = np.cumsum([0, *(len(texts[number]) for number in some[:-1])])
            sums[some] = np.add.reduceat(vectors, starts, axis=0)
        lengths = np.linalg.norm(sums, axis=1, keepdims=True)
        return np.asarray(sums / np.where(lengths > _TINY, lengths, 1), np.float32)

    def _place_neighbours(self, changed: NDArray[np.bool_]) -> None:
        """Prepare the numbers of the neighbours, and how much each counts.

        Args:
            changed: Which texts are new, changed or removed. Texts with another neighbour, or with
                a changed one, are added.
        """
        before, self._near = self._near, []
        short = np.frombuffer(bytes(self._short), bool)
        affected = changed.copy()
        for places, weights in (
            (self._neighbours.previous, PREVIOUS_WEIGHTS),
            (self._neighbours.next, NEXT_WEIGHTS),
        ):
            step = np.append(np.array(places, np.int64), -1)
            numbers = step[:-1]
            for weight in weights:
                counts = (short & (numbers >= 0)).astype(np.float32)
                affected |= changed[numbers] & (counts > 0)
                if before:
                    old = before[len(self._near)][1]
                    affected[: len(old)] |= numbers[: len(old)] != old
                self._near.append((weight, numbers, counts))
                numbers = step[numbers]
        changed |= affected

    def _with_neighbours(self, values: Floats) -> Floats:
        """Return the value of each text plus the weighted values of its neighbours."""
        found = values.copy()
        for weight, numbers, counts in self._near:
            # The number of no neighbour takes the last value, times zero.
            found += weight * counts * values[numbers]
        return found

    def _center(self, changed: Numbers) -> None:
        """Compute the mean of all texts, and by what a product becomes a cosine.

        Args:
            changed: The texts whose length with their neighbours may be another one.
        """
        for begin in range(0, len(changed), _TOKENS_AT_ONCE):
            some = changed[begin : begin + _TOKENS_AT_ONCE]
            together = self._rows[some]
            for weight, numbers, counts in self._near:
                together += (weight * counts[some])[:, None] * self._rows[numbers[some]]
            self._lengths[some] = np.linalg.norm(together, axis=1)
        lengths = self._lengths[: len(self._rows)]
        inner = np.where(lengths > _TINY, 1 / np.maximum(lengths, _TINY), 0).astype(np.float32)
        shares = inner.copy()
        for weight, numbers, counts in self._near:
            # The number of no neighbour is -1; it counts nothing.
            parts = weight * counts * inner
            shares += np.bincount(numbers % len(shares), parts, len(shares)).astype(np.float32)
        mean = (shares @ self._rows) / max(self._count, 1)
        self._mean = mean.astype(np.float32)
        along = self._with_neighbours(self._rows @ self._mean) * inner
        squares = np.where(inner > 0, 1, 0) - 2 * along + float(self._mean @ self._mean)
        outer = 1 / np.sqrt(np.maximum(squares, _TINY))
        self._scales = np.array([inner, outer], np.float32)


def _sum_of(values: Floats) -> int:
    """Return the sum of the bits, in a fourth of the time of a checksum."""
    return int(values.view("uint64").sum())


def _portions(texts: Sequence[Numbers]) -> list[tuple[int, int]]:
    """Return where each portion of texts begins and ends, each of about as many words."""
    found, begin, words = [], 0, 0
    for number, tokens in enumerate(texts):
        words += len(tokens)
        if words >= _TOKENS_AT_ONCE:
            found.append((begin, number + 1))
            begin, words = number + 1, 0
    return [*found, (begin, len(texts))]
