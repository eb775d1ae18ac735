"""The protocols of memory stores and fact stores, as the specification defines them."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from slumberd.model.delta import AnyDelta
from slumberd.model.episode import Episode
from slumberd.model.fact import Fact, FactPattern
from slumberd.model.health import MigrationPlan, StoreHealth
from slumberd.model.rule import ConsolidationRule


@runtime_checkable
class MemoryStore(Protocol):
    """A store of episodes, as the specification defines it."""

    async def bootstrap(self) -> None:
        """Create the missing tables; a second call changes nothing."""
        ...

    async def health(self) -> StoreHealth:
        """Report the health; never raises for the state of the file."""
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
            InputError: The store cannot return a value of the episode unchanged.
        """
        ...

    async def recent(
        self, user: str, session: str | None = None, agent: str | None = None, *, limit: int
    ) -> list[Episode]:
        """Return the latest episodes of a scope, newest first; equal instants by id.

        Raises:
            MemoryScopeError: The user, session or agent is malformed.
            ValueError: `limit` is below 1.
        """
        ...

    async def consolidate(self, rule: ConsolidationRule) -> list[AnyDelta]:
        """Return one delta for each episode that the rule's filter selects; cumulative.

        Raises:
            ConsolidationRuleError: The filter, or the metadata of an episode, is invalid.
        """
        ...


@runtime_checkable
class FactStore(Protocol):
    """A store of facts, as the specification defines it."""

    async def bootstrap(self) -> None:
        """Create the missing tables; a second call changes nothing."""
        ...

    async def health(self) -> StoreHealth:
        """Report the health; never raises for the state of the file."""
        ...

    async def migrate(self, plan: MigrationPlan) -> None:
        """Add nullable columns.

        Raises:
            MigrationNotSupportedError: The plan asks for anything else; nothing is done.
        """
        ...

    async def pin(self, fact: Fact) -> None:
        """Declare a fact; it replaces the fact of its id.

        Raises:
            ValueError: The lineage is empty, or the confidence lies outside 0..1.
            FactConflictError: Another user, agent or channel holds the id.
        """
        ...

    async def query(self, pattern: FactPattern) -> list[Fact]:
        """Return the facts that match a pattern, in its order; by id by default.

        Raises:
            PatternError: Its cursor, a glob or a regular expression is invalid.
        """
        ...

    async def unpin(self, fact_id: str) -> None:
        """Remove a fact; nothing happens when it is not current."""
        ...
