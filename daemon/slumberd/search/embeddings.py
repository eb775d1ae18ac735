"""Embed short texts with the model of the extra ``vectors``, and compare them.

The model is a table of words: the vector of a text is the mean of the vectors of its words. Texts
about the same subject are near, and opposites are as near as restatements.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from hashlib import blake2b
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any, Protocol

from slumberd.model.errors import ExtraMissingError, StoppedError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_DIMENSIONS = 256
"""The length of the model's vectors."""

_BLOCK = 256
"""So many texts are compared with the texts before them in one step."""

_MOST_CACHED = 20_000
"""So many vectors are cached, one kilobyte each: current facts are compared again and again."""

LONGEST = 65_536
"""Only so many first characters of a text count, as in a filter."""

_MOST_BYTES = 131_072
"""Only so many first bytes of a text count: the model takes a step for each unknown byte."""

_TOGETHER = 131_072
"""The most characters of one call of the model; it pads each text to the longest one."""

_MOST_TOGETHER = 64
"""The most texts of one call of the model."""

_LONGEST_KEY = 256
"""In the cache, a digest replaces a text that is longer than this."""


class _Model(Protocol):
    def embed(self, texts: list[str]) -> NDArray[np.float32]:
        """Return a vector for each text."""
        ...


class WordEmbedder:
    """Embeds texts with a model that is part of an installed package, and compares them.

    Implements ``vectors.Embedder`` and ``vectors.TextComparer``. The first instance reads the
    model, some 20 MB. The process keeps the model, and a cache of the latest vectors.

    Raises:
        ExtraMissingError: The extra ``vectors`` is not installed.
    """

    def __init__(self) -> None:
        self._words = _words()

    def embed(self, texts: Sequence[str]) -> list[tuple[float, ...]]:
        """Return a vector of length 1, of 256 dimensions, for each text, in order."""
        return [*map(tuple, self.rows(texts).tolist())]

    def rows(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Return the same vectors as the rows of an array."""
        return self._words.directions(texts)

    def near(
        self,
        texts: Sequence[str],
        *,
        first: int,
        least: float,
        most: int,
        cancelled: Callable[[], bool] | None = None,
    ) -> Iterator[list[tuple[int, float]]]:
        """Yield, for each text from `first` on, the near texts among the `most` texts before it.

        Raises:
            StoppedError: `cancelled` returned true; the vectors found until then stay in the cache.
        """
        directions = self._words.directions(texts, cancelled)
        for begin in range(first, len(texts), _BLOCK):
            low = max(0, begin - most)
            some = directions[begin : begin + _BLOCK]
            cosines = (some @ directions[low : begin + _BLOCK].T).clip(-1, 1)
            for number, row in enumerate(cosines, begin):
                before = row[max(low, number - most) - low : number - low]
                offset = number - len(before)
                found = (before >= least).nonzero()[0].tolist()
                yield [(offset + other, float(before[other])) for other in found]


class _Words:
    """The model, and a cache of its latest vectors."""

    def __init__(self, model: _Model, most_cached: int = _MOST_CACHED) -> None:
        self._model = model
        self._most_cached = most_cached
        self._lock = Lock()
        self._cache: OrderedDict[str, NDArray[np.float32]] = OrderedDict()

    def directions(
        self, texts: Sequence[str], cancelled: Callable[[], bool] | None = None
    ) -> NDArray[np.float32]:
        """Return one row of length 1 for each text; a row of zeros for a text without words.

        Args:
            texts: Only their first `LONGEST` characters count.
            cancelled: Returns whether the work must stop; called about every tenth of a second.

        Raises:
            StoppedError: `cancelled` returned true; the vectors found until then stay in the cache.
        """
        import numpy as np  # of the extra, and slow to import

        keys = [*map(_key, texts)]
        with self._lock:
            cache = self._cache
            missing = {key: text for key, text in zip(keys, texts, strict=True) if key not in cache}
            for some in _groups(missing):
                if cancelled is not None and cancelled():
                    raise StoppedError("the batch was cancelled before it was committed")
                cache.update(zip(some, self._embed([missing[key] for key in some]), strict=True))
            found = [cache[key] for key in keys]
            for key in keys:
                cache.move_to_end(key)
            while len(cache) > self._most_cached:
                cache.popitem(last=False)
        return np.array(found, np.float32).reshape(len(found), _DIMENSIONS)

    def forget(self) -> None:
        """Empty the cache."""
        with self._lock:
            self._cache.clear()

    def _embed(self, texts: Sequence[str]) -> Iterable[NDArray[np.float32]]:
        import numpy as np  # of the extra, and slow to import

        # The mean of no words is not a number.
        vectors = np.nan_to_num(self._model.embed([*map(_whole, texts)]), posinf=0.0, neginf=0.0)
        lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
        # Copies: a cached row must not keep the whole array alive.
        return map(np.copy, (vectors / np.where(lengths > 0, lengths, 1)).astype(np.float32))


def _whole(text: str) -> str:
    """Return the part of a text that the model takes."""
    # JSON may hold half of a surrogate pair; the model refuses it.
    return text[:LONGEST].encode(errors="replace")[:_MOST_BYTES].decode(errors="ignore")


def _key(text: str) -> str:
    """Return the cache's key of a text; a digest replaces a long text."""
    if len(text) <= _LONGEST_KEY:
        return text
    encoded = text[:LONGEST].encode(errors="surrogatepass")
    return f"{len(encoded)}:{blake2b(encoded, digest_size=32).hexdigest()}"


def _groups(texts: Mapping[str, str]) -> Iterator[list[str]]:
    """Yield the keys of texts in groups, each for one call of the model, short texts first."""
    group: list[str] = []
    for key in sorted(texts, key=lambda key: len(texts[key])):
        longest = min(len(texts[key]), LONGEST)
        if group and (len(group) == _MOST_TOGETHER or (len(group) + 1) * longest > _TOGETHER):
            yield group
            group = []
        group.append(key)
    if group:
        yield group


class WordTable:
    """The vectors of the words of the model, and how texts are split into these words.

    Attributes:
        vectors: A vector a row.
    """

    def __init__(self, model: Any) -> None:  # noqa: ANN401 # of the extra, without types
        self.vectors: NDArray[np.float32] = model.embedding
        # A copy: the model pads texts to the longest one.
        self._tokenizer = type(model.tokenizer).from_str(model.tokenizer.to_str())
        self._tokenizer.no_padding()
        self._tokenizer.no_truncation()

    def encode(self, texts: Sequence[str]) -> list[NDArray[np.int64]]:
        """Return the numbers of the words of each text; only its first characters count."""
        import numpy as np  # of the extra, and slow to import

        found = self._tokenizer.encode_batch_fast(
            [_whole(text) for text in texts], add_special_tokens=False
        )
        return [np.array(one.ids, np.int64) for one in found]


@contextmanager
def _kept_logging() -> Iterator[None]:
    """Keep the logging of the process while a library is imported that configures it.

    `logging.basicConfig` changes nothing when there is a handler.
    """
    root, handler = logging.getLogger(), logging.NullHandler()
    root.addHandler(handler)
    try:
        yield
    finally:
        root.removeHandler(handler)


@cache
def _model() -> Any:  # noqa: ANN401 # of the extra, without types
    try:
        with _kept_logging():
            import wordllama  # of the extra, and slow to import
    except ImportError as error:
        raise ExtraMissingError("vectors", "texts cannot be compared by what they mean") from error
    # The package holds all files of the model. Downloads are disabled: nothing is fetched.
    folder = Path(wordllama.__file__).parent
    return wordllama.WordLlama.load(cache_dir=folder, disable_download=True)


@cache
def _words() -> _Words:
    return _Words(_model())


def forget_vectors() -> None:
    """Forget the texts and vectors that the process has in its cache."""
    if _words.cache_info().currsize:
        _words().forget()


@cache
def word_table() -> WordTable:
    """Return the words of the model; the process keeps them.

    Raises:
        ExtraMissingError: The extra ``vectors`` is not installed.
    """
    return WordTable(_model())
