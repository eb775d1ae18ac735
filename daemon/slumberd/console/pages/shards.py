"""The page of all shards of a database: a row of counts for each."""

from __future__ import annotations

from slumberd.console.visit import Shown, View, Visit
from slumberd.operations.caller import Right


async def show(visit: Visit) -> Shown:
    """Show what each shard holds, and what waits there."""
    visit.caller.require(Right.OPERATE)
    counted = await visit.ask("shards")
    return View("shards.html", "Shards", {"counted": counted["shards"]})
