"""Wait as a standby until the active daemon of a database ends, and begin its work then."""

from __future__ import annotations

import asyncio

from slumberd.daemon.heartbeat import StandbyHeartbeat
from slumberd.daemon.reload import InForce, Load, load_again
from slumberd.daemon.systemd import Notifier, StartReports


class Standby:
    """What a daemon reports and reads while another daemon holds its database.

    Args:
        in_force: The settings and rules of this daemon.
        load: Reads configuration and rules again.
        notifier: Reports to the service manager.
        heartbeat: Logs and writes metrics while this daemon waits.
    """

    def __init__(
        self, in_force: InForce, load: Load, notifier: Notifier, heartbeat: StandbyHeartbeat
    ) -> None:
        self._in_force = in_force
        self._load = load
        self._notifier = notifier
        self._heartbeat = heartbeat
        self._start_reports = StartReports(notifier.watchdog)
        self._has_waited = False

    def begin(self, holder: str) -> None:
        """Report that this daemon waits until the holder of the database ends."""
        self._has_waited = True
        self._notifier.status(f"standby; {holder} is active")
        self._notifier.ready()

    def go_on(self, holder: str) -> None:
        """Report that this daemon is alive, and read the rules again at a signal."""
        self._heartbeat.beat_if_due(holder)
        self._notifier.watchdog()
        if self._in_force.wanted.is_set():
            load_again(self._in_force, self._load, by=self._in_force.wanted_by)

    async def take_over(self) -> None:
        """Read the rules again, if this daemon has waited: that may have taken weeks."""
        if self._has_waited:
            self._start_reports.begin()
            # In another thread, so that the lease is renewed meanwhile.
            await asyncio.to_thread(load_again, self._in_force, self._load, by="a takeover")

    def end(self) -> None:
        """Leave the reports to the watchdog of the daemon, which serves now."""
        self._start_reports.end()
