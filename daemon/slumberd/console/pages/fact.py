"""The page of one fact: why it is current, where it comes from, and the history of its key."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from slumberd.console.history_line import HistoryLine, Span, draw_history
from slumberd.console.typed_values import show_value, write_value
from slumberd.console.visit import Shown, View, Visit
from slumberd.operations.caller import Right
from slumberd.operations.reads.explanations import describe_extraction

_MOST_PERIODS = 100
_MOST_NEAR = 10
_MOST_SOURCES = 50

Period = Mapping[str, Any]


async def show(visit: Visit) -> Shown:
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
        Span(
            show_value(period["payload"]),
            datetime.fromisoformat(period["begins_at"]),
            period["ends_at"] and datetime.fromisoformat(period["ends_at"]),
        )
        for period in periods
    ]
    return draw_history(id, title, spans, now) if spans else None
