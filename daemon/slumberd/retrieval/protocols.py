"""Protocols of embedders, text comparers and salience scorers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Protocol, runtime_checkable

from slumberd.model.episode import Episode
from slumberd.model.salience import SalienceContext


@runtime_checkable
class SalienceScorer(Protocol):
    """What says how much an episode is worth keeping, as the specification has it."""

    async def score(self, memory: Episode, context: SalienceContext) -> float:
        """Return an episode's salience, 0 to 1."""
        ...


class Embedder(Protocol):
    """What turns texts into directions: near ones for texts that speak of the same."""

    def embed(self, texts: Sequence[str]) -> list[tuple[float, ...]]:
        """Return a vector of length 1 for each text, in order; of zeros for one without words.

        All have the same dimensions. It may be called from any thread, and takes some 20 us a
        short text.
        """
        ...


class TextComparer(Protocol):
    """What finds texts that are near to each other."""

    def near(
        self,
        texts: Sequence[str],
        *,
        first: int,
        least: float,
        most: int,
        late: Callable[[], bool] | None = None,
    ) -> Iterator[list[tuple[int, float]]]:
        """Yield, for each text from one on, which texts before it are near to it.

        Args:
            texts: In order.
            first: The number of the text to begin with, from 0.
            least: The cosine from which on two are near.
            most: How many texts before it each is compared with.
            late: Says, in any thread, that it must end.

        Yields:
            Numbers of texts and cosines, in the texts' order; a text without words is near to none.

        Raises:
            StoppedError: It was `late`.
        """
        ...
