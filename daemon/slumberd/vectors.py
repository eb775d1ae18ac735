"""Embeddings of short texts, by the model that comes with the extra ``vectors``.

The model is a table of words: a text's vector is the mean of its words'. It knows what texts speak
of, and hardly what they say of it: opposites are as near as restatements.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Protocol

from slumberd.errors import ExtraMissingError


class _Vectors(Protocol):
    def tolist(self) -> list[list[float]]: ...


class _Model(Protocol):
    def embed(self, texts: list[str]) -> _Vectors: ...


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
        if not texts:
            return []
        # Half a character, which JSON may hold, is none that the model takes.
        whole = [text.encode(errors="replace").decode() for text in texts]
        # The norm is taken here: theirs is NaN for a text without words.
        return [_of_length_one(vector) for vector in self._model.embed(whole).tolist()]


def _of_length_one(vector: Sequence[float]) -> tuple[float, ...]:
    length = sum(part * part for part in vector) ** 0.5
    return tuple(part / length for part in vector) if 0 < length < float("inf") else _zeros(vector)


def _zeros(vector: Sequence[float]) -> tuple[float, ...]:
    return (0.0,) * len(vector)


def check_vectors(consequence: str) -> None:
    """Make sure that texts can be compared, without reading the model.

    Args:
        consequence: What cannot be done when they cannot.

    Raises:
        ExtraMissingError: The extra ``vectors`` is not installed.
    """
    if find_spec("wordllama") is None:
        raise ExtraMissingError("vectors", consequence)


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
