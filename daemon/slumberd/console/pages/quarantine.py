"""The page of the quarantine."""

from __future__ import annotations

from slumberd.console.links import link
from slumberd.console.visit import Shown, View, Visit
from slumberd.operations.caller import Right

_LISTED = 100


async def show(visit: Visit) -> Shown:
    """Show the entries of the quarantine: of all rules, of one, or of an episode and a rule."""
    visit.caller.require(Right.OPERATE)
    rule, episode, cursor = (visit.fields.get(name) for name in ("rule", "episode", "cursor"))
    page = await visit.ask(
        "quarantined",
        rule=rule,
        episodes=episode and [episode],
        cursor=cursor,
        limit=_LISTED,
    )
    following = page["next"]
    values = {
        "rule": rule,
        "episode": episode,
        "entries": page["entries"],
        "totals": page["totals"],
        "dropped": visit.number("dropped", 0),
        "next": following and link("quarantine", rule=rule, episode=episode, cursor=following),
    }
    return View("quarantine.html", "Quarantine", values)
