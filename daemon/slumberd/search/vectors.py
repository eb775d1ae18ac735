"""What vectors of texts are for: protocols of embedders and of text comparers. Loads no model."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

Rows = Any
"""A numpy array of 32-bit floats: a vector a row. Numpy is of an extra, so it has no type here."""

_HALF_ROUNDING = 2e-3
"""The most by which a cosine of two vectors of half precision is wrong, and more.

Each of the two is wrong by a 2048th of its length at most.
"""

_BLOCK = 256
"""So many packed rows are compared in one step, so that they stay in the processor's cache."""


def pack_rows(rows: Rows) -> list[bytes]:
    """Return the rows of an array of vectors of length 1 in half precision: two bytes a number."""
    return [row.tobytes() for row in rows.astype("<f2")]


def near_rows(some: Sequence[bytes], packed: Sequence[bytes], least: float) -> list[int]:
    """Return the places of the packed rows that are near to one of some packed rows.

    All rows are there whose cosine is at least `least`, and perhaps others that are nearly so near.
    """
    import numpy as np  # of the extra, and slow to import

    def rows(some: Sequence[bytes]) -> Rows:
        found = np.frombuffer(b"".join(some), "<f2").reshape(len(some), -1)
        return found.astype(np.float32)

    left, found = rows(some).T, list[int]()
    for first in range(0, len(packed), _BLOCK):
        nearest = (rows(packed[first : first + _BLOCK]) @ left).max(axis=1)
        places = (nearest >= least - _HALF_ROUNDING).nonzero()[0] + first
        found += places.tolist()
    return found


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
