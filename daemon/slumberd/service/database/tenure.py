"""Hold the right to write a shard of a database, and wait for it as a standby."""

from __future__ import annotations

import asyncio
import os
import secrets
import socket
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, Self

import structlog

from slumberd.clock import Clock
from slumberd.errors import DatabaseHeldError, LeaseLostError, StoreError
from slumberd.service.database.host_reports import HostReports
from slumberd.storage.postgres.hosts.lease import HostTable, Lease
from slumberd.storage.postgres.shard_map import Shard
from slumberd.storage.protocols import Epoch

_log = structlog.get_logger("slumberd")

LOOK_SECONDS = 1.0
"""How often a standby looks whether the lease is free."""

_PER_LEASE = 3
"""How often a lease is renewed within its time."""

_LEAVE_SECONDS = 2.0
"""How long a process that ends tries to give the lease back; without that the lease runs out."""


def process_name() -> str:
    """Return the host and the process, for people."""
    return f"{socket.gethostname()}/{os.getpid()}"


def unique_name() -> str:
    """Return the host, the process and a random part: containers share the first two."""
    return f"{process_name()}/{secrets.token_hex(3)}"


class DatabaseTenure:
    """The lease of a shard, renewed while it is held; implements `Tenure`.

    Args:
        shard: The shard.
        map_address: The address of the database that has the table of hosts.
        clock: The time, to compare it with that of the database.
        seconds: How long the lease lasts without a renewal.
        is_daemon: Whether this process is a daemon, which answers requests.
        name: The name of a process that holds several shards, and tells of itself; None for one
            that holds only this shard.

    Attributes:
        name: The name under which the lease is held, which no other process ever has.
    """

    def __init__(  # noqa: PLR0913 # one for each part of a lease
        self,
        shard: Shard,
        map_address: str,
        clock: Clock,
        *,
        seconds: float,
        is_daemon: bool,
        name: str | None = None,
    ) -> None:
        self.name = name or unique_name()
        self._tells_host = is_daemon and name is None
        self._lease = Lease(shard, self.name, seconds=seconds, is_daemon=is_daemon)
        self._hosts = HostTable(map_address, self.name)
        self._where = shard.where
        self._reports = HostReports(self._hosts, clock)
        self._renewing: asyncio.Task[None] | None = None

    def describe(
        self, details: Callable[[], dict[str, Any]], notice_rules: Callable[[int], None]
    ) -> None:
        """Show details of this process in the table of hosts."""
        self._reports.describe(details, notice_rules)

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
            still_waiting: Called with the name of the holder, at least every second while the
                database answers.

        Returns:
            Whether the right is taken; False when `stop` was set first.

        Raises:
            StoreError: The database cannot be used at the first attempt.
        """
        if await _finish_before(stop, self._stand_by(begin_waiting, still_waiting)):
            self._begin_renewing()
            return True
        await self._leave()
        return False

    async def _stand_by(
        self, begin_waiting: Callable[[str], None], still_waiting: Callable[[str], None]
    ) -> None:
        """Return once the lease is claimed."""
        holder = await self._lease.claim()
        if holder is not None:
            begin_waiting(holder.name)
        is_failing = False
        while holder is not None:
            still_waiting(holder.name)
            await self._reports.tell("standby")
            await asyncio.sleep(min(LOOK_SECONDS, self._lease.seconds / _PER_LEASE))
            try:
                holder = await self._lease.claim()
                is_failing = False
            except StoreError as error:  # the server may be restarting
                self._warn(error, is_new=not is_failing)
                is_failing = True

    async def __aenter__(self) -> Self:
        """Take the right, unless `wait` has taken it; renew it from now on.

        Raises:
            DatabaseHeldError: Another slumberd holds the shard.
            StoreError: The database cannot be used.
        """
        if self._renewing is None:
            try:
                await self._claim()
            except BaseException:
                await self._lease.close()
                await self._hosts.close()
                raise
            self._begin_renewing()
        return self

    async def _claim(self) -> None:
        if (holder := await self._lease.claim()) is not None:
            raise DatabaseHeldError(self._where, holder.name)

    async def __aexit__(self, *_: object) -> None:
        """Give the right back."""
        await self._leave()

    async def hold(self, stop: asyncio.Event) -> None:
        """Return when `stop` is set; the right is renewed in any case until it is given back.

        Raises:
            LeaseLostError: Another slumberd has the right.
        """
        if self._renewing is not None:
            await _finish_before(stop, asyncio.shield(self._renewing))

    async def fence(self, epoch: Epoch) -> None:
        """Begin a new epoch, in which earlier writers of the facts can commit no more."""
        await epoch.take_over()

    def _begin_renewing(self) -> None:
        # Kept in an attribute, and cancelled by `_leave`.
        self._renewing = asyncio.get_running_loop().create_task(self._keep_renewing())

    async def _keep_renewing(self) -> None:
        """Renew the lease until another process has it.

        A server that does not answer keeps no one from renewing later: nobody else can take the
        lease meanwhile, and nothing can be written.

        Raises:
            LeaseLostError: Another process has it.
        """
        is_failing = False
        while True:
            try:
                await self._renew()
                is_failing = False
            except LeaseLostError:
                raise
            except StoreError as error:
                self._warn(error, is_new=not is_failing)
                is_failing = True
            await asyncio.sleep(
                min(LOOK_SECONDS, self._lease.seconds / _PER_LEASE)
                if is_failing
                else self._lease.seconds / _PER_LEASE
            )

    async def _renew(self) -> None:
        if not await self._lease.renew():
            holder = await self._lease.holder()
            name = "" if holder is None else holder.name
            _log.warning("lease.lost", database=self._where, holder=name)
            raise LeaseLostError(self._where, name)
        if self._tells_host:
            await self._reports.tell("active")
            await self._reports.compare_rules()

    def _warn(self, error: StoreError, *, is_new: bool) -> None:
        if is_new:
            _log.warning("lease.not_renewed", database=self._where, message=str(error))

    async def _leave(self) -> None:
        """Give back what this process has, and close the connection."""
        if self._renewing is not None:
            self._renewing.cancel()
            with suppress(asyncio.CancelledError, LeaseLostError):
                await self._renewing
            self._renewing = None
        with suppress(StoreError, TimeoutError):
            async with asyncio.timeout(_LEAVE_SECONDS):
                await self._lease.release()
                if self._tells_host:
                    await self._hosts.forget_host()
        await self._lease.close()
        await self._hosts.close()


async def _finish_before(
    stop: asyncio.Event, work: Coroutine[Any, Any, None] | asyncio.Future[None]
) -> bool:
    """Run `work` until it ends or `stop` is set; return whether it ended."""
    working, stopping = asyncio.ensure_future(work), asyncio.ensure_future(stop.wait())
    try:
        await asyncio.wait((working, stopping), return_when=asyncio.FIRST_COMPLETED)
        if working.done():
            working.result()
            return True
        return False
    finally:
        for task in (working, stopping):
            task.cancel()
            if not task.done():
                with suppress(asyncio.CancelledError, StoreError):
                    await task
