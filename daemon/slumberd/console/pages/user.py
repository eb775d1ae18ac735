"""The page of one user: the facts now, or as of any instant of either clock."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from slumberd.console.links import link
from slumberd.console.rendering import show_plain
from slumberd.console.time_range import TimeRange, instant_at, read_instant, write_instant
from slumberd.console.visit import Redirect, Shown, View, Visit
from slumberd.errors import UsageError

_FACTS = 50
_EPISODES = 10
_FIRST_ROWS = 200
_SCOPE = ("user", "agent")
_FILTERS = (*_SCOPE, "subject", "predicate")
_CLOCKS = ("valid_at", "believed_at")


async def show(visit: Visit) -> Shown:
    """Show the facts of a user; the sliders lead to the page of their instants."""
    if visit.caller.user is None and "user" not in visit.fields:
        return Redirect(link("users"))
    if "sliders" in visit.fields:
        return Redirect(_address_of_sliders(visit))
    filters = {name: visit.fields.get(name) for name in _FILTERS}
    instants = {name: read_instant(name, visit.fields.get(name)) for name in _CLOCKS}
    texts = {name: write_instant(at) for name, at in instants.items()}
    as_of = {name: text or None for name, text in texts.items()}
    page = await visit.ask(
        "facts", **filters, **as_of, limit=_FACTS, cursor=visit.fields.get("cursor")
    )
    scope = {name: filters[name] for name in _SCOPE}
    episodes = (await visit.ask("episodes", **scope, limit=_EPISODES))["episodes"]
    user = filters["user"] or visit.caller.user
    values = {
        "user": user,
        "fields": {name: value or "" for name, value in filters.items()},
        "texts": texts,
        "facts": page["facts"],
        "next": page["next"] and link("user", **filters, **texts, cursor=page["next"]),
        "now": link("user", **filters),
        "is_now": not any(instants.values()),
        "episodes": episodes,
        "profile": await visit.ask("profile", **scope),
        "sliders": await _sliders(visit, instants, page["facts"], episodes),
    }
    return View("user.html", f"What is known of {show_plain(user or '')}", values)


def _address_of_sliders(visit: Visit) -> str:
    """Return the page of the instants at which the sliders stand."""
    high = visit.number("sliders", 0)
    places = {
        "valid_at": visit.number("valid", high),
        "believed_at": visit.number("believed", high),
    }
    filters = {name: visit.fields.get(name) for name in _FILTERS}
    instants = {name: write_instant(instant_at(place, high)) for name, place in places.items()}
    return link("user", **filters, **instants)


async def _sliders(
    visit: Visit,
    instants: Mapping[str, datetime | None],
    facts: Iterable[Mapping[str, Any]],
    episodes: Iterable[Mapping[str, Any]],
) -> list[dict[str, Any]]:
    """Return the two sliders.

    The slider of what was known begins at the first row of the ledger. The slider of what was true
    begins at the earliest claim that the page has read. An earlier instant makes a slider longer.
    """
    now = visit.served.clock.now()
    promoted = [_instant(fact["pinned_at"]) for fact in facts]
    first = await _first_row(visit) or min(promoted, default=now)
    said = [_instant(fact["said_at"]) for fact in facts]
    said += [_instant(episode["timestamp"]) for episode in episodes]
    begins = {"valid_at": min([first, *said]), "believed_at": first}
    found = []
    for name, label in (("valid_at", "What was true"), ("believed_at", "What was known")):
        at = instants[name]
        over = TimeRange.between(min(begins[name], at or now), now)
        place = over.place_of(at)
        found.append(
            {
                "name": name.removesuffix("_at"),
                "label": label,
                "over": over,
                "at": at,
                "place": place,
            }
        )
    return found


async def _first_row(visit: Visit) -> datetime | None:
    """Return the instant of the first row of the ledger that the person may see.

    Returns:
        None when it is not among the first rows, or when each shard has a ledger of its own.
    """
    scope = {name: visit.fields.get(name) for name in _SCOPE}
    if visit.caller.user is None:
        scope = {}  # an operator sees the first row of all
    try:
        rows = await visit.ask("changes", **scope, limit=1 if not scope else _FIRST_ROWS)
    except UsageError:
        return None
    return _instant(rows["changes"][0]["at"]) if rows["changes"] else None


def _instant(text: str) -> datetime:
    return datetime.fromisoformat(text)
