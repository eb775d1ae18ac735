"""The protocols of the specified stores, of watches, and of published rules."""

from __future__ import annotations

from typing import Protocol, Self, runtime_checkable

from slumberd.model.delta import AnyDelta
from slumberd.model.episode import Episode
from slumberd.model.fact import Fact, FactPattern
from slumberd.model.rule import ConsolidationRule, PublishedRules, RulesToPublish
from slumberd.model.store_status import MigrationPlan, StoreHealth


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

        Nothing is written of an episode that was erased by its id.

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


class Watch(Protocol):
    """Calls back once at the start, and soon after any process has committed episodes.

    It does so while its ``async with`` block runs. The callback may come from another thread.
    """

    async def __aenter__(self) -> Self:
        """Start to watch."""
        ...

    async def __aexit__(self, *_: object) -> None:
        """Stop to watch; no call follows."""
        ...


class RuleSets(Protocol):
    """The published versions of the rules; the newest one is in force.

    Each method raises StoreError when the database cannot be read or written.

    Attributes:
        where: The database in words.
    """

    where: str

    def read(self, version: int | None = None) -> PublishedRules | None:
        """Return a version, None for the newest; None when there is no such version."""
        ...

    def newest(self, limit: int) -> list[PublishedRules]:
        """Return at most so many versions, newest first."""
        ...

    def publish(
        self, rules: RulesToPublish, *, expected: int | None = None
    ) -> tuple[PublishedRules, bool]:
        """Put rules in force for all hosts, unless their files are those in force already.

        Args:
            expected: The version that must be the newest, 0 for none at all; None accepts any.

        Returns:
            The version in force now, and whether it is new.

        Raises:
            OtherRulesPublishedError: Another version is the newest; nothing was published.
        """
        ...
