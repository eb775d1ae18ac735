"""The page of the daemon's health: what needs a person, and the figures behind it."""

from __future__ import annotations

from slumberd.console.advice import advise
from slumberd.console.visit import Shown, View, Visit
from slumberd.errors import ConfigurationError
from slumberd.observability.prometheus import ALIVE_SECONDS
from slumberd.operations.caller import Right
from slumberd.operations.handlers import Answer


async def show(visit: Visit) -> Shown:
    """Show the figures of the heartbeat as of now, and what to do about them."""
    visit.caller.require(Right.OPERATE)
    health, status = await visit.served.health(), await visit.ask("status")
    problem = ""
    outdated: Answer = {"reload": [], "restart": []}
    try:
        outdated = await visit.ask("outdated")
    except ConfigurationError as error:
        problem = str(error)
    settings = visit.served.settings
    values = {
        "health": health,
        "status": status,
        "advice": advise(health, status, outdated, settings.postgres.lease),
        "unreadable": problem,
        "failures": {each["rule_id"]: each for each in status["failing"]},
        "sink": settings.provenance.sink,
        "alive_seconds": ALIVE_SECONDS,
    }
    return View("health.html", "Health", values)
