"""The page of search and of context: exactly what an agent gets."""

from __future__ import annotations

from slumberd.console.visit import Shown, View, Visit

_BUDGET = 4_096
_LIMIT = 10


async def show(visit: Visit) -> Shown:
    """Show the form, and the answers to its question."""
    fields, hits, context = visit.fields, None, None
    question = fields.get("q")
    if question is not None:
        scope = {name: fields.get(name) for name in ("user", "agent", "session", "as_of")}
        found = await visit.ask(
            "recall", query=question, limit=visit.number("limit", _LIMIT), **scope
        )
        hits = found["hits"]
        budget = visit.number("budget", _BUDGET)
        context = await visit.ask("context", question=question, budget=budget, **scope)
    values = {
        "fields": {
            **dict.fromkeys(("q", "user", "agent", "session", "as_of", "limit", "budget"), ""),
            **fields,
        },
        "own_user": visit.caller.user,
        "hits": hits,
        "context": context,
    }
    return View("search.html", "Search", values)
