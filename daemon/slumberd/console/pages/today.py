"""The page of what was learned, changed and forgotten, and of what waits for a person."""

from __future__ import annotations

from typing import Any

from slumberd.console.visit import Shown, View, Visit
from slumberd.operations.caller import Right

_MOST_DAYS = 31


async def show(visit: Visit) -> Shown:
    """Show the report of the last day, or of more days."""
    days = max(1, min(visit.number("days", 1), _MOST_DAYS))
    user = visit.fields.get("user")
    report = await visit.ask("report", days=days, user=user)
    values: dict[str, Any] = {
        "days": days,
        "user": user,
        "report": report,
        "held": [],
        "health": None,
    }
    if visit.may(Right.OPERATE):
        values["held"] = (await visit.ask("held"))["held"]
        values["health"] = await visit.served.health()
    return View("today.html", "Today" if days == 1 else f"The last {days} days", values)
