"""Hold the right to write a shard of a database, and wait for it as a standby."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable
from contextlib import suppress
from importlib.metadata import version
from typing import Self

import structlog

from slumberd.clock import Clock, set_within
from slumberd.errors import DatabaseHeldError, StoreError
from slumberd.storage.postgres.lease import Lease
from slumberd.storage.protocols import Epoch

_log = structlog.get_logger("slumberd")

LOOK_SECONDS = 1.0
"""How often a standby looks whether the lease is free."""

_PER_LEASE = 3
"""How often a lease is renewed within its time."""


def process_name() -> str:
    """Return the name of this process in a database, which no other process has."""
    return f"{socket.gethostname()}/{os.getpid()}"


class DatabaseTenure:
    """The lease of a shard, renewed while it is held; implements `Tenure`.

    Args:
        address: The address of the database.
        shard: The shard.
        where: The database in words.
        clock: The time, to compare it with that of the database.
        seconds: How long the lease lasts without a renewal.
        is_daemon: Whether this process is a daemon, which answers requests.
    """

    def __init__(
        self,
        address: str,
        shard: int,
        where: str,
        clock: Clock,
        *,
        seconds: float,
        is_daemon: bool,
    ) -> None:
        self._lease = Lease(address, shard, process_name(), seconds=seconds, is_daemon=is_daemon)
        self._where = where
        self._clock = clock
        self._is_daemon = is_daemon
        self._is_held = False
        self._renewing: asyncio.Task[None] | None = None
        self._details: Callable[[], dict[str, str]] = dict

    def describe(self, details: Callable[[], dict[str, str]]) -> None:
        """Show details of this process in the table of hosts."""
        self._details = details

    async def wait(
        self,
        stop: asyncio.Event,
        begin_waiting: Callable[[str], None],
        still_waiting: Callable[[str], None],
    ) -> bool:
        """Take the right as soon as it is free.

        Args:
            stop: Ends the waiting.
            begin_waiting: Called once with the name of the holder, if the right is not free.
            still_waiting: Called with the name of the holder, at least every second.

        Returns:
            Whether the right is taken; False when `stop` was set first.

        Raises:
            StoreError: The database cannot be used at the first attempt.
        """
        holder = await self._lease.claim()
        if holder is not None:
            begin_waiting(holder.name)
        while holder is not None:
            still_waiting(holder.name)
            await self._tell_host("standby")
            if await set_within(stop, min(LOOK_SECONDS, self._lease.seconds / _PER_LEASE)):
                await self._leave()
                return False
            with suppress(StoreError):  # the server may be restarting
                holder = await self._lease.claim()
        self._is_held = True
        return True

    async def __aenter__(self) -> Self:
        """Take the right, unless `wait` has taken it; renew it from now on.

        Raises:
            DatabaseHeldError: Another slumberd holds the shard.
            StoreError: The database cannot be used.
        """
        try:
            await self._claim()
        except BaseException:
            await self._lease.close()
            raise
        # Kept in an attribute, and cancelled by `__aexit__`.
        self._renewing = asyncio.get_running_loop().create_task(self._keep_renewing())
        return self

    async def _claim(self) -> None:
        if not self._is_held and (holder := await self._lease.claim()) is not None:
            raise DatabaseHeldError(self._where, holder.name)
        self._is_held = True

    async def __aexit__(self, *_: object) -> None:
        """Give the right back."""
        if self._renewing is not None:
            self._renewing.cancel()
            with suppress(asyncio.CancelledError):
                await self._renewing
        with suppress(StoreError):  # without a release the lease ends by itself
            await self._lease.release()
        await self._leave()
        self._is_held = False

    async def fence(self, epoch: Epoch) -> None:
        """Begin a new epoch, in which earlier writers of the facts can commit no more."""
        await epoch.take_over()

    async def _keep_renewing(self) -> None:
        is_lost = False
        while True:
            try:
                is_held = await self._lease.renew()
                if not is_held and not is_lost:
                    # The epoch decides: this daemon commits nothing once another has taken over.
                    _log.warning("lease.lost", database=self._where)
                is_lost = not is_held
                if self._is_daemon:
                    await self._tell_host("active")
            except StoreError as error:
                _log.warning("lease.not_renewed", database=self._where, message=str(error))
            await asyncio.sleep(self._lease.seconds / _PER_LEASE)

    async def _tell_host(self, role: str) -> None:
        with suppress(StoreError):
            offset = self._clock.now().timestamp() - await self._lease.database_time()
            state = {
                "role": role,
                "version": version("slumberd"),
                "clock_offset_seconds": round(offset, 3),
                **self._details(),
            }
            await self._lease.tell_host(state)

    async def _leave(self) -> None:
        with suppress(StoreError):
            if self._is_daemon:
                await self._lease.forget_host()
        await self._lease.close()
