"""The page of the users who have facts."""

from __future__ import annotations

from slumberd.console.links import link
from slumberd.console.visit import Redirect, Shown, View, Visit
from slumberd.operations.caller import Right

_LIMIT = 100


async def show(visit: Visit) -> Shown:
    """Show a page of users; a person of one user sees that user's own page instead.

    Only operators see which users there are; another person may name one.
    """
    if visit.caller.user is not None:
        return Redirect(link("user"))
    if not visit.may(Right.OPERATE):
        return View("users.html", "Users", {"users": None})
    prefix = visit.fields.get("prefix", "")
    found = await visit.ask("users", prefix=prefix, limit=_LIMIT, cursor=visit.fields.get("cursor"))
    values = {
        "prefix": prefix,
        "users": found["users"],
        "next": found["next"] and link("users", prefix=prefix, cursor=found["next"]),
    }
    return View("users.html", "Users", values)
