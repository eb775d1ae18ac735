"""Run the changes that people ask for in forms: first a dry run, then the change itself.

Each change is one operation. The console asks for a reason, which the ledger keeps.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from slumberd.api.problems import status_of
from slumberd.console.dry_runs import read_dry_run
from slumberd.console.fact_words import add_words
from slumberd.console.links import Fields, link
from slumberd.console.visit import Redirect, Shown, View, Visit
from slumberd.errors import SlumberdError, UsageError
from slumberd.operations.handlers import Answer
from slumberd.operations.registry import OPERATIONS

PATH = "/change"
"""The path that all forms with changes are sent to."""

LISTED = 200
"""A preview lists at most so many changes of facts, and counts all."""

_SENT = "this form was sent before, or is too old; open its page again to see what has changed"


def _same_fields(fields: Fields) -> dict[str, Any]:
    return dict(fields)


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One change that a form may ask for.

    Attributes:
        operation: The operation that runs it.
        title: The title of its pages.
        button: The text of the button that runs it.
        takes: The fields of the form that the operation gets.
        fixed: Fields that the change decides.
        read: Returns the fields of the operation for those of the form.
        sentence: Returns what the person asks for, in a sentence.
        back: Returns the page that the person comes from.
        done: Returns the page that shows what was changed.
    """

    operation: str
    title: str
    button: str
    takes: tuple[str, ...]
    sentence: Callable[[Fields], str]
    back: Callable[[Fields], str]
    done: Callable[[Fields, Answer], str]
    fixed: Mapping[str, Any] = field(default_factory=dict)
    read: Callable[[Fields], dict[str, Any]] = _same_fields


@dataclass(frozen=True, slots=True)
class _Request:
    """What a form asks for.

    Attributes:
        change: The change.
        given: The fields of the form that it takes.
        fields: The fields of the operation, without the reason.
        sentence: What the person asks for.
        back: The page that the person comes from.
    """

    change: Change
    given: Fields
    fields: Mapping[str, Any]
    sentence: str
    back: str


async def submit_change(visit: Visit, changes: Mapping[str, Change]) -> Shown:
    """Show what a change would do; run it when the form says so.

    An error of the change is shown with a link back to the page that the person comes from.

    Args:
        visit: The form that was sent.
        changes: All changes, by name.

    Raises:
        UsageError: There is no such change, or a field of it is missing.
    """
    change = changes.get(visit.need("change"))
    if change is None:
        raise UsageError(f"unknown change {visit.need('change')[:40]!r}")
    asked = _read_request(change, visit.fields)
    try:
        return await _submit(visit, asked)
    except SlumberdError as error:
        return _failed(asked, error)


def _read_request(change: Change, fields: Fields) -> _Request:
    """Return what a form asks for.

    Raises:
        UsageError: A field is missing.
    """
    given = {name: fields[name] for name in change.takes if name in fields}
    try:
        asked = {**change.read(given), **change.fixed}
        return _Request(change, given, asked, change.sentence(given), change.back(given))
    except KeyError as error:
        raise UsageError(f"{error.args[0]}: is missing") from error


async def _submit(visit: Visit, asked: _Request) -> Shown:
    change, number = asked.change, visit.fields.get("form")
    fields = {**asked.fields, "reason": visit.need("reason")}
    if number is None:
        answer = await visit.ask(change.operation, **fields, **_dry_run_of(change.operation))
        return await _preview(visit, asked, answer)
    if not visit.session.use_form(number):
        raise UsageError(_SENT)
    answer = await visit.ask(change.operation, **fields, dry_run=False)
    return Redirect(change.done(asked.given, answer))


def _dry_run_of(operation: str) -> dict[str, Any]:
    """Return the fields of a dry run; some operations have no list to limit."""
    limited = "limit" in OPERATIONS[operation].form.model_fields
    return {"dry_run": True, "limit": LISTED} if limited else {"dry_run": True}


async def _preview(visit: Visit, asked: _Request, answer: Answer) -> View:
    """Return the page that shows a dry run, with the form that runs the change."""
    found = read_dry_run(answer, most=LISTED)
    fields = {"change": visit.need("change"), "reason": visit.need("reason"), **asked.given}
    if "plan" in answer:  # of an erasure: it erases what the person saw, or nothing
        fields["plan"] = answer["plan"]
    values = {
        "sentence": asked.sentence,
        "dry_run": found,
        "deltas": await add_words(visit, found.deltas),
        "fields": fields,
        "button": asked.change.button,
        "back": asked.back,
    }
    return View("preview.html", asked.change.title, values)


def _failed(asked: _Request, error: SlumberdError) -> View:
    """Return the page that says why a change is impossible."""
    values = {"sentence": asked.sentence, "problem": str(error), "back": asked.back}
    return View("change_failed.html", asked.change.title, values, status_of(type(error)))


def back_to(page: str, *names: str) -> Callable[[Fields], str]:
    """Return a function that leads to a page about the fields of these names."""

    def address(fields: Fields) -> str:
        return link(page, **{name: fields.get(name) for name in names})

    return address
