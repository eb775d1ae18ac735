"""Find the kept vectors that are near to a vector, by comparing it with each of them.

The vectors are the rows of a numpy array that the caller passes in; this module loads no model.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from slumberd.retrieval.protocols import Rows

Embed = Callable[[Sequence[str]], Rows]
"""Returns a vector of length 1 for each text, in order; zeros for a text without words.

The vector of a text depends on no other text.

Raises:
    ExtraMissingError: The optional dependency is not installed.
"""

_BLOCK = 256
"""So many vectors are compared with the kept ones in one step."""

_ROUNDING = 1e-4
"""The most by which a cosine of a block is wrong: its sums depend on the size of the block."""

_DIGITS = 6
"""The digits of a cosine after the point. A sum of single precision has no more."""


class NearVectors:
    """Vectors in order, some of them kept, and an exact search among the kept ones.

    The search compares vectors in blocks, and computes each cosine that it returns again. So the
    cosine of two vectors does not depend on others.

    Args:
        rows: The vectors.
        least: Two vectors are near from this cosine on, above 0.
        most: The search returns at most so many, the nearest ones.
    """

    def __init__(self, rows: Rows, least: float, most: int) -> None:
        self._rows = rows
        self._least = least
        self._most = most
        self._kept: list[int] = []
        self._block = range(0)
        self._compared: Sequence[int] = ()
        self._cosines: Rows = None

    def keep(self, number: int) -> None:
        """Keep a vector; its number is higher than that of each kept one."""
        self._kept.append(number)

    def find(self, number: int) -> Iterator[tuple[int, float]]:
        """Yield the kept vectors near to one, in the order of keeping, with their cosines.

        Args:
            number: The number of the vector; it never falls, and is higher than each kept one.
        """
        if number not in self._block:
            self._compare_block(number)
        cosines = self._cosines[number - self._block.start]
        places = (cosines >= self._least - _ROUNDING).nonzero()[0]
        nearest = places[(-cosines[places]).argsort(kind="stable")].tolist()
        kept = self._kept_among(nearest)
        for other in sorted(kept):
            cosine = self._cosine(number, other)
            if cosine >= self._least:
                yield other, cosine

    def _compare_block(self, first: int) -> None:
        """Compare a block with all kept vectors, and with itself: it may keep some of its own."""
        self._block = range(first, min(first + _BLOCK, len(self._rows)))
        self._compared = [*self._kept, *self._block]
        block = self._rows[self._block.start : self._block.stop]
        self._cosines = block @ self._rows[self._compared].T

    def _kept_among(self, places: Sequence[int]) -> list[int]:
        """Return the first kept vectors of some places of the comparison."""
        before = len(self._compared) - len(self._block)
        found: list[int] = []
        own = frozenset(self._kept[before:])
        for place in places:
            number = self._compared[place]
            if place < before or number in own:
                found.append(number)
                if len(found) == self._most:
                    break
        return found

    def _cosine(self, left: int, right: int) -> float:
        product = self._rows[left].astype(float) * self._rows[right]
        return min(1.0, round(float(product.sum()), _DIGITS))
