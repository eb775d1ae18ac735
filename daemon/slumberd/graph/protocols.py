"""The protocols of graph stores and of fact stores that accept promoted triples."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Protocol, runtime_checkable

from slumberd.consolidation.graph_promotion import Promoted
from slumberd.model.fact import Fact
from slumberd.model.firing import Trigger
from slumberd.model.graph import ResultSet
from slumberd.model.health import StoreHealth


@runtime_checkable
class GraphStore(Protocol):
    """A graph that answers portable Cypher."""

    async def bootstrap(self) -> None:
        """Create what is missing; a second call changes nothing."""
        ...

    async def health(self) -> StoreHealth:
        """Return whether the graph can be queried; an unusable file raises nothing."""
        ...

    async def query(self, cypher: str, params: Mapping[str, Any] | None = None) -> ResultSet:
        """Return the result of a query that only reads.

        Raises:
            UnportableCypherError: The query is not portable, or writes; it was not run.
            GraphStoreError: The graph cannot answer the query.
        """
        ...

    async def close(self) -> None:
        """Release all resources."""
        ...


@runtime_checkable
class PromotionTarget(Protocol):
    """A fact store that promotes all facts of a graph, or none."""

    async def promote(
        self, facts: Sequence[Fact], *, rule_id: str, at: datetime | None = None
    ) -> Promoted:
        """Promote the new and changed facts of a graph in one transaction.

        A fact that was promoted before and has not changed is not promoted again, even if it is no
        longer current. A fact that a person retracted or corrected is not promoted either.
        """
        ...


class GraphRuleTarget(Protocol):
    """A fact store that promotes the facts of a graph rule as a firing of that rule."""

    async def promote(  # noqa: PLR0913 # the fields of its ledger rows
        self,
        facts: Sequence[Fact],
        *,
        rule_id: str,
        rule_hash: str = "",
        trigger: Trigger = "manual",
        at: datetime | None = None,
        by: str = "",
        dry_run: bool = False,
        run: str = "",
        reason: str = "",
    ) -> Promoted:
        """Promote the new and changed facts of a graph in one transaction and one firing.

        Args:
            facts: The facts of the triples that the graph returned.
            rule_id: The rule that promotes.
            rule_hash: The hash of the rule's content; empty for a rule without a file.
            trigger: What started the firing.
            at: The instant of the firing; None means now.
            by: The person who started it; empty for the rule itself.
            dry_run: Return the outcome, and write nothing.
            run: The id that all firings of one command or due cadence share.
            reason: Why that person started it; empty without a reason.
        """
        ...
