"""Protocols of embedders, text comparers, salience scorers, and what a search reads."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from typing import Any, Protocol, runtime_checkable

from slumberd.model.episode import Episode
from slumberd.model.fact import Fact, FactPattern
from slumberd.model.feed import FeedChanges, FeedPlace, ScopeReading
from slumberd.model.salience import SalienceContext
from slumberd.model.scope import ScopeFilter
from slumberd.model.superseded import QuotedEpisode, SupersededByEpisode

Rows = Any
"""A numpy array of 32-bit floats: a vector a row. Numpy is of an extra, so it has no type here."""


@runtime_checkable
class SalienceScorer(Protocol):
    """Scores how much an episode is worth keeping, as the specification defines it."""

    async def score(self, memory: Episode, context: SalienceContext) -> float:
        """Return an episode's salience, 0 to 1."""
        ...


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


class EpisodeFeed(Protocol):
    """Tells indexes what a store of episodes holds."""

    async def read_scope(self, scope: ScopeFilter) -> ScopeReading:
        """Return all readable episodes of a scope."""
        ...

    async def changes(self, place: FeedPlace, *, most: int) -> FeedChanges | None:
        """Return what changed after a place; None when that is unknown, or more than `most`."""
        ...


class SearchedEpisodes(Protocol):
    """A store of episodes that a search reads."""

    @property
    def feed(self) -> EpisodeFeed:
        """What its indexes read."""
        ...


class SearchedFacts(Protocol):
    """A store of facts that a search reads."""

    async def query(
        self,
        pattern: FactPattern,
        *,
        valid_at: datetime | None = None,
        believed_at: datetime | None = None,
    ) -> list[Fact]:
        """Return the facts that match a pattern, now or as of an instant."""
        ...

    async def find_superseded(
        self, episodes: Sequence[QuotedEpisode], *, valid_at: datetime | None = None
    ) -> SupersededByEpisode:
        """Return which claims of quoted episodes are not current any more, by episode."""
        ...
