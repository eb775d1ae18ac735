"""The page of one episode: what it says, and what each rule did with it."""

from __future__ import annotations

from slumberd.console.visit import Shown, View, Visit
from slumberd.errors import NoInputError
from slumberd.operations.caller import Right

_UNKNOWN = "this scope has no episode with that id"


async def show(visit: Visit) -> Shown:
    """Show an episode, its facts and its firings.

    Raises:
        NoInputError: The scope has no such episode.
    """
    id = visit.need("id")
    scope = {name: visit.fields.get(name) for name in ("user", "agent")}
    found = (await visit.ask("episodes", id=id, **scope))["episodes"]
    if not found:
        raise NoInputError(id, _UNKNOWN)
    explained = await visit.ask("explain", id=id, kind="episode", **scope)
    outcome = await visit.ask("outcome", id=id, **scope)
    values = {
        "episode": found[0],
        "rules": explained["explanation"]["rules"],
        "results": outcome["results"],
        "settled": outcome["settled"],
        "may_operate": visit.may(Right.OPERATE),
    }
    return View("episode.html", "Episode", values)
