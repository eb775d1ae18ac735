"""Embeddings of short texts, by the model that comes with the extra ``vectors``.

The model is a table of words: a text's vector is the mean of its words'. It knows what texts speak
of, and hardly what they say of it: opposites are as near as restatements.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from slumberd.errors import ExtraMissingError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_DIMENSIONS = 256


_BLOCK = 256
"""Texts that are compared with those before them at a time."""


class _Model(Protocol):
    def embed(self, texts: list[str]) -> NDArray[np.float32]: ...


class WordEmbedder:
    """Embeds texts with a model that lies in the package itself; implements ``ports.Embedder``.

    The model, some 20 MB, is read when it is first needed, and kept for the process.

    Raises:
        ExtraMissingError: The extra ``vectors`` is not installed.
    """

    def __init__(self) -> None:
        self._model = _model()

    def embed(self, texts: Sequence[str]) -> list[tuple[float, ...]]:
        """Return a vector of length 1, of 256 dimensions, for each text, in order."""
        return [*map(tuple, self._directions(texts).tolist())]

    def near(
        self, texts: Sequence[str], *, first: int, least: float, most: int
    ) -> Iterator[list[tuple[int, float]]]:
        """Yield, for each text from `first` on, which of the `most` before it are near to it."""
        directions = self._directions(texts)
        for begin in range(first, len(texts), _BLOCK):
            end = min(begin + _BLOCK, len(texts))
            low = max(0, begin - most)
            cosines = (directions[begin:end] @ directions[low:end].T).clip(-1, 1)
            for number, row in enumerate(cosines.tolist(), begin):
                before = range(max(low, number - most), number)
                yield [(other, row[other - low]) for other in before if row[other - low] >= least]

    def _directions(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Return a row of length 1 for each text; of zeros for one without words."""
        import numpy as np  # of the extra, and slow

        if not texts:
            return np.zeros((0, _DIMENSIONS), np.float32)
        # Half a character, which JSON may hold, is none that the model takes.
        whole = [text.encode(errors="replace").decode() for text in texts]
        # Without words the mean is that of nothing: not a number.
        vectors = np.nan_to_num(self._model.embed(whole), posinf=0.0, neginf=0.0)
        lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
        return (vectors / np.where(lengths > 0, lengths, 1)).astype(np.float32)


@cache
def _model() -> _Model:
    try:
        import wordllama  # of an extra, and slow
    except ImportError as error:
        raise ExtraMissingError("vectors", "texts cannot be compared by what they mean") from error
    # Beside the code lies all that it needs; what it does not find, it would fetch from elsewhere.
    folder = Path(wordllama.__file__).parent
    model: _Model = wordllama.WordLlama.load(cache_dir=folder, disable_download=True)
    return model
