"""The protocols of memory stores and fact stores: those of the specification, and small ones."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Protocol, Self, runtime_checkable

from slumberd.model.delta import AnyDelta
from slumberd.model.episode import Episode
from slumberd.model.fact import Fact, FactPattern
from slumberd.model.health import MigrationPlan, StoreHealth
from slumberd.model.rule import ConsolidationRule, PublishedRules, RulesToPublish


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


class Epoch(Protocol):
    """Numbers the writers of a store, so that only the latest can commit."""

    async def take_over(self) -> int:
        """Become the only writer: earlier writers can commit no more. Return the new epoch."""
        ...


class RuleSets(Protocol):
    """The published versions of the rules; the newest one is in force.

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


class Tenure(Protocol):
    """The right to write a state: while it is entered, no other slumberd may enter it.

    Attributes:
        name: Under which name this process has the right, for other processes.
    """

    name: str

    def describe(
        self, details: Callable[[], dict[str, Any]], notice_rules: Callable[[int], None]
    ) -> None:
        """Show details of this process to those who ask who has the right, or waits for it.

        Args:
            details: Returns them.
            notice_rules: Called every few seconds with the newest version of the published rules.
        """
        ...

    async def wait(
        self,
        stop: asyncio.Event,
        begin_waiting: Callable[[str], None],
        still_waiting: Callable[[str], None],
    ) -> bool:
        """Take the right as soon as it is free, where a process may wait for it.

        Args:
            stop: Ends the waiting.
            begin_waiting: Called once with the name of the holder, if the right is not free.
            still_waiting: Called with the name of the holder, at least every second.

        Returns:
            Whether the process may go on; False when `stop` was set first.
        """
        ...

    async def __aenter__(self) -> Self:
        """Take the right, and finish what its last holder left half done.

        Raises:
            StateDirectoryLockedError: Another slumberd has the right.
            StoreError: The state cannot be used.
        """
        ...

    async def __aexit__(self, *_: object) -> None:
        """Give the right back."""
        ...

    async def hold(self, stop: asyncio.Event) -> None:
        """Return when `stop` is set, or at once when nobody can take the right away.

        Raises:
            LeaseLostError: Another slumberd has the right.
        """
        ...

    async def fence(self, epoch: Epoch) -> None:
        """Shut out every earlier writer of an open store, even one that is only suspended.

        Raises:
            StoreError: The store cannot be written.
        """
        ...
