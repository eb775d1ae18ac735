"""Embeddings of short texts, by the model that comes with the extra ``vectors``.

The model is a table of words: a text's vector is the mean of its words'. It knows what texts speak
of, and hardly what they say of it: opposites are as near as restatements.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Protocol

from slumberd.errors import ExtraMissingError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_DIMENSIONS = 256
"""Of the model's vectors."""

_BLOCK = 256
"""Texts that are compared with those before them at a time."""

_KEPT = 20_000
"""Texts whose vectors are kept, a kilobyte each: what stands is compared again and again."""


class _Model(Protocol):
    def embed(self, texts: list[str]) -> NDArray[np.float32]: ...


class WordEmbedder:
    """Embeds texts with a model that lies in the package itself; implements ``ports.Embedder``.

    The model, some 20 MB, is read when it is first needed, and kept for the process, as are the
    vectors of the texts that were asked for last.

    Raises:
        ExtraMissingError: The extra ``vectors`` is not installed.
    """

    def __init__(self) -> None:
        self._words = _words()

    def embed(self, texts: Sequence[str]) -> list[tuple[float, ...]]:
        """Return a vector of length 1, of 256 dimensions, for each text, in order."""
        return [*map(tuple, self._words.directions(texts).tolist())]

    def near(
        self, texts: Sequence[str], *, first: int, least: float, most: int
    ) -> Iterator[list[tuple[int, float]]]:
        """Yield, for each text from `first` on, which of the `most` before it are near to it."""
        directions = self._words.directions(texts)
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
    """The model, and the vectors that it gave last."""

    def __init__(self, model: _Model) -> None:
        self._model = model
        self._lock = Lock()
        self._kept: OrderedDict[str, NDArray[np.float32]] = OrderedDict()

    def directions(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Return a row of length 1 for each text; of zeros for one without words."""
        import numpy as np  # of the extra, and slow

        with self._lock:
            kept = self._kept
            missing = [*dict.fromkeys(text for text in texts if text not in kept)]
            kept.update(zip(missing, self._embedded(missing), strict=True))
            found = [kept[text] for text in texts]
            for text in texts:
                kept.move_to_end(text)
            while len(kept) > _KEPT:
                kept.popitem(last=False)
        return np.array(found, np.float32).reshape(len(found), _DIMENSIONS)

    def _embedded(self, texts: Sequence[str]) -> Iterable[NDArray[np.float32]]:
        import numpy as np  # of the extra, and slow

        if not texts:
            return ()
        # Half a character, which JSON may hold, is none that the model takes.
        whole = [text.encode(errors="replace").decode() for text in texts]
        # Without words the mean is that of nothing: not a number.
        vectors = np.nan_to_num(self._model.embed(whole), posinf=0.0, neginf=0.0)
        lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
        # Copies: a row that is kept must not keep all the others.
        return map(np.copy, (vectors / np.where(lengths > 0, lengths, 1)).astype(np.float32))


@cache
def _words() -> _Words:
    try:
        import wordllama  # of an extra, and slow
    except ImportError as error:
        raise ExtraMissingError("vectors", "texts cannot be compared by what they mean") from error
    # Beside the code lies all that it needs; what it does not find, it would fetch from elsewhere.
    folder = Path(wordllama.__file__).parent
    return _Words(wordllama.WordLlama.load(cache_dir=folder, disable_download=True))
