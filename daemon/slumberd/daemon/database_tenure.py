"""Hold the right to write a shard of a database, and wait for it as a standby.

Also what this process reports to the other hosts of the database.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import socket
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from contextvars import Context
from importlib.metadata import version
from typing import Any, Self

import structlog

from slumberd.clock import Clock
from slumberd.logs.lines import timestamp
from slumberd.model.errors import (
    DatabaseHeldError,
    DatabaseUnreachableError,
    LeaseLostError,
    StoreError,
)
from slumberd.storage.facts.apply import FactTransactions
from slumberd.storage.postgres.connection import where
from slumberd.storage.postgres.lease import HostTable, Leases
from slumberd.storage.postgres.shard_map import Shard

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


class LeaseRenewal:
    """Renews the leases of a process on one server together.

    Args:
        leases: Renews them.
    """

    def __init__(self, leases: Leases) -> None:
        self._leases = leases
        self._where = where(leases.address)
        self._held: dict[Shard, asyncio.Future[None]] = {}
        self._renewing: asyncio.Task[None] | None = None

    def add(self, shard: Shard) -> asyncio.Future[None]:
        """Renew a lease from now on.

        Returns:
            What fails with a `LeaseLostError` once another process has the lease.
        """
        loop = asyncio.get_running_loop()
        lost = self._held[shard] = loop.create_future()
        if self._renewing is None or self._renewing.done():
            # Kept in an attribute, and cancelled by `remove`. No log line of it names one shard.
            self._renewing = loop.create_task(self._keep_renewing(), context=Context())
        return lost

    async def remove(self, shard: Shard) -> bool:
        """Renew a lease no more; return whether none is left."""
        self._held.pop(shard, None)
        if self._held:
            return False
        renewing, self._renewing = self._renewing, None
        if renewing is not None:
            renewing.cancel()
            with suppress(asyncio.CancelledError):
                await renewing
        return not self._held

    async def _keep_renewing(self) -> None:
        """Renew the leases; a server that does not answer keeps no one from renewing later.

        Nobody else can take a lease meanwhile, and nothing can be written.
        """
        seconds = self._leases.seconds / _PER_LEASE
        is_failing = False
        while True:
            try:
                await self._renew([*self._held])
                is_failing = False
            except StoreError as error:
                if not is_failing:
                    _warn_of_unrenewed(self._where, error)
                is_failing = True
            except Exception as error:  # noqa: BLE001 # each holder gets it
                while self._held:
                    self._held.popitem()[1].set_exception(error)
                return
            await asyncio.sleep(min(LOOK_SECONDS, seconds) if is_failing else seconds)

    async def _renew(self, shards: Sequence[Shard]) -> None:
        """Renew the leases of shards in one statement; if that fails, each by itself.

        Raises:
            StoreError: Some of them could not be renewed.
        """
        try:
            lost = await self._leases.renew(shards)
        except StoreError as error:
            if len(shards) == 1 or isinstance(error, DatabaseUnreachableError):
                raise
            await self._renew_each(shards)
            return
        for shard, holder in lost.items():
            if (future := self._held.pop(shard, None)) is not None:
                future.set_exception(LeaseLostError(self._where, holder))

    async def _renew_each(self, shards: Sequence[Shard]) -> None:
        """Renew each lease by itself, since one of them cannot be renewed.

        Raises:
            StoreError: Why the last one of those could not be renewed.
        """
        problem: StoreError | None = None
        for shard in shards:
            try:
                await self._renew([shard])
            except StoreError as error:
                problem = error
        if problem is not None:
            raise problem


_renewals: dict[tuple[str, str], LeaseRenewal] = {}
"""What renews the leases of this process, by the address of the server and the name."""


def _warn_of_unrenewed(place: str, error: StoreError) -> None:
    _log.warning("lease.not_renewed", database=place, message=str(error))


class DatabaseTenure:
    """The lease of a shard, renewed while it is held; implements `Tenure`.

    Args:
        map_address: The address of the database that has the table of hosts.
        clock: The time, to compare it with that of the database.
        seconds: How long the lease lasts without a renewal.
        is_daemon: Whether this process is a daemon, which answers requests.
        name: The name of a process that holds several shards, and tells of itself; None for one
            that holds only this shard.

    Attributes:
        name: The name under which the lease is held, which no other process ever has.
    """

    def __init__(  # one for each part of a lease
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
        self._shard = shard
        self._leases = Leases(shard.address, self.name, seconds=seconds, is_daemon=is_daemon)
        self._hosts = HostTable(map_address, self.name)
        self._where = shard.where
        self._reports = HostReports(self._hosts, clock)
        self._lost: asyncio.Future[None] | None = None
        self._telling: asyncio.Task[None] | None = None

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
        """Take the right as soon as it is free; see `Tenure.wait`.

        While the database does not answer, `still_waiting` is not called.

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
        holder = await self._leases.claim(self._shard)
        if holder is not None:
            begin_waiting(holder.name)
        is_failing = False
        while holder is not None:
            still_waiting(holder.name)
            await self._reports.tell("standby")
            await asyncio.sleep(min(LOOK_SECONDS, self._leases.seconds / _PER_LEASE))
            try:
                holder = await self._leases.claim(self._shard)
                is_failing = False
            except StoreError as error:  # the server may be restarting
                if not is_failing:
                    _warn_of_unrenewed(self._where, error)
                is_failing = True

    async def __aenter__(self) -> Self:
        """Take the right, unless `wait` has taken it; renew it from now on.

        Raises:
            DatabaseHeldError: Another slumberd holds the shard.
            StoreError: The database cannot be used.
        """
        if self._lost is None:
            try:
                await self._claim()
            except BaseException:
                await self._close()
                raise
            self._begin_renewing()
        return self

    async def _claim(self) -> None:
        if (holder := await self._leases.claim(self._shard)) is not None:
            raise DatabaseHeldError(self._where, holder.name)

    async def __aexit__(self, *_: object) -> None:
        """Give the right back."""
        await self._leave()

    async def hold(self, stop: asyncio.Event) -> None:
        """Return when `stop` is set; the right is renewed in any case until it is given back.

        Raises:
            LeaseLostError: Another slumberd has the right.
        """
        if self._lost is not None:
            await _finish_before(stop, asyncio.shield(self._lost))

    async def fence(self, transactions: FactTransactions) -> None:
        """Begin a new epoch, in which earlier writers of the facts can commit no more."""
        await transactions.take_over()

    def _begin_renewing(self) -> None:
        self._lost = _renewals.setdefault(self._key, LeaseRenewal(self._leases)).add(self._shard)
        self._lost.add_done_callback(self._log_loss)
        if self._tells_host:
            # Kept in an attribute, and cancelled by `_leave`.
            self._telling = asyncio.get_running_loop().create_task(self._keep_telling())

    async def _keep_telling(self) -> None:
        """Tell the other hosts of this process as often as the lease is renewed."""
        while True:
            with suppress(StoreError):
                await self._reports.tell("active")
                await self._reports.compare_rules()
            await asyncio.sleep(self._leases.seconds / _PER_LEASE)

    def _log_loss(self, lost: asyncio.Future[None]) -> None:
        if not lost.cancelled() and isinstance(error := lost.exception(), LeaseLostError):
            _log.warning("lease.lost", database=self._where, holder=error.holder)

    async def _leave(self) -> None:
        """Give back what this process has, and close the connection."""
        if self._lost is not None:
            self._lost.cancel()
            self._lost = None
            renewal = _renewals.get(self._key)  # none when all its shards were lost
            if renewal is not None and await renewal.remove(self._shard):
                _renewals.pop(self._key, None)
        if self._telling is not None:
            self._telling.cancel()
            with suppress(asyncio.CancelledError):
                await self._telling
            self._telling = None
        with suppress(StoreError, TimeoutError):
            async with asyncio.timeout(_LEAVE_SECONDS):
                await self._leases.release(self._shard)
                if self._tells_host:
                    await self._hosts.forget_host()
        await self._close()

    async def _close(self) -> None:
        await self._leases.close()
        await self._hosts.close()

    @property
    def _key(self) -> tuple[str, str]:
        return self._shard.address, self.name


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


