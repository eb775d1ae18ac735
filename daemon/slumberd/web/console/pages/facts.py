"""The pages of the users, of the facts of one user, of one fact, and of one episode."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from slumberd.model.errors import NoInputError, UsageError
from slumberd.operations.caller import Right
from slumberd.operations.reads.explanations import describe_extraction
from slumberd.web.console.fact_words import show_value, write_value
from slumberd.web.console.history_line import CurrentPeriod, HistoryLine, draw_history
from slumberd.web.console.rendering import link, show_plain
from slumberd.web.console.time_range import TimeRange, instant_at, read_instant, write_instant
from slumberd.web.console.visit import Redirect, Shown, View, Visit

_FACTS = 50
_EPISODES = 10
_FIRST_ROWS = 200
_SCOPE = ("user", "agent")
_FILTERS = (*_SCOPE, "subject", "predicate")
_CLOCKS = ("valid_at", "believed_at")


async def show_user(visit: Visit) -> Shown:
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


_LIMIT = 100


async def show_users(visit: Visit) -> Shown:
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


_MOST_PERIODS = 100
_MOST_NEAR = 10
_MOST_SOURCES = 50

Period = Mapping[str, Any]


async def show_fact(visit: Visit) -> Shown:
    """Show a fact, which need not be current."""
    id = visit.need("id")
    scope = {name: visit.fields.get(name) for name in ("user", "agent")}
    explained = await visit.ask("explain", id=id, kind="fact", **scope)
    history = await visit.ask("history", id=id, limit=_MOST_PERIODS, **scope)
    current = (await visit.ask("facts", id=id, limit=1, **scope))["facts"]
    explanation: Mapping[str, Any] = explained["explanation"]
    payload = current[0]["payload"] if current else history["payload"]
    values = {
        "id": id,
        "user": history["user"],
        "agent": history["agent"],
        "fact": current[0] if current else None,
        "payload": payload,
        "explanation": explanation,
        "extracted": describe_extraction(payload, content=True),
        "sources": explanation["sources"][:_MOST_SOURCES],
        "sources_left_out": max(0, len(explanation["sources"]) - _MOST_SOURCES),
        "near": await _read_near(visit, explanation["near"][:_MOST_NEAR], history["user"]),
        "histories": _histories(visit, history),
        "cut": history["cut"],
        "object_text": write_value(payload.get("object")),
        "may_change": bool(current) and visit.may(Right.WRITE),
        "may_operate": visit.may(Right.OPERATE),
    }
    return View("fact.html", "Fact", values)


async def _read_near(
    visit: Visit, near: Iterable[Mapping[str, Any]], user: str
) -> list[dict[str, Any]]:
    """Return the similar facts, with what they say; one that is not current has no payload."""
    found = []
    for one in near:
        facts = (await visit.ask("facts", id=one["fact_id"], user=user, limit=1))["facts"]
        found.append({**one, "payload": facts[0]["payload"] if facts else None})
    return found


def _histories(visit: Visit, history: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the history by each clock, with its picture."""
    now = visit.served.clock.now()
    clocks = (
        (
            "valid",
            "What was true",
            "A period begins when it was said, as slumberd knows now.",
        ),
        (
            "believed",
            "What was known",
            "A period begins when slumberd learned the value.",
        ),
    )
    return [
        {
            "title": title,
            "text": text,
            "periods": history[name],
            "picture": _picture(f"history-{name}", title, history[name], now),
        }
        for name, title, text in clocks
    ]


def _picture(id: str, title: str, periods: Sequence[Period], now: datetime) -> HistoryLine | None:
    spans = [
        CurrentPeriod(
            show_value(period["payload"]),
            datetime.fromisoformat(period["begins_at"]),
            period["ends_at"] and datetime.fromisoformat(period["ends_at"]),
        )
        for period in periods
    ]
    return draw_history(id, title, spans, now) if spans else None


_UNKNOWN = "this scope has no episode with that id"


async def show_episode(visit: Visit) -> Shown:
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
