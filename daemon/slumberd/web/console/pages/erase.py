"""The page that plans an erasure, erases what was planned, and shows the certificate.

The certificate is shown once: slumberd does not store it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from http import HTTPStatus
from itertools import zip_longest
from typing import Any, NamedTuple
from urllib.parse import quote

import orjson

from slumberd.model.errors import NotAllowedError, SlumberdError, UsageError, VersionConflictError
from slumberd.operations.caller import Right
from slumberd.operations.handlers import Answer
from slumberd.web.console.visit import Shown, View, Visit
from slumberd.web.http.problems import status_of

MOST_LISTED = 200
"""A page lists so many facts that are current again; the certificate has all of them."""

MOST_DOWNLOADED = 1_500_000
"""Browsers cannot save a longer text from an address. A longer certificate is only shown."""

_SENT = "this form was sent before, or is too old; ask for a new plan to see what is left to erase"
_STALE = "Nothing was erased: the scope has changed since you saw the plan. This is the new plan."
_MISSING = "is missing"

_FIELDS = ("user", "agent", "session", "episode", "fact", "reason")

_ROWS: Mapping[str, Mapping[str, tuple[str, str]]] = {
    "episodes": {
        "episodes": ("episode", "episodes"),
        "slumberd_episode_log": ("row of the episode log", "rows of the episode log"),
        "slumberd_accesses": ("count of reads of an episode", "counts of reads of episodes"),
        "slumberd_extractions": ("answer of a language model", "answers of language models"),
        "slumberd_model_requests": (
            "request to a language model",
            "requests to language models",
        ),
    },
    "facts": {
        "facts": ("current fact", "current facts"),
        "slumberd_ledger": ("row of the ledger", "rows of the ledger"),
        "slumberd_keys": ("key of facts", "keys of facts"),
        "slumberd_references": ("reference to a fact", "references to facts"),
        "slumberd_quarantine": ("entry of the quarantine", "entries of the quarantine"),
    },
}
"""The words for the rows of each table of each store, for one and for more."""


class ErasedCounts(NamedTuple):
    """How many rows of one kind are erased.

    Attributes:
        number: How many.
        words: What they are.
        table: Their table, as the certificate names it.
    """

    number: int
    words: str
    table: str


async def show(visit: Visit) -> Shown:
    """Show the form that asks what is erased, and why."""
    visit.caller.require(Right.ERASE)
    return _form(visit)


async def submit(visit: Visit) -> Shown:
    """Show the plan of an erasure; with the hash of a plan, erase, and show the certificate."""
    visit.caller.require(Right.ERASE)
    missing = {name: _MISSING for name in _needed(visit) if name not in visit.fields}
    if missing:
        return _form(visit, missing, status=HTTPStatus.BAD_REQUEST)
    try:
        if "plan" in visit.fields:
            return await _erase(visit)
        return _plan(visit, await _ask(visit, dry_run=True))
    except NotAllowedError:
        raise
    except SlumberdError as error:
        return _form(visit, {"": str(error)}, status=status_of(type(error)))


def _needed(visit: Visit) -> Iterator[str]:
    """Yield the fields without which the form is refused; an episode or a fact says whose it is."""
    if visit.caller.user is None and visit.fields.keys().isdisjoint(("episode", "fact")):
        yield "user"
    yield "reason"


async def _ask(visit: Visit, *, dry_run: bool) -> Answer:
    fields = {name: visit.fields.get(name) for name in (*_FIELDS, "plan")}
    return await visit.ask("forget", **fields, dry_run=dry_run)


async def _erase(visit: Visit) -> Shown:
    """Erase what the person saw; when that has changed, erase nothing, and show the new plan."""
    if not visit.session.use_form(visit.need("form")):
        raise UsageError(_SENT)
    try:
        return _certificate(await _ask(visit, dry_run=False))
    except VersionConflictError as error:
        answer = await _ask(visit, dry_run=True)
        return _plan(visit, answer, _STALE, status=status_of(type(error)))


def _form(
    visit: Visit, problems: Mapping[str, str] | None = None, *, status: int = HTTPStatus.OK
) -> View:
    """Return the page with the form; a problem of no field has the name ``""``."""
    fields = dict.fromkeys(_FIELDS, "") | dict(visit.fields)
    values = {"fields": fields, "own_user": visit.caller.user, "problems": problems or {}}
    return View("erase.html", "Erase", values, status)


def _plan(visit: Visit, answer: Answer, problem: str = "", *, status: int = HTTPStatus.OK) -> View:
    """Return the page with a plan, and with the form that erases what it names."""
    sent = {name: visit.fields.get(name) for name in _FIELDS}
    fields = {name: text for name, text in sent.items() if text is not None}
    values = {
        "problem": problem,
        "fields": {**fields, "plan": answer["plan"]},
        **_erased(answer),
    }
    return View("erase_plan.html", "Plan of an erasure", values, status)


def _certificate(answer: Answer) -> View:
    text = orjson.dumps(answer, option=orjson.OPT_INDENT_2).decode()
    values = {
        "json": text,
        "file": f"slumberd-{_file_name(answer['firing_id'])}.json",
        "address": _address_of(text) if len(text) <= MOST_DOWNLOADED else "",
        **_erased(answer),
    }
    return View("certificate.html", "Certificate of an erasure", values)


def _erased(answer: Answer) -> dict[str, Any]:
    """Return what both a plan and a certificate show."""
    return {
        "answer": answer,
        "rows": [*_describe_rows(answer["rows"])],
        "episodes": answer.get("episodes", [])[:MOST_LISTED],
        "episodes_total": len(answer.get("episodes", [])),
        "going": [*_describe_going(answer)][:MOST_LISTED],
        "going_total": len(answer.get("facts", [])),
        "again": answer["current_again"][:MOST_LISTED],
        "again_total": len(answer["current_again"]),
        "foreign": answer["foreign_blank_total"],
    }


def _describe_rows(rows: Mapping[str, Mapping[str, int]]) -> Iterator[ErasedCounts]:
    """Yield how many rows are erased, in words; kinds without rows are left out."""
    for store in _ROWS:
        for table, number in rows.get(store, {}).items():
            one, more = _ROWS[store].get(table, (table, table))
            if number:
                yield ErasedCounts(number, one if number == 1 else more, table)


def _describe_going(answer: Answer) -> Iterator[tuple[str, str]]:
    """Yield the facts that go with an episode or a fact, and what they say; a plan knows that."""
    yield from zip_longest(answer.get("facts", []), answer.get("statements", []), fillvalue="")


def _address_of(text: str) -> str:
    """Return an address whose content is a JSON text: slumberd keeps no copy to send later."""
    return "data:application/json;charset=utf-8," + quote(text)


def _file_name(firing_id: str) -> str:
    return re.sub(r"[^0-9A-Za-z]+", "-", firing_id).strip("-")
