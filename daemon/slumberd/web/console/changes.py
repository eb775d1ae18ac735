"""Run the changes that people ask for in forms: first a dry run, then the change itself.

Each change is one operation. The console asks for a reason, which the ledger keeps. What a dry run
says becomes the words of the preview.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson

from slumberd.model.errors import SlumberdError, UsageError
from slumberd.operations.handlers import Answer
from slumberd.operations.registry import OPERATIONS
from slumberd.web.console.fact_words import add_words
from slumberd.web.console.rendering import Fields, link
from slumberd.web.console.visit import Redirect, Shown, View, Visit
from slumberd.web.http.problems import status_of

PATH = "/change"
"""The path that all forms with changes are sent to."""

LISTED = 200
"""A preview lists at most so many changes of facts, and counts all."""

_SENT = "this form was sent before, or is too old; open its page again to see what has changed"


def _same_fields(fields: Fields) -> dict[str, Any]:
    return dict(fields)


@dataclass(frozen=True, slots=True, kw_only=True)
class FormChange:
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
        given: The fields of the form that it takes.
        fields: The fields of the operation, without the reason.
        sentence: What the person asks for.
        back: The page that the person comes from.
    """

    change: FormChange
    given: Fields
    fields: Mapping[str, Any]
    sentence: str
    back: str


async def submit_change(visit: Visit, changes: Mapping[str, FormChange]) -> Shown:
    """Show what a change would do; run it when the form says so.

    An error of the change is shown with a link back to the page that the person comes from.

    Args:
        visit: The form that was sent.

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


def _read_request(change: FormChange, fields: Fields) -> _Request:
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


CHANGED: Mapping[str, tuple[str, str]] = {
    "added": ("fact would be added", "facts would be added"),
    "restored": ("fact would be current again", "facts would be current again"),
    "updated": ("fact would be changed", "facts would be changed"),
    "deleted": ("fact would be retracted", "facts would be retracted"),
}
"""What a dry run says of facts that change, for one and for more."""

UNCHANGED: Mapping[str, tuple[str, str]] = {
    "dropped": ("entry would leave the quarantine", "entries would leave the quarantine"),
    "quarantined": ("episode would be quarantined", "episodes would be quarantined"),
    "noop": ("claim would change nothing", "claims would change nothing"),
    "filtered": (
        "version would not match the filter of the rule",
        "versions would not match the filter of the rule",
    ),
    "read": ("version of an episode would be read", "versions of episodes would be read"),
}
"""What a dry run says of everything else, for one and for more."""

_NAMES: Mapping[str, str] = {
    "add": "added",
    "update": "updated",
    "delete": "deleted",
    "quarantine": "quarantined",
}
"""The name in `CHANGED` or `UNCHANGED` of the kind of a delta."""


@dataclass(frozen=True, slots=True)
class Count:
    """A number, and what it counts, in words."""

    number: int
    words: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DryRun:
    """What a change would do.

    Attributes:
        changed: How many facts would change, by what would happen to them.
        unchanged: How much else it would do.
        deltas: The first changes of facts.
        total: How many changes there are.
        notes: What else a person must know, a sentence each.
        details: Further fields, such as those of the certificate of an erasure.
    """

    changed: Sequence[Count]
    unchanged: Sequence[Count]
    deltas: Sequence[Mapping[str, Any]]
    total: int
    notes: Sequence[str]
    details: Mapping[str, str]

    @property
    def cut(self) -> bool:
        """Whether there are more changes than are listed."""
        return self.total > len(self.deltas)


def read_dry_run(answer: Answer, *, most: int) -> DryRun:
    """Return what the answer of a dry run says.

    Args:
        most: At most so many changes are listed.
    """
    counts = _counts_in(answer)
    parts = [answer, *_reports_in(answer)]
    deltas = [row for part in parts for row in part.get("deltas") or ()]
    return DryRun(
        changed=[*_describe(counts, CHANGED)],
        unchanged=[*_describe(counts, UNCHANGED)],
        deltas=deltas[:most],
        total=sum(part.get("deltas_total") or 0 for part in parts),
        notes=[*_notes_on(answer)],
        details=_details_in(answer),
    )


def describe_counts(counts: Mapping[str, int]) -> list[Count]:
    """Return counts of facts that would change, in words; counts of 0 are left out."""
    return [*_describe(counts, CHANGED)]


def _describe(counts: Mapping[str, int], words: Mapping[str, tuple[str, str]]) -> Iterator[Count]:
    for name, (one, more) in words.items():
        if number := counts.get(name, 0):
            yield Count(number, one if number == 1 else more)


def _reports_in(answer: Answer) -> Sequence[Mapping[str, Any]]:
    reports: Sequence[Mapping[str, Any]] = answer.get("reports") or ()
    return reports


def _counts_in(answer: Answer) -> Counter[str]:
    """Return what a dry run would do, by the names of `CHANGED` and `UNCHANGED`."""
    found: Counter[str] = Counter()
    for kind, number in answer.get("counts", {}).items():
        found[_NAMES.get(kind, kind)] += number
    for report in _reports_in(answer):
        for channel in report["channels"].values():
            found.update(channel)
    found["dropped"] += answer.get("dropped", 0)
    return found


def _notes_on(answer: Answer) -> Iterator[str]:
    for report in _reports_in(answer):
        rule = report["rule_id"]
        if unread := report.get("unread"):
            yield f"The rule {rule} would go on with {unread:,} further rows of the episode log."
        if report.get("unrecorded"):
            yield f"Some episodes of the rule {rule} wait for the language model."
        if rejected := report.get("rejected"):
            yield f"{rejected:,} versions of episodes were rejected for the rule {rule}."
        if held := report.get("held_batch"):
            name = (
                f"The batch {held['firing_id']} awaits" if held["firing_id"] else "It would await"
            )
            yield f"{name} approval: {held['problem']}."
    if still := answer.get("still_quarantined_total"):
        yield f"{still:,} {'entry' if still == 1 else 'entries'} would stay in quarantine."


def _details_in(answer: Answer) -> dict[str, str]:
    """Return the plan of an erasure; empty for other changes."""
    if "certificate" not in answer:
        return {}
    return {
        name: value if isinstance(value, str) else orjson.dumps(value).decode()
        for name, value in answer.items()
        if name not in ("certificate", "version", "dry_run", "plan")
    }
