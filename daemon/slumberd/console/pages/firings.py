"""The pages of firings: the list, and one of them with what it changed."""

from __future__ import annotations

from typing import Any

from slumberd.console.fact_words import add_words
from slumberd.console.links import link
from slumberd.console.visit import Shown, View, Visit
from slumberd.errors import NoInputError
from slumberd.operations.caller import Right

_FIRINGS = 50
_CHANGES = 100
_FILTERS = ("rule", "run", "since")


async def show_list(visit: Visit) -> Shown:
    """Show firings, newest first."""
    visit.caller.require(Right.OPERATE)
    filters = {name: visit.fields.get(name) for name in _FILTERS}
    page = await visit.ask("firings", **filters, before=visit.fields.get("before"), limit=_FIRINGS)
    following = page["next"]
    values = {
        "filters": {name: value or "" for name, value in filters.items()},
        "firings": page["firings"],
        "next": following and link("firings", **filters, before=following),
    }
    return View("firings.html", "Firings", values)


async def show_one(visit: Visit) -> Shown:
    """Show one firing: who requested it and why, and the changes that it made."""
    visit.caller.require(Right.OPERATE)
    firing_id, after = visit.need("id"), visit.number("after", 0)
    firing = await find_firing(visit, firing_id)
    page = await visit.ask("deltas", firing=firing_id, after=after, limit=_CHANGES)
    values = {
        "firing": firing,
        "changes": await add_words(visit, page["changes"]),
        "after": after,
        "next": link("firing", id=firing_id, after=page["last"]) if page["more"] else None,
    }
    return View("firing.html", f"Firing {firing_id}", values)


async def find_firing(visit: Visit, firing_id: str) -> dict[str, Any]:
    """Return a firing.

    Raises:
        NoInputError: The ledger does not have it.
    """
    found: list[dict[str, Any]] = (await visit.ask("firings", firing=firing_id))["firings"]
    if not found:
        raise NoInputError(firing_id, "the ledger has no firing of that id")
    return found[0]
