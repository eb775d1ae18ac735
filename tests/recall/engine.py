"""What a measurement needs of an engine, baseline or not."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import NamedTuple, Protocol

from slumberd.model.episode import Episode


class Prompt(NamedTuple):
    """A text for a prompt, and the ids of the episodes in it."""

    text: str
    ids: list[str]


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
        """``bm25``, ``lexical`` or ``vectors``."""
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


Opener = Callable[[], AbstractAsyncContextManager[Engine]]
"""Opens an empty engine. Its stores are gone when its block ends."""
