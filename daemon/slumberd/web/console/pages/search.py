"""The page of search and of context: exactly what an agent gets."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from http import HTTPStatus
from typing import Any

from slumberd.model.errors import MemoryScopeError
from slumberd.operations.caller import Right
from slumberd.operations.forms import RequestForm
from slumberd.operations.search import ContextForm, RecallForm
from slumberd.rules.validation import problems
from slumberd.web.console.time_range import NEED
from slumberd.web.console.visit import Shown, View, Visit
from slumberd.web.http.problems import status_of

KINDS = (("", "Facts and episodes"), ("fact", "Facts"), ("episode", "Episodes"))
"""What may be searched, with the words of the choice."""

_SCOPE = ("user", "agent", "session", "as_of")
_DEFAULTS: Mapping[str, str] = {
    "q": "",
    **dict.fromkeys(_SCOPE, ""),
    "kinds": "",
    "limit": str(RecallForm.model_fields["limit"].default),
    "min_score": "0",
    "budget": str(ContextForm.model_fields["budget"].default),
}
_ASKED: Mapping[str, str] = {"query": "q", "question": "q"}
"""The field of the page for a field of an operation, where the names differ."""


async def show(visit: Visit) -> Shown:
    """Show the form; when it was sent, also the answers, or the mistakes beside their fields."""
    visit.caller.require(Right.READ)
    if not _is_sent(visit):
        return _view(visit)
    mistakes = dict(_find_mistakes(visit))
    if mistakes:
        return _view(visit, mistakes=mistakes, status=HTTPStatus.BAD_REQUEST)
    try:
        hits = (await visit.ask("recall", **_recall_of(visit)))["hits"]
        context = await visit.ask("context", **_context_of(visit))
    except MemoryScopeError as error:
        return _view(visit, mistakes={"": str(error)}, status=status_of(type(error)))
    return _view(visit, hits=hits, context=context)


def _is_sent(visit: Visit) -> bool:
    """Return whether the form was sent; a link may fill in the scope."""
    return any(name in visit.fields for name in _DEFAULTS if name not in _SCOPE)


def _view(
    visit: Visit,
    *,
    hits: list[Any] | None = None,
    context: Mapping[str, Any] | None = None,
    mistakes: Mapping[str, str] | None = None,
    status: int = HTTPStatus.OK,
) -> View:
    values = {
        "fields": {**_DEFAULTS, **visit.fields},
        "own_user": visit.caller.user,
        "own_agent": visit.caller.agent,
        "kinds": KINDS,
        "problems": mistakes or {},
        "hits": hits,
        "context": context,
    }
    return View("search.html", "Search", values, status)


def _scope_of(visit: Visit) -> dict[str, Any]:
    return {name: visit.fields[name] for name in _SCOPE if name in visit.fields}


def _recall_of(visit: Visit) -> dict[str, Any]:
    """Return the request that an agent would send to search."""
    fields = {**_scope_of(visit), "query": visit.fields.get("q", "")}
    if "kinds" in visit.fields:
        fields["kinds"] = [visit.fields["kinds"]]
    return {
        **fields,
        **_number(visit, "limit", int),
        **_number(visit, "min_score", float),
    }


def _context_of(visit: Visit) -> dict[str, Any]:
    """Return the request that an agent would send for a context."""
    question = visit.fields.get("q", "")
    return {**_scope_of(visit), "question": question, **_number(visit, "budget", int)}


def _number(visit: Visit, name: str, read: type[int] | type[float]) -> dict[str, Any]:
    """Return a number that the form has; another text as it is, which the operation refuses."""
    text = visit.fields.get(name)
    if text is None:
        return {}
    try:
        return {name: read(text)}
    except ValueError:
        return {name: text}


def _find_mistakes(visit: Visit) -> Iterator[tuple[str, str]]:
    """Yield the mistakes of the form, each with the name of its field."""
    if "q" not in visit.fields:
        yield "q", "enter a question"
    if visit.caller.user is None and "user" not in visit.fields:
        yield "user", "enter a user"
    requests: tuple[tuple[type[RequestForm], dict[str, Any]], ...] = (
        (RecallForm, _recall_of(visit)),
        (ContextForm, _context_of(visit)),
    )
    for form, request in requests:
        for found in problems(form, request, strict=True):
            field = str(found.trail[0]) if found.trail else ""
            yield _ASKED.get(field, field), NEED if field == "as_of" else found.text
