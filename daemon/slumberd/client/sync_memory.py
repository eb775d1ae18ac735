"""The memory of one user, for synchronous programs."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterator
from contextlib import AsyncExitStack, contextmanager
from functools import partial, update_wrapper
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, Self, TypeVar

from slumberd.client.memory import Memory
from slumberd.client.portal import Portal

P = ParamSpec("P")
T = TypeVar("T")


def _synchronous(
    method: Callable[Concatenate[Memory, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[SyncMemory, P], T]:
    """Return a method that waits for the result of an asynchronous one."""

    def call(self: SyncMemory, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self._run(partial(method, self._memory, *args, **kwargs))

    update_wrapper(call, method)
    return call


class SyncMemory:
    """The memory of one user and one agent; its methods are those of `Memory`, without ``await``.

    Any thread may call them. They run in one event loop, in a thread of its own.
    """

    def __init__(self, memory: Memory, portal: Portal) -> None:
        self._memory = memory
        self._portal = portal

    @classmethod
    @contextmanager
    def open(
        cls,
        where: str | Path,
        *,
        user: str | None = None,
        agent: str = "default",
        session: str = "default",
        token: str | None = None,
    ) -> Iterator[Self]:
        """Open the memory of a user, as `Memory.open` does."""
        portal, stack = Portal(str(where)), AsyncExitStack()
        opened = Memory.open(where, user=user, agent=agent, session=session, token=token)
        try:
            memory = portal.call(partial(stack.enter_async_context, opened))
            yield cls(memory, portal)
        finally:
            portal.close(stack.aclose)

    def for_user(self, user: str, *, agent: str | None = None, session: str | None = None) -> Self:
        """Return the memory of another user, as `Memory.for_user` does."""
        memory = self._memory.for_user(user, agent=agent, session=session)
        return type(self)(memory, self._portal)

    def _run(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        return self._portal.call(work)

    remember = _synchronous(Memory.remember)
    put_many = _synchronous(Memory.put_many)
    recall = _synchronous(Memory.recall)
    context = _synchronous(Memory.context)
    episodes = _synchronous(Memory.episodes)
    facts = _synchronous(Memory.facts)
    correct = _synchronous(Memory.correct)
    forget = _synchronous(Memory.forget)
    explain = _synchronous(Memory.explain)
    wait_for = _synchronous(Memory.wait_for)
