"""The contracts of memory stores and fact stores: what the specification asks of them."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from slumberd.model.delta import AnyDelta
from slumberd.model.episode import Episode
from slumberd.model.fact import Fact, FactPattern
from slumberd.model.health import MigrationPlan, StoreHealth
from slumberd.model.rule import ConsolidationRule


@runtime_checkable
class MemoryStore(Protocol):
    """Episodes, as the specification has it."""

    async def bootstrap(self) -> None:
        """Create what is missing; changes nothing where all is there."""
        ...

    async def health(self) -> StoreHealth:
        """Say whether the store can be used; never raises for the state of its file."""
        ...

    async def migrate(self, plan: MigrationPlan) -> None:
        """Add nullable columns.

        Raises:
            MigrationNotSupportedError: The plan asks for anything else; nothing is done.
        """
        ...

    async def put(self, episode: Episode, *, user: str, session: str, agent: str) -> None:
        """Write one episode; it is committed when this returns.

        Raises:
            MemoryScopeError: The scope is malformed, contradicts the episode, or the id belongs
                to another scope; nothing is written.
            InputError: A value of the episode would not come back equal.
        """
        ...

    async def recent(
        self, user: str, session: str | None = None, agent: str | None = None, *, limit: int
    ) -> list[Episode]:
        """Return the latest episodes of a scope, newest first, then by id.

        Raises:
            MemoryScopeError: A part of the scope is malformed.
            ValueError: `limit` is below 1.
        """
        ...

    async def consolidate(self, rule: ConsolidationRule) -> list[AnyDelta]:
        """Return one delta for each episode that the rule's filter selects; cumulative.

        Raises:
            ConsolidationRuleError: The filter, or what an episode asks for, breaks its form.
        """
        ...


@runtime_checkable
class FactStore(Protocol):
    """Facts, as the specification has it."""

    async def bootstrap(self) -> None:
        """Create what is missing; changes nothing where all is there."""
        ...

    async def health(self) -> StoreHealth:
        """Say whether the store can be used; never raises for the state of its file."""
        ...

    async def migrate(self, plan: MigrationPlan) -> None:
        """Add nullable columns.

        Raises:
            MigrationNotSupportedError: The plan asks for anything else; nothing is done.
        """
        ...

    async def pin(self, fact: Fact) -> None:
        """Assert a fact by hand; it takes the place of whatever had its id.

        Raises:
            ValueError: The lineage is empty, or the confidence lies outside 0..1.
            FactConflictError: Another user, agent or channel holds the id.
        """
        ...

    async def query(self, pattern: FactPattern) -> list[Fact]:
        """Return the facts that are what a pattern asks for, in its order; by id unless it says.

        Raises:
            PatternError: Its cursor, a glob or a regular expression cannot be read.
        """
        ...

    async def unpin(self, fact_id: str) -> None:
        """Take a fact out by hand; nothing happens when it does not stand."""
        ...
