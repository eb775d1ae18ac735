"""Tell the other hosts of a database about this process."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from importlib.metadata import version
from typing import Any

import structlog

from slumberd.clock import Clock
from slumberd.errors import StoreError
from slumberd.observability.line_format import timestamp
from slumberd.storage.postgres.lease import HostTable

_log = structlog.get_logger("slumberd")


class HostReports:
    """Writes the state of this process into the table of hosts, and compares rules.

    Args:
        table: The table of hosts.
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
            details: Returns them.
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
