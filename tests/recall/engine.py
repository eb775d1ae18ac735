"""What a measurement needs of an engine, baseline or not."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import NamedTuple, Protocol

from slumberd.model.episode import Episode
from slumberd.operations.facts import KnownFact


class Prompt(NamedTuple):
    """A text for a prompt.

    Attributes:
        text: The text.
        ids: The episodes that it quotes, in its order.
        sources: The episodes that its facts come from.
        marked: The quoted episodes of which it says that their claims are replaced.
    """

    text: str
    ids: list[str]
    sources: frozenset[str] = frozenset()
    marked: frozenset[str] = frozenset()

    @property
    def episodes(self) -> frozenset[str]:
        """The episodes that it quotes, or whose facts it holds."""
        return self.sources.union(self.ids)


class Line(NamedTuple):
    """A hit as a line of a prompt.

    Attributes:
        id: The episode.
        tokens: How many tokens the line has.
        marked: Whether the hit says that claims of the episode are replaced.
    """

    id: str
    tokens: int
    marked: bool = False


class Ledger(NamedTuple):
    """What the ledger of one user says.

    Attributes:
        facts: The current facts.
        replaced: The episodes whose facts later rows have all removed, and whose values no
            current fact has.
    """

    facts: list[KnownFact]
    replaced: frozenset[str]


class Named(NamedTuple):
    """Something that is found by its names.

    Attributes:
        id: Its id.
        user: Whose it is.
        scope: Where it holds.
        names: Its names; the first is the main one.
    """

    id: str
    user: str
    scope: str
    names: tuple[str, ...]


class Engine(Protocol):
    """A memory of many users that can be searched."""

    @property
    def name(self) -> str:
        """Its column in the table, one of `figures.ENGINES`."""
        ...

    async def put(self, episodes: Sequence[Episode]) -> None:
        """Store episodes, each in its own scope."""
        ...

    async def forget(self, user: str, session: str) -> None:
        """Erase a session of a user."""
        ...

    async def search(self, user: str, query: str, limit: int) -> list[str]:
        """Return ids of the user's episodes, best first."""
        ...

    async def declare(self, named: Sequence[Named]) -> None:
        """Store what is found by its names."""
        ...

    async def search_names(self, user: str, scope: str, query: str) -> list[str]:
        """Return the ids of all that a query names, in one scope of a user."""
        ...

    async def context(self, user: str, question: str, budget: int) -> Prompt:
        """Return what answers a question, within a budget of tokens."""
        ...

    async def ranked(self, user: str, question: str, limit: int) -> list[Line]:
        """Return the hits of a search, best first, as lines of a prompt."""
        ...

    async def ledger(self, user: str) -> Ledger | None:
        """Return what the ledger says of a user; None for an engine without a ledger."""
        ...


Opener = Callable[[], AbstractAsyncContextManager[Engine]]
"""Opens an empty engine. Its stores are gone when its block ends."""
