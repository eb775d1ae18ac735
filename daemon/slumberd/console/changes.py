"""Run the changes that people ask for in forms: first a dry run, then the change itself.

Each change is one operation. The console asks for a reason, which the ledger keeps.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import orjson

from slumberd.console.links import Fields, link
from slumberd.console.visit import Redirect, Shown, View, Visit
from slumberd.errors import UsageError
from slumberd.operations.handlers import Answer

PATH = "/change"
"""The path that all forms with changes are sent to."""

_SENT = "this form was sent before; open the page again to see what it has changed"
_LISTED = 200


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


async def submit_change(visit: Visit, changes: Mapping[str, Change]) -> Shown:
    """Show what a change would do; run it when the form says so.

    Args:
        visit: The form that was sent.
        changes: All changes, by name.

    Raises:
        UsageError: There is no such change, it has no reason, or it was sent before.
    """
    change = changes.get(visit.need("change"))
    if change is None:
        raise UsageError(f"unknown change {visit.need('change')[:40]!r}")
    given = {name: visit.fields[name] for name in change.takes if name in visit.fields}
    fields = {**change.read(given), **change.fixed, "reason": visit.need("reason")}
    number = visit.fields.get("form")
    if number is None:
        answer = await visit.ask(change.operation, **fields, dry_run=True)
        return _preview(visit, change, answer)
    if not visit.session.use_form(number):
        raise UsageError(_SENT)
    answer = await visit.ask(change.operation, **fields, dry_run=False)
    return Redirect(change.done(visit.fields, answer))


def _preview(visit: Visit, change: Change, answer: Answer) -> View:
    """Return the page that shows a dry run, with the form that runs the change."""
    rows = _deltas_in(answer)
    sent = ("change", "reason", *change.takes)
    fields = {name: visit.fields[name] for name in sent if name in visit.fields}
    if "plan" in answer:  # of an erasure: it erases what the person saw, or nothing
        fields["plan"] = answer["plan"]
    return View(
        "preview.html",
        change.title,
        {
            "sentence": change.sentence(visit.fields),
            "counts": _counts_in(answer),
            "deltas": rows[:_LISTED],
            "cut": len(rows) > _LISTED,
            "details": _details_in(answer),
            "fields": fields,
            "button": change.button,
            "back": change.back(visit.fields),
        },
    )


def _reports_in(answer: Answer) -> list[Mapping[str, Any]]:
    reports: list[Mapping[str, Any]] = answer.get("reports", [])
    return reports


def _deltas_in(answer: Answer) -> list[Mapping[str, Any]]:
    """Return the deltas of a dry run, which an answer has for all rules, or for each of them."""
    rows = [*answer.get("deltas", [])]
    for report in _reports_in(answer):
        rows += report.get("deltas") or []
    return rows


def _counts_in(answer: Answer) -> dict[str, int]:
    """Return what a dry run would change, by kind."""
    found: dict[str, int] = dict(answer.get("counts", {}))
    for report in _reports_in(answer):
        for channel in report["channels"].values():
            for name, count in channel.items():
                found[name] = found.get(name, 0) + count
    for name in ("dropped",):
        if name in answer:
            found[name] = answer[name]
    return {name: count for name, count in found.items() if count}


def _details_in(answer: Answer) -> dict[str, str]:
    """Return the certificate of an erasure, as its plan has it."""
    certificate: Mapping[str, Any] = answer.get("certificate", {})
    return {
        name: value if isinstance(value, str) else orjson.dumps(value).decode()
        for name, value in certificate.items()
    }


def back_to(page: str, *names: str) -> Callable[[Fields], str]:
    """Return a function that leads to a page about the fields of these names."""

    def address(fields: Fields) -> str:
        return link(page, **{name: fields.get(name) for name in names})

    return address