class HostReports:
    """Writes the state of this process into the table of hosts, and compares rules.

    Args:
        clock: The time, to compare it with that of the database.
    """

    def __init__(self, table: HostTable, clock: Clock) -> None:
        self._table = table
        self._clock = clock
        self._started_at = timestamp(clock.now())
        self._details: Callable[[], Mapping[str, Any]] = dict
        self._notice_rules: Callable[[int], None] = lambda _: None
        self._differing: dict[str, str] = {}
        self._warned: dict[str, str] = {}

    def describe(
        self,
        details: Callable[[], Mapping[str, Any]],
        notice_rules: Callable[[int], None] = lambda _: None,
    ) -> None:
        """Show details of this process from now on.

        Args:
            notice_rules: Called at each `tell` with the newest version of the published rules.
        """
        self._details = details
        self._notice_rules = notice_rules

    async def tell(self, role: str) -> None:
        """Record that this process is alive, if the server answers.

        Args:
            role: ``active`` or ``standby``.
        """
        with suppress(StoreError):
            offset = self._clock.now().timestamp() - await self._table.database_time()
            state = {
                "role": role,
                "version": version("slumberd"),
                "clock_offset_seconds": round(offset, 3),
                "started_at": self._started_at,
                **self._details(),
            }
            self._notice_rules(await self._table.tell_host(state))

    async def compare_rules(self) -> None:
        """Warn once of other hosts that have other rules, and that had them at the last call, too.

        After a publication, each host loads the rules some seconds earlier or later.

        Raises:
            StoreError: The table cannot be read.
        """
        own = self._details().get("rules_hash", "")
        differing = {
            name: other for name, other in await self._table.rules_of_others() if other != own
        }
        lasting = {
            name: other for name, other in differing.items() if self._differing.get(name) == other
        }
        if lasting and lasting != self._warned:
            hosts = [f"{name} has {other}" for name, other in sorted(lasting.items())]
            _log.warning("hosts.rules_differ", rules_hash=own, hosts=hosts)
        self._differing, self._warned = differing, lasting
