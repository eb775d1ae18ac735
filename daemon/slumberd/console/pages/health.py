"""The page of the daemon's health: its rules, its stores and its hosts."""

from __future__ import annotations

from slumberd.console.visit import Shown, View, Visit
from slumberd.operations.caller import Right


async def show(visit: Visit) -> Shown:
    """Show the figures of the heartbeat as of now."""
    visit.caller.require(Right.OPERATE)
    values = {
        "health": await visit.served.health(),
        "status": await visit.ask("status"),
        "outdated": await visit.ask("outdated"),
    }
    return View("health.html", "Health", values)
