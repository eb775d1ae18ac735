"""The page of the quarantine."""

from __future__ import annotations

from slumberd.console.links import link
from slumberd.console.visit import Shown, View, Visit
from slumberd.operations.caller import Right

_LISTED = 100


async def show(visit: Visit) -> Shown:
    """Show the entries of the quarantine, of all rules or of one."""
    visit.caller.require(Right.OPERATE)
    rule, cursor = visit.fields.get("rule"), visit.fields.get("cursor")
    page = await visit.ask("quarantined", rule=rule, cursor=cursor, limit=_LISTED)
    following = page["next"]
    values = {
        "rule": rule,
        "entries": page["entries"],
        "totals": page["totals"],
        "dropped": visit.number("dropped", 0),
        "next": following and link("quarantine", rule=rule, cursor=following),
    }
    return View("quarantine.html", "Quarantine", values)
