"""What vectors of texts are for: protocols of embedders and of text comparers. Loads no model."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

Rows = Any
"""A numpy array of 32-bit floats: a vector a row. Numpy is of an extra, so it has no type here."""


class Embedder(Protocol):
    """Turns texts into vectors; texts about the same subject have near vectors."""

    def embed(self, texts: Sequence[str]) -> list[tuple[float, ...]]:
        """Return a vector of length 1 for each text, in order; zeros for a text without words.

        All vectors have the same number of dimensions. Any thread may call it. A short text takes
        some 20 us.
        """
        ...

    def rows(self, texts: Sequence[str]) -> Rows:
        """Return the same vectors as the rows of an array."""
        ...


class TextComparer(Protocol):
    """Finds texts that are near to each other."""

    def near(
        self,
        texts: Sequence[str],
        *,
        first: int,
        least: float,
        most: int,
        cancelled: Callable[[], bool] | None = None,
    ) -> Iterator[list[tuple[int, float]]]:
        """Yield, for each text from `first` on, the near texts before it.

        Args:
            texts: The texts, in order.
            first: The number of the first text to compare, from 0.
            least: Two texts are near from this cosine on.
            most: Each text is compared with at most so many texts before it.
            cancelled: Returns, in any thread, whether the work must stop.

        Yields:
            Numbers of texts with their cosines, in the order of the texts. A text without words is
            near to no text.

        Raises:
            StoppedError: `cancelled` returned true.
        """
        ...
