"""The contracts of graph stores and of stores that take promoted triples."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Protocol, runtime_checkable

from slumberd.consolidation.graph_promotion import Promoted
from slumberd.model.fact import Fact
from slumberd.model.graph import ResultSet
from slumberd.model.health import StoreHealth


@runtime_checkable
class GraphStore(Protocol):
    """A graph that can be asked in portable Cypher."""

    async def bootstrap(self) -> None:
        """Create what is missing; changes nothing where all is there."""
        ...

    async def health(self) -> StoreHealth:
        """Say whether the graph can be asked; never raises for the state of its file."""
        ...

    async def query(self, cypher: str, params: Mapping[str, Any] | None = None) -> ResultSet:
        """Return what a query finds, which only reads.

        Raises:
            UnportableCypherError: The query is not portable, or writes; nothing was done.
            GraphStoreError: It cannot be answered.
        """
        ...

    async def close(self) -> None:
        """Let go of what is open."""
        ...


@runtime_checkable
class Promoting(Protocol):
    """A fact store that takes what a graph says: all of it or nothing."""

    async def promote(
        self, facts: Sequence[Fact], *, rule_id: str, at: datetime | None = None
    ) -> Promoted:
        """Promote what of a graph's facts is news, in one transaction.

        A fact that was promoted before and has not changed is not promoted again, whatever became
        of it; nor is what a person has retracted or corrected.
        """
        ...
