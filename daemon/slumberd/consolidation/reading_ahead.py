"""Read the next batch of a rule while the last one is being written."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Generic, Self, TypeVar

from slumberd.model.firing import Position

Batch = TypeVar("Batch")


class ReadingAhead(Generic[Batch]):
    """Reads a rule's next batch while SQLite writes the last one; ends with its block.

    Reading and resolving need the interpreter; writing hardly does.

    Args:
        read: Reads the batch above a position.
    """

    def __init__(self, read: Callable[[Position], Awaitable[Batch]]) -> None:
        self._read = read
        self._group = asyncio.TaskGroup()
        self._next: asyncio.Task[Batch | Exception] | None = None
        self._is_open = False

    async def read(self, after: Position) -> Batch:
        """Return the batch above a position, which may have been read already."""
        if self._next is None:
            return await self._read(after)
        task, self._next = self._next, None
        batch = await task
        if isinstance(batch, Exception):
            raise batch
        return batch

    def follow(self, after: Position) -> Callable[[], None]:
        """Return a thread-safe function that starts reading the batch above a position."""
        loop = asyncio.get_running_loop()

        def begin_soon() -> None:
            """Start the read in the loop's next turn."""
            loop.call_soon_threadsafe(self._begin, after)

        return begin_soon

    def _begin(self, after: Position) -> None:
        # A commit that was cancelled may decide after the block has ended.
        if self._is_open:
            self._next = self._group.create_task(self._read_or_error(after))

    async def _read_or_error(self, after: Position) -> Batch | Exception:
        try:
            return await self._read(after)
        except Exception as error:  # noqa: BLE001 # `read` raises it; the group would end the commit
            return error

    async def __aenter__(self) -> Self:
        await self._group.__aenter__()
        self._is_open = True
        return self

    async def __aexit__(self, *_: object) -> None:
        self._is_open = False
        if self._next is not None:
            self._next.cancel()
        # The group does not get the block's error: it would wrap it.
        await self._group.__aexit__(None, None, None)
